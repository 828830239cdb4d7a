#include "parallel.hpp"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#ifndef _WIN32
#include <pthread.h>
#endif

namespace caloric {
namespace {

class Pool {
 public:
  void run(int helpers, const std::function<void()> &task) {
    Job job{&task, helpers, 0};
    {
      std::lock_guard<std::mutex> lock(mutex_);
      add_threads(helpers);
      jobs_.push_back(&job);
    }
    wake_.notify_all();
    task();
    std::unique_lock<std::mutex> lock(mutex_);
    const auto waiting = std::find(jobs_.begin(), jobs_.end(), &job);
    if (waiting != jobs_.end()) jobs_.erase(waiting);
    done_.wait(lock, [&] { return job.running == 0; });
  }

 private:
  struct Job {
    const std::function<void()> *task;
    int missing, running;  // helpers
  };

  void add_threads(int number) {
    try {
      for (; threads_ < number; ++threads_) std::thread([this] { work(); }).detach();
    } catch (const std::system_error &) {  // fewer threads do the same
    }
  }

  void work() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wake_.wait(lock, [&] { return !jobs_.empty(); });
      Job &job = *jobs_.front();
      if (--job.missing == 0) jobs_.pop_front();
      ++job.running;
      lock.unlock();
      (*job.task)();
      lock.lock();
      if (--job.running == 0) done_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable wake_, done_;
  std::deque<Job *> jobs_;
  int threads_ = 0;
};

// Never deleted, because its threads end with the process; replaced after a fork, which threads do not survive.
Pool *pool = nullptr;

Pool &pool_of_process() {
  static const bool is_made = [] {
    pool = new Pool;
#ifndef _WIN32
    pthread_atfork(nullptr, nullptr, [] { pool = new Pool; });
#endif
    return true;
  }();
  (void)is_made;
  return *pool;
}

}  // namespace

void run_on_threads(int helpers, const std::function<void()> &task) {
  if (helpers < 1)
    task();
  else
    pool_of_process().run(helpers, task);
}

}  // namespace caloric
