"""What all steps do with their shards: those that are there stay, the others are made."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from caloric.collection.engines import Engine
from caloric.collection.store import Shards
from caloric.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[str, int, int], None]  # of what, how many so far, of how many


def untold(what: str, done: int, total: int) -> None:
    """Nobody listens."""


def missing(own: Shards, planned: dict[Path, T]) -> dict[Path, T]:
    """Those that are not there, or not whole."""
    return {path: task for path, task in planned.items() if not own.whole(path)}


def made(
    own: Shards,
    planned: Iterable[Path],
    left: dict[Path, T],
    make: Callable[[T], R],
    engine: Engine,
) -> Iterator[R]:
    """The results of what is ``left`` of a plan; then other plans' shards are removed."""
    yield from engine.run(make, left.values())
    arrived(left)
    own.tidy(planned)


def arrived(shards: Iterable[Path]) -> None:
    """That what workers wrote is where it is looked for."""
    for path in shards:
        if not path.exists():
            raise InputError(f"{path}: a worker wrote it, and it is not here; the store must be "
                             "where all workers see it")  # fmt: skip
