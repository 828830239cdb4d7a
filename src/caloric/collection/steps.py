"""What all steps do with their shards: those that are there stay, the others are made."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from caloric.collection.engines import Engine
from caloric.collection.store import Shards

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
    own.tidy(planned)
