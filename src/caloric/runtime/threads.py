"""Thread pool. Results are bit-identical for any number of threads.

``CALORIC_THREADS`` sets the number of threads; the default is the number of cores. BLAS and OpenCV
run on one thread, because OpenBLAS changes the order of summation when it splits a product.
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
from caloric.runtime import progress

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

SETTING = "CALORIC_THREADS"


def count() -> int:
    """Return the number of threads: the setting, or the cores available to this process."""
    text = os.environ.get(SETTING)
    if text:
        if not text.isdecimal() or int(text) < 1:
            raise InputError(f"{SETTING} must be a positive integer, got {text!r}")
        return int(text)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _pool(threads: int) -> ThreadPoolExecutor:
    # One fewer, because the calling thread works too.
    return ThreadPoolExecutor(threads - 1, "caloric")


_HELPERS = 3  # threads of :func:`begin`; PyTorch keeps memory on a device for each of them


@cache
def _helpers(threads: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(min(_HELPERS, threads - 1), "caloric-helper")


if hasattr(os, "register_at_fork"):  # threads do not survive a fork
    os.register_at_fork(after_in_child=_pool.cache_clear)
    os.register_at_fork(after_in_child=_helpers.cache_clear)

_thread = local()


def strips(rows: int, height: int = 64) -> list[range]:
    """Return ranges of up to ``height`` rows that cover 0 to ``rows``."""
    return [range(top, min(top + height, rows)) for top in range(0, rows, height)]


def usable() -> int:
    """Return the number of threads that the caller may start: 1 in a call of :func:`each`."""
    return 1 if getattr(_thread, "working", False) else count()


def each(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return ``[function(item) for item in items]``, computed on several threads.

    Nested calls run on the calling thread. A computation can be cancelled before each item.
    """
    work = list(items)
    helpers = min(usable(), len(work)) - 1

    def result(item: T) -> R:
        progress.check()
        return function(item)

    if helpers < 1:
        return [result(item) for item in work]
    results: list[Any] = [None] * len(work)
    pending = deque(range(len(work)))  # popleft is atomic

    def run_pending() -> None:
        _thread.working = True
        try:
            while pending:
                try:
                    i = pending.popleft()
                except IndexError:  # another thread took the last one
                    return
                results[i] = result(work[i])
        except BaseException:
            pending.clear()
            raise
        finally:
            _thread.working = False

    pool = _pool(count())
    helper = progress.inherited(run_pending)
    futures = [pool.submit(helper) for _ in range(helpers)]
    try:
        run_pending()
    finally:
        running = [future for future in futures if not future.cancel()]
        wait(running)
    for future in running:
        future.result()
    return results


def begin(function: Callable[[], R]) -> Callable[[], R]:
    """Start a computation on another thread; call the result, any number of times, to wait for it.

    If the caller may not start threads, the first of these calls computes it.
    """
    if usable() < 2 or getattr(_thread, "helping", False):
        return cache(function)

    def run() -> R:
        _thread.helping = True  # a helper that waits for another helper could deadlock
        return function()

    return _helpers(count()).submit(progress.inherited(run)).result


_lock = Lock()
_running = 0  # overlapping calls of single_threaded_blas
_before: tuple[Any, int] | None = None


@cache
def libraries() -> Any:
    """Return the libraries that have their own threads; finding them takes some time."""
    return ThreadpoolController()


def _enter() -> None:
    """Set the limits, which are process-wide, in the first of overlapping calls."""
    global _running, _before
    with _lock:
        if _running == 0:
            limit = libraries().limit(limits=1, user_api="blas")
            limit.__enter__()
            _before = limit, cv2.getNumThreads()
            cv2.setNumThreads(1)
        _running += 1


def _leave() -> None:
    """Restore the limits after the last of overlapping calls.

    OpenBLAS accepts this only from the thread that set the limit, so after overlapping calls from
    several threads OpenBLAS may stay limited to one thread.
    """
    global _running, _before
    with _lock:
        _running -= 1
        if _running == 0 and _before is not None:
            limit, threads = _before
            limit.__exit__(None, None, None)
            cv2.setNumThreads(threads)
            _before = None


def single_threaded_blas(function: Callable[P, R]) -> Callable[P, R]:
    """Decorate a function so that BLAS and OpenCV run on one thread while it is called."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return limited
