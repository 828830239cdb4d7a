"""Files decoded on threads, ahead of what uses them."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from caloric import threads
from caloric.errors import InputError

T = TypeVar("T")

_AHEAD = 128  # files


def decoded(files: Sequence[str], read: Callable[[str], T]) -> Iterator[tuple[int, T | InputError]]:
    """What is read of each file, or why it cannot be, in order."""

    def safely(file: str) -> T | InputError:
        try:
            return read(file)
        except InputError as error:
            return error
        except MemoryError:
            return InputError(f"{file}: not enough memory")

    with ThreadPoolExecutor(threads.count(), "caloric-files") as pool:
        ahead: deque[Future[T | InputError]] = deque()
        begun = 0
        for index in range(len(files)):
            while begun < len(files) and begun - index < _AHEAD:
                ahead.append(pool.submit(safely, files[begun]))
                begun += 1
            yield index, ahead.popleft().result()
