"""Step two: which pairs of images to match."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, cast, get_args

from caloric.collection import extraction, retrieval
from caloric.collection.engines import Engine
from caloric.collection.steps import Told, untold
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError, unknown

How = Literal["exhaustive", "sequential", "retrieval"]
Pair = tuple[str, str]
COLUMNS = (("name_a", "string"), ("name_b", "string"))


@dataclass(frozen=True)
class Pairing:
    """``exhaustive``: all; ``sequential``: with the next ``overlap`` by name, and every tenth with
    the ``nearest`` of all, to close loops; ``retrieval``: the ``nearest`` by what they show.
    """

    how: How = "exhaustive"
    overlap: int = 10
    nearest: int = 20

    def __post_init__(self) -> None:
        """Say which is wrong."""
        if self.how not in get_args(How):
            raise unknown("pairs", self.how, get_args(How))
        if self.overlap < 1 or self.nearest < 1:
            raise InputError("overlap and nearest must be whole numbers from 1")


def shards(store: Path) -> Shards:
    """One shard with all pairs."""
    return Shards(store / "pairs", COLUMNS)


_LOOPS = 10


def chosen(store: Path) -> Pairing:
    """How pairs were chosen last; all, if they never were."""
    for path in shards(store).all():
        how, overlap, nearest = path.name.split("-")[0].split(".")
        return Pairing(cast(How, how), int(overlap), int(nearest))
    return Pairing()


def pairs(store: Path, pairing: Pairing | None, engine: Engine, told: Told = untold) -> list[Pair]:
    """Of the images with features, each pair once, in the order of their names; kept.

    ``pairing`` None: as last time.
    """
    store = store.absolute()
    pairing = chosen(store) if pairing is None else pairing
    own, files = shards(store), extraction.shards(store).all()
    key = fingerprint(asdict(pairing), [path.name for path in files])
    path = own.path(f"{pairing.how}.{pairing.overlap}.{pairing.nearest}", key)
    if not own.whole(path):
        found = sorted(set(_chosen(store, pairing, engine, told)))
        own.write(path, [{"name_a": a, "name_b": b} for a, b in found])
    own.tidy([path])
    return [(row["name_a"], row["name_b"]) for row in own.read(path)]


def _chosen(store: Path, pairing: Pairing, engine: Engine, told: Told) -> Iterator[Pair]:
    names = sorted(name for name, one in extraction.listed(store).items() if one.count)
    if not names:
        raise InputError(f"{store}: no features in it; extract them first")
    if pairing.how == "exhaustive":
        yield from combinations(names, 2)
        return
    if pairing.how == "sequential":
        for i, name in enumerate(names):
            yield from ((name, other) for other in names[i + 1 : i + 1 + pairing.overlap])
        names = names[::_LOOPS]
    found = retrieval.nearest(store, names, pairing.nearest, engine, told)
    for name, others in found.items():
        yield from ((min(name, other), max(name, other)) for other in others)
