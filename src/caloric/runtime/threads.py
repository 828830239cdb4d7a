"""One owner of threads: work is cut into blocks, and no result depends on how many there are.

``CALORIC_THREADS`` says how many a process may use; without it, as many as it has cores. A matrix
product runs on one thread: OpenBLAS sums in another order when it splits one, and the same input
must give the same bytes for any number of threads. OpenCV's own threads rest while we work.
"""

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache, wraps
from threading import Lock, local
from typing import Any, ParamSpec, TypeVar

import cv2
from threadpoolctl import ThreadpoolController

from caloric.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SETTING = "CALORIC_THREADS"


def count() -> int:
    """How many threads a call may use: the setting, or the cores this process may run on."""
    text = os.environ.get(SETTING)
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise InputError(f"{SETTING} must be a whole number from 1, got {text!r}")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # The caller's thread works too.
    return ThreadPoolExecutor(threads - 1, "caloric")


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork

_here = local()


def strips(rows: int, height: int = 64) -> list[range]:
    """0 to ``rows`` in strips of a height."""
    return [range(top, min(top + height, rows)) for top in range(0, rows, height)]


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """``[function(item) for item in items]``, on several threads; within one of them, on that."""
    work = list(items)
    helpers = min(count(), len(work)) - 1
    if helpers < 1 or getattr(_here, "working", False):
        return [function(item) for item in work]
    results: list[Any] = [None] * len(work)
    left = deque(range(len(work)))  # taking from it is atomic

    def take() -> None:
        _here.working = True
        try:
            while left:
                try:
                    i = left.popleft()
                except IndexError:  # another thread was faster
                    return
                results[i] = function(work[i])
        except BaseException:
            left.clear()
            raise
        finally:
            _here.working = False

    pool = _pool(count())
    futures = [pool.submit(take) for _ in range(helpers)]
    try:
        take()
    finally:
        running = [future for future in futures if not future.cancel()]
        wait(running)
    for future in running:
        future.result()
    return results


_lock = Lock()
_inside = 0
_before: tuple[Any, int] | None = None


@cache
def _libraries() -> Any:
    return ThreadpoolController()


def _enter() -> None:
    """The first one in sets the limits, which are the whole process's."""
    global _inside, _before
    with _lock:
        if _inside == 0:
            limit = _libraries().limit(limits=1, user_api="blas")
            limit.__enter__()
            _before = limit, cv2.getNumThreads()
            cv2.setNumThreads(1)
        _inside += 1


def _leave() -> None:
    """The last one out puts back what there was.

    OpenBLAS takes that from the thread that set the limit alone: where calls of several threads
    overlapped, the limit of one thread may stay.
    """
    global _inside, _before
    with _lock:
        _inside -= 1
        if _inside == 0 and _before is not None:
            limit, threads = _before
            limit.__exit__(None, None, None)
            cv2.setNumThreads(threads)
            _before = None


def single_threaded_blas(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with the threads of OpenCV and of matrix products as above."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return limited
