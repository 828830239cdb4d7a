"""Step one: the features of every image, in shards of neighbours by the hash of their names."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.collection import sources
from caloric.collection.engines import Engine
from caloric.collection.sources import Photograph
from caloric.collection.steps import Told, arrived, missing, untold
from caloric.collection.store import Shards, fingerprint
from caloric.descriptor import recipes
from caloric.detector.detection import Options
from caloric.errors import InputError
from caloric.features import Failure, Features
from caloric.frames import Frames
from caloric.plan import Plan

MOST = 32  # images a shard, about
COLUMNS = (
    ("name", "string"), ("content", "string"), ("settings", "string"), ("error", "string"),
    ("height", "int32"), ("width", "int32"), ("count", "int32"), ("dimension", "int32"),
    ("descriptor", "string"), ("recipe", "string"),
    ("frames", "float32s"), ("scores", "float32s"), ("descriptors", "uint8s"),
)  # fmt: skip


@dataclass(frozen=True)
class Settings:
    """How features are made: :func:`caloric.extract`'s options. Descriptors are kept as uint8."""

    descriptor: str = "caloric"
    max_features: int = 8000
    affine: bool = False
    upright: bool = False
    contrast: float = 0.02  # COLMAP's: the strongest are taken anyway

    def plan(self) -> Plan:
        """Checked."""
        options = Options(self.max_features, self.affine, self.upright, contrast=self.contrast)
        recipe = recipes.descriptor(self.descriptor)
        return Plan.of(self.descriptor, recipe, options, dtype="uint8")

    def hash(self) -> str:
        """Of what decides on the features."""
        plan = self.plan()
        return fingerprint(asdict(self), plan.recipe.fingerprint(plan.sizes))


def shards(store: Path) -> Shards:
    """Those of features."""
    return Shards(store / "features", COLUMNS, apart=True)


@dataclass(frozen=True)
class Kept:
    """An image of a store: in which shard, made from what, how many features."""

    path: Path
    key: str
    count: int


def listed(store: Path) -> dict[str, Kept]:
    """The images of a store by name, in the order of its shards."""
    own = shards(store)
    return {
        row["name"]: Kept(path, f"{row['content']} {row['settings']}", row["count"])
        for path in own.all()
        for row in own.read(path, ["name", "content", "settings", "count"])
    }


@dataclass(frozen=True)
class Task:
    """One shard: which images, made how, written where; ``known`` has shards with rows of them."""

    folder: str
    store: str
    path: str
    photographs: tuple[Photograph, ...]
    settings: Settings
    device: str
    known: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """What became of each image: the number of features, or an error; and in which shard."""

    found: dict[str, int | str]
    extracted: int
    path: str


def _row(photograph: Photograph, settings: str, found: Features | Failure) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": photograph.name, "content": photograph.content, "settings": settings,
        "error": found.reason if isinstance(found, Failure) else None,
        "height": 0, "width": 0, "count": 0, "dimension": 0, "descriptor": "", "recipe": "",
        "frames": [], "scores": [], "descriptors": [],
    }  # fmt: skip
    if isinstance(found, Failure):
        return row
    return row | {
        "height": found.image_size[0], "width": found.image_size[1], "count": len(found),
        "dimension": found.descriptors.shape[1], "descriptor": found.descriptor,
        "recipe": found.recipe, "frames": found.frames.maps.astype(np.float32).ravel(),
        "scores": found.scores, "descriptors": np.ravel(found.descriptors),
    }  # fmt: skip


def features_of(row: dict[str, Any]) -> Features:
    """Of a row."""
    count = row["count"]
    frames = Frames(row["frames"].reshape(count, 2, 3), row["scores"])
    values: NDArray[np.uint8] = row["descriptors"].reshape(count, row["dimension"])
    return Features(frames, values, (row["height"], row["width"]), row["descriptor"], row["recipe"])


