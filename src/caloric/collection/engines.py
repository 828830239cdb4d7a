"""Who does the work: a pool of processes on this machine, or the workers of a Dask cluster.

Both are given a function and its tasks one by one, and give results back as they come. No more
tasks are under way than workers can hold, so that a million of them are not all in memory.
"""

import logging
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context, parent_process
from threading import Thread
from typing import Any, Protocol, TypeVar

from caloric.errors import InputError
from caloric.runtime import threads

T = TypeVar("T")
R = TypeVar("R")

_EACH = 2  # tasks a worker has, one of them waiting
_TRIES = 3
_PATIENCE = 120  # seconds for the first worker
_AGAIN = 2.0  # seconds between looks at which workers there are
LOCAL = "local"


class Engine(Protocol):
    """What a step needs."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of a function that can be imported, in any order."""

    def read(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The same of a function that hardly does more than read."""


class Here:
    """In this process, one after the other."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """In order."""
        return map(function, tasks)

    def read(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """On the threads of this process."""
        return iter(threads.each(function, tasks))


def _with_threads(count: int) -> None:
    os.environ[threads.SETTING] = str(count)


def _begin(count: int) -> None:
    """In a new worker, which ends when its parent is killed, and does not wait for it forever."""
    _with_threads(count)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent's, who ends the pool
    parent = parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    Thread(target=watch, daemon=True).start()


class Processes(Here):
    """A pool of processes, each with its share of threads.

    A worker that dies takes its task with it; the task is given to another, and after three such
    deaths the run ends.
    """

    def __init__(self, workers: int) -> None:
        """So many workers, which share this process's threads."""
        self.workers, self.threads = workers, max(1, threads.count() // workers)

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See :class:`Engine`."""
        left = iter(tasks)
        again: list[T] = []
        deaths = 0
        while True:
            pool = ProcessPoolExecutor(
                self.workers, get_context("spawn"), initializer=_begin, initargs=(self.threads,)
            )
            under_way: dict[Future[R], T] = {}
            try:
                while True:
                    room = _EACH * self.workers - len(under_way)
                    first, again = again[:room], again[room:]
                    for task in [*first, *islice(left, room - len(first))]:
                        under_way[pool.submit(function, task)] = task
                    if not under_way:
                        return
                    done, _ = wait(under_way, return_when=FIRST_COMPLETED)
                    for future in done:
                        result = future.result()
                        del under_way[future]
                        yield result
            except BrokenProcessPool:
                deaths += 1
                if deaths == _TRIES:
                    raise InputError(
                        "workers were killed three times, for want of memory perhaps; run again "
                        "with fewer workers: what is finished is kept"
                    ) from None
                again = [*under_way.values(), *again]
            finally:
                pool.shutdown(wait=False, cancel_futures=True)


def _on_worker(function: Callable[[T], R], task: T) -> R:
    """With as many threads as the worker was given."""
    from distributed import get_worker

    _with_threads(get_worker().state.nthreads)
    return function(task)


class Cluster:
    """The workers of a Dask scheduler at an address, or of one of our own with "local"."""

    def __init__(self, address: str) -> None:
        """tcp://scheduler:8786, say."""
        try:
            from distributed import Client, LocalCluster
        except ImportError:
            raise InputError("a cluster needs Dask: pip install 'caloric[collection]'") from None
        self.own: Any = None
        if address == LOCAL:
            self.own = LocalCluster(
                n_workers=threads.count(), threads_per_worker=1, dashboard_address=None,
                silence_logs=50,
            )  # fmt: skip
            address = self.own.scheduler_address
        try:
            self.client = Client(address, timeout=20)
        except (OSError, ValueError) as error:
            raise InputError(f"{address}: no scheduler answers there ({error})") from None

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See :class:`Engine`; Dask gives a task whose worker is lost to another three times."""
        from distributed import as_completed
        from distributed.client import FutureCancelledError
        from distributed.comm.core import CommClosedError
        from distributed.scheduler import KilledWorker

        left = iter(tasks)

        def submit(count: int) -> list[Any]:
            return [
                self.client.submit(_on_worker, function, task, pure=False)
                for task in islice(left, count)
            ]

        try:
            room, asked = self._room(), time.monotonic()
            first = submit(room)
            under_way, count = as_completed(first), len(first)
            for future in under_way:
                result = future.result()
                future.release()
                if time.monotonic() - asked > _AGAIN:  # workers come and go
                    room, asked = self._room(), time.monotonic()
                more = submit(room - count + 1)
                count += len(more) - 1
                under_way.update(more)
                yield result
        except (FutureCancelledError, CommClosedError):
            # The client would tell at length that it cannot connect again.
            logging.getLogger("distributed.client").setLevel(logging.CRITICAL)
            raise InputError(
                "the scheduler was lost; run again: what is finished is kept"
            ) from None
        except KilledWorker as error:
            raise InputError(
                f"workers died of the same task again and again ({error}); see their logs and run "
                "again: what is finished is kept"
            ) from None

    read = run

    def _room(self) -> int:
        """How many tasks may be under way: those of the workers there are, of which one must be."""
        try:
            self.client.wait_for_workers(1, timeout=_PATIENCE)
        except TimeoutError:
            raise InputError(
                f"{self.client.scheduler.address}: no workers within {_PATIENCE} s; start some, as "
                "`dask worker` does"
            ) from None
        return _EACH * int(sum(self.client.nthreads().values()))

    def close(self) -> None:
        """Leave the cluster as it is; one of our own ends."""
        with suppress(Exception):
            self.client.close()
        if self.own is not None:
            self.own.close()
