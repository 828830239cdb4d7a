"""The handling of shards in all steps: keep complete shards and write the missing ones."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from caloric.collection.engines import Engine
from caloric.collection.store import Shards
from caloric.errors import InputError

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[str, int, int], None]  # what is counted, done, total


def no_progress(what: str, done: int, total: int) -> None:
    """Ignore progress."""


def missing(shards: Shards, planned: dict[Path, T]) -> dict[Path, T]:
    """Return the planned shards that do not exist or are incomplete."""
    return {path: task for path, task in planned.items() if not shards.is_complete(path)}


def run_missing(
    shards: Shards,
    planned: Iterable[Path],
    tasks: dict[Path, T],
    make: Callable[[T], R],
    engine: Engine,
) -> Iterator[R]:
    """Run the missing ``tasks`` of a plan and yield their results; then remove unplanned shards."""
    yield from engine.run(make, tasks.values())
    check_written(tasks)
    shards.tidy(planned)


def check_written(paths: Iterable[Path]) -> None:
    """Raise an error if a shard that a worker wrote is not visible to this process."""
    for path in paths:
        if not path.exists():
            raise InputError(f"{path}: written by a worker, but not visible here; put the store "
                             "on a disk that all workers share")  # fmt: skip


# Steps whose rows are pairs of images.


@dataclass(frozen=True, kw_only=True)
class PairTask(ABC):
    """A shard of pairs to write.

    ``keys`` are hashes of the input of each row; ``known`` are older shards that contain some of
    these rows.
    """

    store: str
    path: str
    keys: tuple[str, ...]
    known: tuple[str, ...] = ()

    @property
    @abstractmethod
    def pairs(self) -> list[tuple[str, str]]:
        """Return the pairs in the order of their rows."""

    @property
    def keyed(self) -> dict[tuple[str, str], str]:
        """Return the hash of the input of each pair."""
        return dict(zip(self.pairs, self.keys, strict=True))


P = TypeVar("P", bound=PairTask)


def reused(stored: Shards, task: PairTask) -> dict[tuple[str, str], dict[str, Any]]:
    """Return by pair the rows of known shards whose input is unchanged."""
    keys = task.keyed
    rows = {}
    for path in task.known:
        try:
            for row in stored.read(Path(path)):
                pair = (row["name_a"], row["name_b"])
                if keys.get(pair) == row["made_from"]:
                    rows[pair] = row
        except InputError:  # a damaged shard, which read has removed
            continue
    return rows


def _with_known(stored: Shards, planned: dict[Path, P], tasks: dict[Path, P]) -> dict[Path, P]:
    """Return the tasks with the unplanned shards that contain reusable rows."""
    known: dict[str, str] = {}
    for path in stored.all() if tasks else ():
        if path not in planned:
            with suppress(InputError):
                known |= {row["made_from"]: str(path) for row in stored.read(path, ["made_from"])}
    return {
        path: replace(task, known=tuple(sorted({known[k] for k in task.keys if k in known})))
        for path, task in tasks.items()
    }


def run_pairs(
    stored: Shards,
    planned: dict[Path, P],
    make: Callable[[P], int],
    engine: Engine,
    what: str,
    progress: Progress,
) -> int:
    """Write the missing shards; return the number of newly computed pairs."""
    tasks = _with_known(stored, planned, missing(stored, planned))
    total, new = sum(len(task.keys) for task in tasks.values()), 0
    if tasks:
        progress(what, 0, total)
    for number, count in enumerate(run_missing(stored, planned, tasks, make, engine), 1):
        new += count
        progress(what, round(total * number / len(tasks)), total)
    return new


def retry_errors(stored: Shards, planned: Iterable[Path]) -> None:
    """Rename shards with unreadable images, so that they are written again.

    Under another name their rows are reused.
    """
    for path in planned:
        if stored.is_complete(path) and any(r["error"] for r in stored.read(path, ["error"])):
            path.rename(path.with_name(f"again.{path.name}"))
