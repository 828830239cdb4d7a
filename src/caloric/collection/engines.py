"""Who does the work: a pool of processes on this machine, or the workers of a Dask cluster.

Both are given a function and its tasks one by one, and give results back as they come. No more
tasks are under way than workers can hold, so that a million of them are not all in memory.
"""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from itertools import islice
from multiprocessing import get_context
from typing import Any, Protocol, TypeVar

from caloric.errors import InputError

T = TypeVar("T")
R = TypeVar("R")

_EACH = 2  # tasks a worker has, one of them waiting
_TRIES = 3


class Engine(Protocol):
    """What a step needs."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """The results of a function that can be imported, in any order."""


class Here:
    """In this process, one after the other."""

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """In order."""
        return map(function, tasks)


def _begin(threads: int) -> None:
    os.environ["CALORIC_THREADS"] = str(threads)


class Processes:
    """A pool of processes, each with its share of threads.

    A worker that dies takes its task with it; the task is given to another, and after three such
    deaths the run ends.
    """

    def __init__(self, workers: int, threads: int = 1) -> None:
        """So many workers of so many threads each."""
        self.workers, self.threads = workers, threads

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

    _begin(get_worker().state.nthreads)
    return function(task)


class Cluster:
    """The workers of a Dask scheduler at an address."""

    def __init__(self, address: str) -> None:
        """tcp://scheduler:8786, say."""
        try:
            from distributed import Client
        except ImportError:
            raise InputError("a cluster needs Dask: pip install 'caloric[collection]'") from None
        try:
            self.client = Client(address, timeout=20)
        except OSError as error:
            raise InputError(f"{address}: no scheduler answers there ({error})") from None

    def run(self, function: Callable[[T], R], tasks: Iterable[T]) -> Iterator[R]:
        """See :class:`Engine`; a task whose worker is lost is given to another three times."""
        from distributed import as_completed

        left = iter(tasks)

        def submit(count: int) -> list[Any]:
            return [
                self.client.submit(_on_worker, function, task, pure=False, retries=_TRIES)
                for task in islice(left, count)
            ]

        workers = max(1, sum(self.client.nthreads().values()))
        under_way = as_completed(submit(_EACH * workers))
        for future in under_way:
            result = future.result()
            future.release()
            for more in submit(1):
                under_way.add(more)
            yield result

    def close(self) -> None:
        """Leave the cluster as it is."""
        with suppress(Exception):
            self.client.close()
