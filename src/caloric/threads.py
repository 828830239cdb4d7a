"""One owner of threads: matrix products run on one thread each, so that results never depend on it.

OpenBLAS sums in another order when it splits a product; on one thread the same input gives the same
bytes on every machine of a kind, whatever its number of cores.
"""

from collections.abc import Callable
from functools import wraps
from threading import Lock
from typing import Any, ParamSpec, TypeVar

from threadpoolctl import ThreadpoolController

P = ParamSpec("P")
R = TypeVar("R")


_lock = Lock()
_inside = 0
_limit: Any = None


def _enter() -> None:
    """The first one in sets the limit, which is the whole process's."""
    global _inside, _limit
    with _lock:
        if _inside == 0:
            _limit = ThreadpoolController().limit(limits=1, user_api="blas")
            _limit.__enter__()
        _inside += 1


def _leave() -> None:
    """The last one out puts back what there was.

    OpenBLAS takes that from the thread that set the limit alone: where calls of several threads
    overlapped, the limit of one thread may stay.
    """
    global _inside, _limit
    with _lock:
        _inside -= 1
        if _inside == 0:
            _limit.__exit__(None, None, None)
            _limit = None


def one_blas_thread(function: Callable[P, R]) -> Callable[P, R]:
    """The function, with its matrix products on one thread each."""

    @wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> R:
        _enter()
        try:
            return function(*args, **kwargs)
        finally:
            _leave()

    return limited
