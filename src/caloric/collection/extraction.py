"""Step one: extract the features of every image, in shards by the hash of the image names."""

from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.collection import sources
from caloric.collection.engines import Engine
from caloric.collection.sources import Photograph
from caloric.collection.steps import Progress, check_written, missing, no_progress
from caloric.collection.store import Shards, fingerprint
from caloric.detector.options import VERSION, DetectOptions
from caloric.errors import Failure, InputError
from caloric.extraction import dispatch
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import loading
from caloric.interop.conversion import in_file_axes
from caloric.options import ExtractOptions

MOST = 32  # images per shard, about
_VERSION = 2  # of what a row means: since 2, frames are in the axes of the file, as COLMAP's are
COLUMNS = (
    ("name", "string"), ("content", "string"), ("settings", "string"), ("error", "string"),
    ("height", "int32"), ("width", "int32"), ("count", "int32"), ("dimension", "int32"),
    ("descriptor", "string"), ("recipe", "string"), ("encoding", "string"),
    ("frames", "float32s"), ("scores", "float32s"), ("descriptors", "uint8s"),
)  # fmt: skip


# Options that are always hashed. Others only if they are not at their defaults, so that stores of
# versions without them stay valid.
_HASHED = ("max_features", "affine", "upright", "contrast")


def stored_as_bytes(options: ExtractOptions) -> ExtractOptions:
    """Return the options for a store, which has descriptors as bytes and no simulated views."""
    if options.views is not None:
        raise InputError("collections have no simulated views: leave out views")
    return replace(options, dtype="uint8")


def settings_hash(options: ExtractOptions) -> str:
    """Return a hash of everything that the features depend on besides the image."""
    settings: dict[str, Any] = {"descriptor": options.name}
    for field in fields(DetectOptions):
        value = getattr(options, field.name)
        if field.name in _HASHED or value != field.default:
            settings[field.name] = value
    return fingerprint(settings, _VERSION, VERSION, options.fingerprint)


def shards(store: Path) -> Shards:
    """Return the shards of features."""
    return Shards(store / "features", COLUMNS, single_rows=True)


@dataclass(frozen=True)
class Kept:
    """An image of a store: its shard, a hash of content and settings, its number of features."""

    path: Path
    key: str
    count: int


def listed(store: Path) -> dict[str, Kept]:
    """Return the images of a store by name, in the order of its shards."""
    stored = shards(store)
    return {
        row["name"]: Kept(path, f"{row['content']} {row['settings']}", row["count"])
        for path in stored.all()
        for row in stored.read(path, ["name", "content", "settings", "count"])
    }


@dataclass(frozen=True)
class Task:
    """One shard to make: its images, options and path, and older shards with ``known`` rows."""

    directory: str
    store: str
    path: str
    photographs: tuple[Photograph, ...]
    options: ExtractOptions
    device: str
    known: tuple[str, ...]


@dataclass(frozen=True)
class Made:
    """The result of a task.

    ``found`` has the number of features of each image, or why there are none.
    """

    found: dict[str, int | str]
    extracted: int
    path: str


def _row(photograph: Photograph, settings: str, result: Features | Failure) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": photograph.name, "content": photograph.content, "settings": settings,
        "error": result.reason if isinstance(result, Failure) else None,
        "height": 0, "width": 0, "count": 0, "dimension": 0, "descriptor": "", "recipe": "",
        "encoding": "", "frames": [], "scores": [], "descriptors": [],
    }  # fmt: skip
    if isinstance(result, Failure):
        return row
    return row | {
        "height": result.image_size[0], "width": result.image_size[1], "count": len(result),
        "dimension": result.descriptors.shape[1], "descriptor": result.descriptor,
        "recipe": result.recipe, "encoding": result.encoding,
        "frames": result.frames.maps.astype(np.float32).ravel(),
        "scores": result.scores, "descriptors": np.ravel(result.descriptors),
    }  # fmt: skip


def features_of(row: dict[str, Any]) -> Features:
    """Return the features that a row holds."""
    count = row["count"]
    frames = Frames(row["frames"].reshape(count, 2, 3), row["scores"])
    values: NDArray[np.uint8] = row["descriptors"].reshape(count, row["dimension"])
    size, names = (row["height"], row["width"]), (row["descriptor"], row["recipe"])
    encoding: Any = row.get("encoding")  # None in shards of earlier versions: see Features
    return Features(frames, values, size, *names, encoding=encoding)


