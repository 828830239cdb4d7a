"""Extract the features of all images; the hash of an image's name selects its shard."""

from collections import OrderedDict
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.collection import metadata, sources
from caloric.collection.engines import Engine
from caloric.collection.sources import ImageFile
from caloric.collection.steps import Progress, check_written, missing, no_progress
from caloric.collection.store import Shards, file_version, fingerprint
from caloric.detector.options import VERSION, DetectOptions
from caloric.errors import Failure, InputError
from caloric.extraction import dispatch
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import loading
from caloric.interop.conversion import in_file_axes
from caloric.options import ExtractOptions
from caloric.runtime.words import counted

IMAGES_PER_SHARD = 32  # approximate maximum
_KEPT_BYTES = 100_000_000  # of features in a worker: 80 images with 8,000 features each
_VERSION = 2  # version of the rows; since 2, frames ignore the EXIF orientation, as in COLMAP
COLUMNS = (
    ("name", "string"), ("content", "string"), ("settings", "string"), ("error", "string"),
    ("height", "int32"), ("width", "int32"), ("count", "int32"), ("dimension", "int32"),
    ("descriptor", "string"), ("recipe", "string"), ("encoding", "string"),
    ("white_level", "float64"), ("frames", "float32s"), ("scores", "float32s"),
    ("descriptors", "uint8s"),
)  # fmt: skip


# Options that are always hashed. Others are hashed only if they differ from their defaults, so
# that stores of versions without them stay valid.
_HASHED = ("max_features", "affine", "upright", "contrast")


def stored_as_bytes(options: ExtractOptions) -> ExtractOptions:
    """Return the options with descriptors as bytes; raise an error for simulated views."""
    if options.views is not None:
        raise InputError("collections do not support simulated views: leave out views")
    return replace(options, dtype="uint8")


def settings_hash(options: ExtractOptions, white_level: float | None = None) -> str:
    """Return a hash of everything but the image that the features depend on."""
    settings: dict[str, Any] = {"descriptor": options.name}
    for field in fields(DetectOptions):
        value = getattr(options, field.name)
        if field.name in _HASHED or value != field.default:
            settings[field.name] = value
    if white_level is not None:
        settings["white_level"] = float(white_level)
    return fingerprint(settings, _VERSION, VERSION, options.fingerprint)


def shards(store: Path) -> Shards:
    """Return the feature shards of a store."""
    return Shards(store / "features", COLUMNS, single_rows=True)


@dataclass(frozen=True)
class StoredImage:
    """An image of a store: its shard, the hashes of content and settings, its feature count."""

    path: Path
    key: str
    count: int

    @property
    def content(self) -> str:
        """The hash of the file."""
        return self.key.partition(" ")[0]


def stored_images(store: Path) -> dict[str, StoredImage]:
    """Return the images of a store by name, in the order of the shards."""
    files = ((path, file_version(path)) for path in shards(store).all())
    return {name: image for path, version in files for name, image in _images(path, version)}


@lru_cache(maxsize=1 << 16)  # the shards of a million images; each step asks for them
def _images(path: Path, version: tuple[int, int]) -> tuple[tuple[str, StoredImage], ...]:
    """Return the names and images of a shard."""
    columns = ["name", "content", "settings", "count"]
    return tuple(
        (row["name"], StoredImage(path, f"{row['content']} {row['settings']}", row["count"]))
        for row in shards(path.parents[1]).read(path, columns)
    )


def sizes(store: Path) -> dict[str, tuple[int, int]]:
    """Return the sizes (h, w) of the stored images that have features, by name."""
    stored = shards(store)
    return {
        row["name"]: (row["height"], row["width"])
        for path in stored.all()
        for row in stored.read(path, ["name", "height", "width", "count"])
        if row["count"]
    }


@dataclass(frozen=True)
class Task:
    """A shard to write; ``known`` are older shards that contain some of its rows."""

    directory: str
    store: str
    path: str
    files: tuple[ImageFile, ...]
    options: ExtractOptions
    device: str
    known: tuple[str, ...]
    white_level: float | None


@dataclass(frozen=True)
class ShardResult:
    """The result of a task.

    ``outcomes`` has the feature count of each image, or the reason why it was skipped.
    """

    outcomes: dict[str, int | str]
    extracted: int
    path: str


