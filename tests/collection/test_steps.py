"""Shards of a step: complete ones are kept, missing ones written, and unchanged rows reused."""

from dataclasses import dataclass

import pytest

import caloric
from caloric.collection import engines, steps
from caloric.collection.steps import PairTask
from caloric.collection.store import Shards, fingerprint

pytest.importorskip("pyarrow")
COLUMNS = (("name_a", "string"), ("name_b", "string"), ("made_from", "string"))


@dataclass(frozen=True, kw_only=True)
class Task(PairTask):
    chosen: tuple[tuple[str, str], ...]

    @property
    def pairs(self):
        return list(self.chosen)


def planned(stored, groups):
    tasks = {}
    for number, pairs in enumerate(groups):
        keys = tuple(fingerprint(pair) for pair in pairs)
        path = stored.path(f"{number}", fingerprint(keys))
        tasks[path] = Task(store="", path=str(path), keys=keys, chosen=tuple(pairs))
    return tasks


@pytest.fixture
def stored(tmp_path):
    return Shards(tmp_path / "shards", COLUMNS)


@pytest.fixture
def make(stored):
    def make(task):
        rows = steps.reused(stored, task)
        new = set(task.pairs) - rows.keys()
        for a, b in new:
            rows[a, b] = {"name_a": a, "name_b": b, "made_from": task.keyed[a, b]}
        stored.write(stored.directory / task.path.split("/")[-1], [rows[p] for p in task.pairs])
        return len(new)

    return make


def run(stored, groups, make, progress=steps.no_progress):
    tasks = planned(stored, groups)
    return steps.run_pairs(stored, tasks, make, engines.InProcess(), "pairs", progress)


def test_unchanged_rows_are_reused_and_other_shards_removed(stored, make):
    first = [[("a", "b"), ("a", "c")], [("b", "c")]]
    counts = []
    assert run(stored, first, make, lambda *line: counts.append(line)) == 3
    assert counts == [("pairs", 0, 3), ("pairs", 2, 3), ("pairs", 3, 3)]
    assert run(stored, first, None) == 0  # nothing is written
    before = stored.all()
    assert run(stored, [[("a", "b"), ("a", "d")], [("b", "c")]], make) == 1
    assert len(stored.all()) == 2
    assert len(set(stored.all()) & set(before)) == 1


def test_a_shard_that_is_not_on_a_shared_disk_is_an_error(stored):
    with pytest.raises(caloric.InputError, match="a disk that all workers share"):
        run(stored, [[("a", "b")]], lambda task: 1)


def test_a_damaged_shard_is_written_again(stored, make):
    run(stored, [[("a", "b")]], make)
    (path,) = stored.all()
    path.write_bytes(b"nothing")
    assert run(stored, [[("a", "b"), ("a", "c")]], make) == 2