def make(task: Task) -> Made:
    """A shard, by a worker: rows that are known are copied, the others extracted."""
    own, settings = shards(Path(task.store)), task.settings.hash()
    wanted = {(p.name, p.content): p for p in task.photographs}
    rows: dict[str, dict[str, Any]] = {}
    for path in task.known:
        try:
            for row in own.read(Path(path)):
                if (row["name"], row["content"]) in wanted and row["settings"] == settings:
                    rows[row["name"]] = row
        except InputError:  # another run has tidied it away
            continue
    new = [p for p in task.photographs if p.name not in rows]
    found: dict[str, int | str] = {}

    def images() -> Iterable[tuple[Any, Any]]:
        for photograph in new:
            try:
                yield sources.pixels(task.folder, photograph), None
            except InputError as error:
                if isinstance(error, sources.UnreadableError):
                    found[photograph.name] = str(error)
                yield Failure(str(error)), None

    plan = task.settings.plan()
    for index, one in pipeline.extract_each(images(), plan, task.device, 10**9):
        rows[new[index].name] = _row(new[index], settings, one)
    # What could not be read this time is tried again next time: it is not in the shard, whose name
    # then is of the others.
    there = [p for p in task.photographs if p.name not in found]
    target = Path(task.path)
    if found:
        target = own.path(target.name.split("-")[0], _key(settings, there))
    if there:
        own.write(target, [rows[p.name] for p in there])
    found |= {p.name: rows[p.name]["error"] or int(rows[p.name]["count"]) for p in there}
    return Made(found, len(new), str(target) if there else "")


@dataclass(frozen=True)
class Summary:
    """``found`` has the number of features of each image, or why there are none."""

    found: dict[str, int | str]
    shards: int
    made: int
    extracted: int

    @property
    def skipped(self) -> dict[str, str]:
        """Images without features, and why."""
        return {name: one for name, one in self.found.items() if isinstance(one, str)}


def planned(
    own: Shards, photographs: list[Photograph], settings: str
) -> dict[Path, list[Photograph]]:
    """Which images go into which shard."""
    return {
        own.path(f"{number:06x}", _key(settings, group)): group
        for number, group in sources.in_buckets(photographs, MOST)
    }


def _key(settings: str, group: list[Photograph]) -> str:
    return fingerprint(settings, [(p.name, p.content) for p in group])


def extract(
    folder: str,
    store: Path,
    settings: Settings,
    engine: Engine,
    *,
    device: str = "cpu",
    told: Told = untold,
) -> Summary:
    """The features of all images of a folder: what is missing or has changed.

    An image that cannot be read keeps the features it had.
    """
    folder, store = sources.absolute(folder), store.absolute()
    own, key = shards(store), settings.hash()
    found: dict[str, int | str] = {}
    photographs = []
    for hashed in engine.read(sources.hashed, sources.blocks(folder)):
        for name, one in hashed.items():
            if isinstance(one, InputError):
                found[name] = str(one)
            else:
                photographs.append(one)
    lost = dict(found)
    if lost:
        photographs += [p for p in _known(own, set(), key) if p.name in lost]
    groups = planned(own, photographs, key)
    left = missing(own, groups)
    known = _known(own, set(groups), key) if left else {}
    tasks = [
        Task(
            folder, str(store), str(path), tuple(group), settings, device,
            tuple(sorted({known[p] for p in group if p in known})),
        )
        for path, group in left.items()
    ]  # fmt: skip
    total, done = sum(map(len, left.values())), 0
    extracted = 0
    written = set()
    for shard in engine.run(make, tasks):
        found |= shard.found
        extracted += shard.extracted
        written |= {Path(shard.path)} if shard.path else set()
        done += len(shard.found)
        told("images", done, total)
    arrived(written)
    kept = groups.keys() - left.keys()
    own.tidy(kept | written)
    for path in kept:
        for row in own.read(path, ["name", "error", "count"]):
            found[row["name"]] = row["error"] or row["count"]
    before = {p.name for p in photographs}
    for name, why in lost.items():
        found[name] = f"{why}; its features of before are kept" if name in before else why
    return Summary(dict(sorted(found.items())), len(groups), len(left), extracted)


def _known(own: Shards, planned: set[Path], settings: str) -> dict[Photograph, str]:
    """In which shards of other plans there are rows that can be used again."""
    known = {}
    for path in own.all():
        if path in planned:
            continue
        try:
            for row in own.read(path, ["name", "content", "settings"]):
                if row["settings"] == settings:
                    known[Photograph(row["name"], row["content"])] = str(path)
        except InputError:
            continue
    return known