def make(task: Task) -> Made:
    """Write one shard, on a worker: known rows are copied, the others extracted."""
    stored, settings = shards(Path(task.store)), settings_hash(task.options)
    wanted = {(p.name, p.content): p for p in task.photographs}
    rows: dict[str, dict[str, Any]] = {}
    for path in task.known:
        try:
            for row in stored.read(Path(path)):
                if (row["name"], row["content"]) in wanted and row["settings"] == settings:
                    rows[row["name"]] = row
                    if "encoding" not in row:  # a shard of an earlier version
                        row["encoding"] = "" if row["error"] else features_of(row).encoding
        except InputError:  # another run has removed it
            continue
    new = [p for p in task.photographs if p.name not in rows]
    outcomes: dict[str, int | str] = {}
    orientations: dict[str, int] = {}

    def read(photograph: Photograph) -> NDArray[np.generic]:
        try:
            pixels, orientations[photograph.name] = sources.pixels(task.directory, photograph)
        except (sources.UnreadableError, MemoryError) as error:
            outcomes[photograph.name] = str(error) or f"{photograph.name}: not enough memory"
            raise
        return pixels

    # A device works on many images while others are decoded; a CPU needs its threads itself.
    ahead = 2 if devices.resolve(task.device) is None else MOST
    images = ((pixels, None) for pixels in loading.read_ahead(new, read, ahead))
    for index, result in dispatch.extract_each(images, task.options, task.device, 10**9):
        name = new[index].name
        if isinstance(result, Features):
            result = in_file_axes(result, orientations[name])
        rows[name] = _row(new[index], settings, result)
    # Images that could not be read are left out of the shard and of its name: the next run tries
    # them again.
    readable = [p for p in task.photographs if p.name not in outcomes]
    target = Path(task.path)
    if outcomes:
        target = stored.path(target.name.split("-")[0], _key(settings, readable))
    if readable:
        stored.write(target, [rows[p.name] for p in readable])
    outcomes |= {p.name: rows[p.name]["error"] or int(rows[p.name]["count"]) for p in readable}
    return Made(outcomes, len(new), str(target) if readable else "")


@dataclass(frozen=True)
class ExtractionResult:
    """The result of the step.

    ``found`` has the number of features of each image, or why there are none; ``extracted`` is the
    number of images that are new or have changed, ``made`` that of the ``shards`` written for them.
    """

    found: dict[str, int | str]
    shards: int
    made: int
    extracted: int

    def __str__(self) -> str:
        """Return a summary in one line."""
        used = len(self.found) - len(self.skipped)
        return (
            f"{used} of {len(self.found)} images, {self.features:,} features; {self.extracted} "
            f"new, {self.made} of {self.shards} shards made"
        )

    @property
    def features(self) -> int:
        """Return the number of features of all images."""
        return sum(count for count in self.found.values() if isinstance(count, int))

    @property
    def skipped(self) -> dict[str, str]:
        """Return the images without features, with the reason."""
        return {name: outcome for name, outcome in self.found.items() if isinstance(outcome, str)}


def planned(
    stored: Shards, photographs: list[Photograph], settings: str
) -> dict[Path, list[Photograph]]:
    """Return the images of each shard, by the path of the shard."""
    return {
        stored.path(f"{number:06x}", _key(settings, group)): group
        for number, group in sources.in_buckets(photographs, MOST)
    }


def _key(settings: str, group: list[Photograph]) -> str:
    return fingerprint(settings, [(p.name, p.content) for p in group])


def extract(
    directory: str,
    store: Path,
    options: ExtractOptions,
    engine: Engine,
    *,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> ExtractionResult:
    """Extract the features of all images of a directory that are new or have changed.

    An image that cannot be read keeps its previous features.
    """
    directory, store = sources.absolute(directory), store.absolute()
    options = stored_as_bytes(options)
    stored, key = shards(store), settings_hash(options)
    outcomes: dict[str, int | str] = {}
    photographs = []
    for block in engine.read(sources.hashed, sources.blocks(directory)):
        for name, result in block.items():
            if isinstance(result, InputError):
                outcomes[name] = str(result)
            else:
                photographs.append(result)
    unreadable = dict(outcomes)
    if unreadable:
        photographs += [p for p in _known(stored, set(), key) if p.name in unreadable]
    groups = planned(stored, photographs, key)
    to_make = missing(stored, groups)
    known = _known(stored, set(groups), key) if to_make else {}
    tasks = [
        Task(
            directory, str(store), str(path), tuple(group), options, device,
            tuple(sorted({known[p] for p in group if p in known})),
        )
        for path, group in to_make.items()
    ]  # fmt: skip
    total, done = sum(map(len, to_make.values())), 0
    extracted = 0
    written = set()
    for shard in engine.run(make, tasks):
        outcomes |= shard.found
        extracted += shard.extracted
        written |= {Path(shard.path)} if shard.path else set()
        done += len(shard.found)
        progress("images", done, total)
    check_written(written)
    kept = groups.keys() - to_make.keys()
    stored.tidy(kept | written)
    for path in kept:
        for row in stored.read(path, ["name", "error", "count"]):
            outcomes[row["name"]] = row["error"] or row["count"]
    before = {p.name for p in photographs}
    for name, why in unreadable.items():
        outcomes[name] = f"{why}; its previous features are kept" if name in before else why
    found = dict(sorted(outcomes.items()))
    return ExtractionResult(found, len(groups), len(to_make), extracted)


def _known(stored: Shards, planned: set[Path], settings: str) -> dict[Photograph, str]:
    """Return the shards of other plans that have reusable rows, by image."""
    known = {}
    for path in stored.all():
        if path in planned:
            continue
        try:
            for row in stored.read(path, ["name", "content", "settings"]):
                if row["settings"] == settings:
                    known[Photograph(row["name"], row["content"])] = str(path)
        except InputError:
            continue
    return known