def _row(
    file: ImageFile, settings: str, white_level: float | None, result: Features | Failure
) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": file.name, "content": file.content, "settings": settings,
        "error": result.reason if isinstance(result, Failure) else None,
        "height": 0, "width": 0, "count": 0, "dimension": 0, "descriptor": "", "recipe": "",
        "encoding": "", "white_level": white_level, "frames": [], "scores": [], "descriptors": [],
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


_Key = tuple[Path, tuple[int, int], str]  # of a row: shard, its version, image
_kept: OrderedDict[_Key, dict[str, Any]] = OrderedDict()
_lock = Lock()


def rows(path: Path, names: set[str]) -> dict[str, dict[str, Any]]:
    """Return the rows of images in a shard by name.

    The process keeps the last rows, of any shards, because several tasks need the same images.
    """
    version = file_version(path)
    keys: dict[str, _Key] = {name: (path, version, name) for name in names}
    with _lock:
        result = {name: _kept[key] for name, key in keys.items() if key in _kept}
    missing_names = names - result.keys()
    if missing_names:
        read = shards(path.parents[1]).read(path, None, missing_names)
        result |= {row["name"]: row for row in read}
    with _lock:
        for name in sorted(names & result.keys()):
            _kept[keys[name]] = result[name]
            _kept.move_to_end(keys[name])
        while len(_kept) > 1 and sum(map(_size, _kept.values())) > _KEPT_BYTES:
            _kept.popitem(last=False)
    return result


def _size(row: dict[str, Any]) -> int:
    return sum(np.asarray(row[name]).nbytes for name in ("frames", "scores", "descriptors"))


def features_of(row: dict[str, Any]) -> Features:
    """Return the features in a row."""
    count = row["count"]
    frames = Frames(row["frames"].reshape(count, 2, 3), row["scores"])
    values: NDArray[np.uint8] = row["descriptors"].reshape(count, row["dimension"])
    size, names = (row["height"], row["width"]), (row["descriptor"], row["recipe"])
    encoding: Any = row.get("encoding")  # missing in shards of earlier versions: see Features
    return Features(frames, values, size, *names, encoding=encoding)


def make(task: Task) -> ShardResult:
    """Write one shard, on a worker: copy known rows and extract the other images."""
    stored, settings = shards(Path(task.store)), settings_hash(task.options, task.white_level)
    wanted = {(p.name, p.content): p for p in task.files}
    rows: dict[str, dict[str, Any]] = {}
    for path in task.known:
        try:
            for row in stored.read(Path(path)):
                if (row["name"], row["content"]) in wanted and row["settings"] == settings:
                    rows[row["name"]] = row
                    row.setdefault("white_level", None)  # a shard of an earlier version
                    if "encoding" not in row:
                        row["encoding"] = "" if row["error"] else features_of(row).encoding
        except InputError:  # removed by another run
            continue
    new = [p for p in task.files if p.name not in rows]
    outcomes: dict[str, int | str] = {}
    orientations: dict[str, int] = {}

    def read(file: ImageFile) -> NDArray[np.generic]:
        try:
            pixels, orientations[file.name] = sources.pixels(task.directory, file, task.white_level)
        except (sources.UnreadableError, MemoryError) as error:
            outcomes[file.name] = str(error) or f"{file.name}: not enough memory"
            raise
        return pixels

    # A GPU processes many images while others are decoded; on the CPU, extraction and decoding
    # share the threads.
    ahead = 2 if devices.resolve(task.device) is None else IMAGES_PER_SHARD
    images = ((pixels, None) for pixels in loading.read_ahead(new, read, ahead))
    names = [file.name for file in new]
    for index, result in dispatch.extract_each(
        images, task.options, task.device, 10**9, names=names
    ):
        name = new[index].name
        if isinstance(result, Features):
            result = in_file_axes(result, orientations[name])
        rows[name] = _row(new[index], settings, task.white_level, result)
    # Unreadable images are left out of the shard and of its hash, so that the next run retries
    # them.
    readable = [p for p in task.files if p.name not in outcomes]
    target = Path(task.path)
    if outcomes:
        target = stored.path(target.name.split("-")[0], _key(settings, readable))
    if readable:
        stored.write(target, [rows[p.name] for p in readable])
    outcomes |= {p.name: rows[p.name]["error"] or int(rows[p.name]["count"]) for p in readable}
    return ShardResult(outcomes, len(new), str(target) if readable else "")


