// Work on several threads, which wait for the next call: starting a thread takes longer than a search.
#pragma once
#include <algorithm>
#include <atomic>
#include <functional>

#include "kernels.hpp"

namespace caloric {

// Calls task() on the calling thread and on up to `helpers` others (parallel.cpp). The task must not throw.
void run_on_threads(int helpers, const std::function<void()> &task);

// More threads take longer to wake up than they save, for work of a few milliseconds.
constexpr int MAX_THREADS = 8;

// Calls work(first, last) for parts of `count` items, on at most `threads` threads that have at least `min_items` each.
// The work must not throw.
template <class Work>
void in_parallel(i64 count, i64 min_items, int threads, const Work &work) {
  const i64 part = std::max<i64>(1, min_items / 4);
  std::atomic<i64> next{0};
  const auto run = [&] {
    for (i64 first; (first = next.fetch_add(part)) < count;) work(first, std::min(first + part, count));
  };
  run_on_threads((int)std::min<i64>(std::min(threads, MAX_THREADS), count / min_items) - 1, run);
}

}  // namespace caloric
