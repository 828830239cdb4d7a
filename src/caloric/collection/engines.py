"""Engines that run the tasks of a step: this process, a pool of processes, or a Dask cluster.

All take a function and an iterable of tasks, and yield results as they complete. The number of
pending tasks is proportional to the number of workers, so that memory does not grow with the
number of tasks.
"""

import logging
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import (
    get_all_start_methods,
    get_context,
    parent_process,
    resource_tracker,
)
from threading import Thread, current_thread, main_thread
from typing import Any, Protocol, TypeVar

from caloric.errors import InputError
from caloric.gpu import devices
from caloric.runtime import threads

T = TypeVar("T")
R = TypeVar("R")

_TASKS_PER_WORKER = 2  # one running, one queued
_FEW = 8  # tasks that mostly read files and take less time than starting processes
_MAX_DEATHS = 3
_WORKER_TIMEOUT = 120  # seconds to wait for the first worker
_REFRESH = 2.0  # seconds after which the workers are counted again
LOCAL = "local"


class Engine(Protocol):
    """The interface that a step needs to run its tasks."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results of an importable function for all tasks, in any order."""

    def read(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Do the same as ``run`` for a function that mostly reads files."""


class InProcess:
    """Run all tasks in this process, one after the other."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results in the order of the tasks."""
        return map(function, tasks)

    def read(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results in the order of the tasks, computed by the threads of this process."""
        return iter(threads.each(function, tasks))


def _set_threads(count: int) -> None:
    os.environ[threads.SETTING] = str(count)


def _settings() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith("CALORIC_")}


def _initialize_worker(count: int, settings: dict[str, str]) -> None:
    """Set up a new worker, which exits when its parent is killed."""
    # A fork server keeps the environment in which it was started.
    for name in _settings():
        del os.environ[name]
    os.environ.update(settings)
    _set_threads(count)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles Ctrl-C and ends the pool
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


# What workers use, and libraries that are imported when they are needed. A fork server imports them
# once for all workers, in this order, and ignores those that are not installed.
_PRELOADED = [
    "PIL.ImageOps", "caloric_native", "pyarrow.parquet", "scipy.sparse.csgraph", "scipy.spatial",
    "scipy.special", "caloric.collection.preloaded",
]  # fmt: skip


def _context() -> Any:
    """Return the multiprocessing context; never "fork", because this process may have threads."""
    if "forkserver" not in get_all_start_methods():  # Windows
        return get_context("spawn")
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


@contextmanager
def _uninterrupted() -> Iterator[None]:
    """Delay Ctrl-C while processes are started, and block it in them: this process handles it.

    A process whose parent ends during its start would print a traceback.
    """
    handler = signal.getsignal(signal.SIGINT)
    main = current_thread() is main_thread()
    if not (hasattr(signal, "pthread_sigmask") and main and callable(handler)):
        yield
        return
    caught: list[int] = []
    # Its start unblocks Ctrl-C, and would otherwise come after the next lines.
    resource_tracker.ensure_running()
    # New processes inherit the blocked signal. Another thread may still receive it: record that.
    signal.signal(signal.SIGINT, lambda number, frame: caught.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        signal.signal(signal.SIGINT, handler)
        if caught:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _without_main() -> Iterator[None]:
    """Keep new processes from importing the user's script.

    Without ``if __name__ == "__main__":`` the script would run again in each of them.
    """
    main = vars(sys.modules["__main__"])
    hidden: dict[str, Any] = {n: main[n] for n in ("__file__", "__spec__") if n in main}
    main.pop("__file__", None)
    main["__spec__"] = None
    try:
        yield
    finally:
        main.update(hidden)


class Processes(InProcess):
    """A pool of processes that share the threads of this process, for all steps of a run.

    Use it as a context manager, which ends the processes. If a worker dies, the unfinished tasks
    run again in a new pool; after the third death the run fails.
    """

    def __init__(self, workers: int) -> None:
        """Use ``workers`` processes, with an equal share of the threads each."""
        self.workers, self.threads = workers, max(1, threads.count() // workers)
        self._pool: ProcessPoolExecutor | None = None

    def __enter__(self) -> "Processes":
        """Return the engine; its processes start with the first task."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        """End the processes; after an error, do not wait for unfinished shards."""
        self._end(kill=kind is not None)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(
                self.workers,
                _context(),
                initializer=_initialize_worker,
                initargs=(self.threads, _settings()),
            )
        return self._pool

    def _end(self, kill: bool = False) -> None:
        """End the pool. Shards of killed workers have temporary names until they are complete."""
        if self._pool is not None:
            pool, self._pool = self._pool, None
            for worker in list(pool._processes.values()) if kill else ():
                worker.kill()
            # If Python 3.11 exits while the pool's thread still runs, it may write to a pipe that
            # this thread closes.
            pool.shutdown(cancel_futures=True)

    def read(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results in any order; few tasks run in this process."""
        listed = list(tasks)
        return super().read(function, listed) if len(listed) <= _FEW else self.run(function, listed)

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results in any order, see :class:`Engine`."""
        remaining = iter(tasks)
        waiting: deque[T] = deque()  # taken from the tasks, but not submitted
        deaths = 0
        while True:
            pending: dict[Future[R], T] = {}
            try:
                while True:
                    free = _TASKS_PER_WORKER * self.workers - len(pending)
                    waiting.extend(islice(remaining, max(0, free - len(waiting))))
                    for _ in range(min(free, len(waiting))):
                        with _uninterrupted(), _without_main():
                            future = self._started().submit(function, waiting[0])
                        pending[future] = waiting.popleft()
                    if not pending:
                        return
                    done, _ = wait(pending, return_when=FIRST_COMPLETED)
                    for future in done:
                        result = future.result()
                        del pending[future]
                        yield result
            except BrokenProcessPool:
                self._end()
                deaths += 1
                if deaths == _MAX_DEATHS:
                    raise InputError(
                        "workers were killed three times, possibly out of memory; run again "
                        "with fewer workers: finished work is kept"
                    ) from None
                waiting.extendleft(pending.values())
            except BaseException:  # of the caller, too; __exit__ ends what is running
                for future in pending:
                    future.cancel()
                raise


def _run_on_worker(function: Callable[[T], R], task: T) -> R:
    from distributed import get_worker

    _set_threads(get_worker().state.nthreads)
    return function(task)


class Cluster:
    """The workers of the Dask scheduler at an address, or of a new local cluster for "local"."""

    def __init__(self, address: str) -> None:
        """Connect to the scheduler at an address such as ``tcp://scheduler:8786``."""
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise InputError("a cluster needs Dask: pip install 'caloric[collection]'") from None
        self.local: Any = None
        if address == LOCAL:
            self.local = LocalCluster(
                n_workers=threads.count(), threads_per_worker=1, dashboard_address=None,
                silence_logs=50,
            )  # fmt: skip
            address = self.local.scheduler_address
        try:
            self.client = Client(address, timeout=20)
        except (OSError, ValueError) as error:
            raise InputError(f"{address}: no scheduler responds ({error})") from None

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """Yield the results in any order, see :class:`Engine`.

        Dask moves the tasks of a lost worker to another one, up to three times.
        """
        from distributed import as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        remaining = iter(tasks)

        def submit(count: int) -> list[Any]:
            return [
                self.client.submit(_run_on_worker, function, task, pure=False)
                for task in islice(remaining, count)
            ]

        try:
            limit, checked = self._task_limit(), time.monotonic()
            first = submit(limit)
            pending, count = as_completed(first), len(first)
            for future in pending:
                result = future.result()
                future.release()
                if time.monotonic() - checked > _REFRESH:  # workers come and go
                    limit, checked = self._task_limit(), time.monotonic()
                new = submit(limit - count + 1)
                count += len(new) - 1
                pending.update(new)
                yield result
        except (FutureCancelledError, CommClosedError):
            # Otherwise the client logs every failed attempt to reconnect.
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            raise InputError(
                "lost the connection to the scheduler; run again: finished work is kept"
            ) from None
        except KilledWorker as error:
            raise InputError(
                f"the same task killed its workers repeatedly ({error}); see their logs and run "
                "again: finished work is kept"
            ) from None

    read = run

    def _task_limit(self) -> int:
        """Return the maximum number of pending tasks; wait until there is at least one worker."""
        try:
            self.client.wait_for_workers(1, timeout=_WORKER_TIMEOUT)
        except TimeoutError:
            raise InputError(
                f"{self.client.scheduler.address}: no workers within {_WORKER_TIMEOUT} s; start "
                "some with `dask worker`"
            ) from None
        return _TASKS_PER_WORKER * int(sum(self.client.nthreads().values()))

    def close(self) -> None:
        """Disconnect from the cluster; a local cluster is shut down."""
        with suppress(Exception):
            self.client.close()
        if self.local is not None:
            self.local.close()


@dataclass(frozen=True)
class Workers:
    """The workers that run the tasks of a step.

    Parameters
    ----------
    count : int
        Number of processes on this machine; 0 for one per core, or up to 16 on a GPU.
    cluster : str or None
        The address of a Dask scheduler, or "local" for a new cluster on this machine.
    device : str
        The device for extraction and matching: see :func:`caloric.extract`; "auto" uses a GPU if
        there is one.
    """

    count: int = 0
    cluster: str | None = None
    device: str = "auto"

    def __post_init__(self) -> None:
        """Raise an error if ``count`` is negative."""
        if self.count < 0:
            raise InputError(f"workers must be a non-negative integer, got {self.count}")

    def resolved(self) -> "Workers":
        """Return the workers with "auto" replaced by a device, and the processes for a GPU.

        Workers of a cluster choose their devices themselves.
        """
        if self.cluster is not None:
            return self
        target = devices.resolve(self.device)
        if target is None:
            return replace(self, device="cpu")
        if target.type == "cpu":
            return self
        count = self.count or min(devices.processes(target), threads.count())
        return replace(self, device=str(target), count=count)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Yield an engine that runs tasks on these workers; end them afterwards."""
        if self.cluster is None:
            with Processes(self.count or threads.count()) as processes:
                yield processes
            return
        engine = Cluster(self.cluster)
        try:
            yield engine
        finally:
            engine.close()
