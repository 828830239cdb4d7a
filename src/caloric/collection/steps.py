"""What all steps do with their shards: those that are there stay, the others are made."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

from caloric.collection.engines import Engine
from caloric.collection.store import Shards

T = TypeVar("T")
R = TypeVar("R")
Told = Callable[[str], None]


def made(
    own: Shards, planned: dict[Path, T], make: Callable[[T], R], engine: Engine
) -> Iterator[R]:
    """The results of those that had to be made; then other plans' shards are removed."""
    missing = (task for path, task in planned.items() if not own.whole(path))
    yield from engine.run(make, missing)
    own.tidy(planned)
