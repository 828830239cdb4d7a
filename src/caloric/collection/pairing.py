"""Select the image pairs to match."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Literal, cast, get_args

from caloric.collection import extraction, metadata, positions, retrieval
from caloric.collection.engines import Engine
from caloric.collection.steps import Progress, no_progress
from caloric.collection.store import Shards, fingerprint
from caloric.errors import InputError, unknown
from caloric.runtime.words import counted

How = Literal["auto", "exhaustive", "sequential", "retrieval"]
Pair = tuple[str, str]
COLUMNS = (("name_a", "string"), ("name_b", "string"))


@dataclass(frozen=True)
class Pairing:
    """How pairs are selected.

    Parameters
    ----------
    how : "auto", "exhaustive", "sequential" or "retrieval"
        "exhaustive": all pairs. "sequential": each image with the following ones in the order of
        names, and every tenth image also by retrieval, to close loops. "retrieval": each image with
        the most similar ones, and with those nearest to its GPS position. "auto": all pairs of up
        to 100 images, and retrieval for more.
    overlap : int
        Sequential pairs: the number of following images.
    nearest : int
        Retrieval: the number of most similar images, and of nearest ones.
    """

    how: How = "auto"
    overlap: int = 10
    nearest: int = 20

    def __post_init__(self) -> None:
        """Raise an error if an option is invalid."""
        if self.how not in get_args(How):
            raise unknown("pairs", self.how, get_args(How))
        if self.overlap < 1 or self.nearest < 1:
            raise InputError("overlap and nearest must be positive integers")


@dataclass(frozen=True)
class PairingResult:
    """The selected pairs of image names, sorted."""

    pairs: tuple[Pair, ...]

    def __str__(self) -> str:
        """Return a summary in one line."""
        return counted(len(self.pairs), "pair")


def shards(store: Path) -> Shards:
    """Return the pair shards of a store; a single shard contains all pairs."""
    return Shards(store / "pairs", COLUMNS)


_EXHAUSTIVE = 100  # auto: maximum number of images of which all pairs are matched
_LOOP_STEP = 10  # sequential: every tenth image is also paired by retrieval


def last_pairing(store: Path) -> Pairing:
    """Return the options of the last selection, or the defaults if there was none."""
    for path in shards(store).all():
        how, overlap, nearest = path.name.split("-")[0].split(".")
        return Pairing(cast(How, how), int(overlap), int(nearest))
    return Pairing()


def pairs(
    store: Path, pairing: Pairing | None, engine: Engine, progress: Progress = no_progress
) -> list[Pair]:
    """Select image pairs and write them to the store; return them sorted by name, each once.

    ``pairing`` None repeats the last selection.
    """
    store = store.absolute()
    pairing = last_pairing(store) if pairing is None else pairing
    stored, files = shards(store), extraction.shards(store).all()
    known = [*files, *metadata.shards(store).all()]
    key = fingerprint(asdict(pairing), [path.name for path in known])
    path = stored.path(f"{pairing.how}.{pairing.overlap}.{pairing.nearest}", key)
    if not stored.is_complete(path):
        selected = sorted(set(_selected(store, pairing, engine, progress)))
        stored.write(path, [{"name_a": a, "name_b": b} for a, b in selected])
    stored.tidy([path])
    return [(row["name_a"], row["name_b"]) for row in stored.read(path)]


def _selected(store: Path, pairing: Pairing, engine: Engine, progress: Progress) -> Iterator[Pair]:
    names = sorted(name for name, image in extraction.stored_images(store).items() if image.count)
    if not names:
        raise InputError(f"{store}: contains no features; extract them first")
    if pairing.how == "exhaustive" or (pairing.how == "auto" and len(names) <= _EXHAUSTIVE):
        yield from combinations(names, 2)
        return
    if pairing.how == "sequential":
        for i, name in enumerate(names):
            yield from ((name, other) for other in names[i + 1 : i + 1 + pairing.overlap])
        names = names[::_LOOP_STEP]
    similar = retrieval.nearest(store, names, pairing.nearest, engine, progress)
    near = positions.nearest(metadata.read(store), names, pairing.nearest)
    for name, others in [*similar.items(), *near.items()]:
        yield from ((min(name, other), max(name, other)) for other in others)
