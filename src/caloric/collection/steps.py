"""What all steps do with their shards: keep complete ones and make the missing ones."""

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import TypeVar

from caloric.collection.engines import Engine
from caloric.collection.store import Shards
from caloric.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[str, int, int], None]  # what is counted, done, total


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore a report of progress."""


def missing(shards: Shards, planned: dict[Path, T]) -> dict[Path, T]:
    """Return the planned shards that do not exist or are not complete."""
    return {path: task for path, task in planned.items() if not shards.is_complete(path)}


def run_missing(
    shards: Shards,
    planned: Iterable[Path],
    tasks: dict[Path, T],
    make: Callable[[T], R],
    engine: Engine,
) -> Iterator[R]:
    """Yield the results of the missing ``tasks`` of a plan, then remove shards of other plans."""
    yield from engine.run(make, tasks.values())
    check_written(tasks)
    shards.tidy(planned)


def check_written(paths: Iterable[Path]) -> None:
    """Raise an error if a shard that a worker wrote is not visible here."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: a worker wrote it, but it is not visible here; put the "
                             "store on a disk that all workers share")  # fmt: skip