@dataclass(frozen=True)
class ExtractionResult:
    """The result of feature extraction.

    Attributes
    ----------
    found : dict
        The number of features of each image by name, or the reason why it was skipped.
    shards, made : int
        The number of all feature shards, and of those written by this run.
    extracted : int
        The number of new and changed images.
    """

    found: dict[str, int | str]
    shards: int
    made: int
    extracted: int

    def __str__(self) -> str:
        """Return a summary in one line."""
        used = len(self.found) - len(self.skipped)
        return (
            f"{used} of {counted(len(self.found), 'image')}, {counted(self.features, 'feature')}; "
            f"{self.extracted} new, {self.made} of {counted(self.shards, 'shard')} written"
        )

    @property
    def features(self) -> int:
        """Return the total number of features."""
        return sum(count for count in self.found.values() if isinstance(count, int))

    @property
    def described(self) -> int:
        """Return the number of images that have features."""
        return sum(isinstance(count, int) and count > 0 for count in self.found.values())

    @property
    def skipped(self) -> dict[str, str]:
        """Return the skipped images by name, with the reasons."""
        return {name: outcome for name, outcome in self.found.items() if isinstance(outcome, str)}


def planned(stored: Shards, files: list[ImageFile], settings: str) -> dict[Path, list[ImageFile]]:
    """Return the images of each shard, by path of the shard."""
    return {
        stored.path(f"{number:06x}", _key(settings, group)): group
        for number, group in sources.in_buckets(files, IMAGES_PER_SHARD)
    }


def _key(settings: str, group: list[ImageFile]) -> str:
    return fingerprint(settings, [(p.name, p.content) for p in group])


def extract(
    directory: str,
    store: Path,
    options: ExtractOptions,
    engine: Engine,
    *,
    white_level: float | None = None,
    device: str = "cpu",
    progress: Progress = no_progress,
) -> ExtractionResult:
    """Extract the features of all new and changed images of a directory.

    The previous features of an unreadable image are kept.
    """
    directory, store = sources.absolute(directory), store.absolute()
    options = stored_as_bytes(options)
    stored, key = shards(store), settings_hash(options, white_level)
    outcomes: dict[str, int | str] = {}
    files = []
    for block in engine.read(sources.hashed, sources.blocks(directory)):
        for name, result in block.items():
            if isinstance(result, InputError):
                outcomes[name] = str(result)
            else:
                files.append(result)
    unreadable = dict(outcomes)
    if unreadable:
        old = metadata.read(store)
        files += [
            replace(p, exif=old.get(p.name, p.exif))
            for p in _known(stored, set(), key)
            if p.name in unreadable
        ]
    groups = planned(stored, files, key)
    to_make = missing(stored, groups)
    known = _known(stored, set(groups), key) if to_make else {}
    tasks = [
        Task(
            directory, str(store), str(path), tuple(group), options, device,
            tuple(sorted({known[p] for p in group if p in known})), white_level,
        )
        for path, group in to_make.items()
    ]  # fmt: skip
    total, done = sum(map(len, to_make.values())), 0
    extracted = 0
    written = set()
    if tasks:
        progress("images", 0, total)
    for shard in engine.run(make, tasks):
        outcomes |= shard.outcomes
        extracted += shard.extracted
        written |= {Path(shard.path)} if shard.path else set()
        done += len(shard.outcomes)
        progress("images", done, total)
    check_written(written)
    metadata.write(store, files)
    kept = groups.keys() - to_make.keys()
    stored.tidy(kept | written)
    for path in kept:
        for row in stored.read(path, ["name", "error", "count"]):
            outcomes[row["name"]] = row["error"] or row["count"]
    before = {p.name for p in files}
    for name, why in unreadable.items():
        outcomes[name] = f"{why}; its previous features are kept" if name in before else why
    return ExtractionResult(dict(sorted(outcomes.items())), len(groups), len(to_make), extracted)


def _known(stored: Shards, planned: set[Path], settings: str) -> dict[ImageFile, str]:
    """Return by image the path of a shard that is not planned but contains a reusable row."""
    known = {}
    for path in stored.all():
        if path in planned:
            continue
        try:
            for row in stored.read(path, ["name", "content", "settings"]):
                if row["settings"] == settings:
                    known[ImageFile(row["name"], row["content"])] = str(path)
        except InputError:
            continue
    return known
