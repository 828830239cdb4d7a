"""The EXIF data of the images of a store, in a single shard."""

from dataclasses import asdict
from pathlib import Path

from caloric.collection.sources import ImageFile
from caloric.collection.store import Shards, fingerprint
from caloric.image.exif import Exif

COLUMNS = (
    ("name", "string"), ("make", "string"), ("model", "string"), ("focal", "float64"),
    ("focal_35mm", "float64"), ("position", "float64s"),
)  # fmt: skip


def shards(store: Path) -> Shards:
    """Return the EXIF shards of a store; a single shard contains all images."""
    return Shards(store / "metadata", COLUMNS)


def write(store: Path, files: list[ImageFile]) -> None:
    """Write the EXIF data of image files, replacing those of an earlier run."""
    stored = shards(store)
    rows = [{"name": f.name, **asdict(f.exif)} for f in sorted(files, key=lambda f: f.name)]
    path = stored.path("exif", fingerprint(rows))
    if not stored.is_complete(path):
        stored.write(path, rows)
    stored.tidy([path])


def read(store: Path) -> dict[str, Exif]:
    """Return the EXIF data of the images of a store by name; empty in stores without them."""
    stored = shards(store)
    return {
        row.pop("name"): Exif(**{**row, "position": tuple(row["position"].tolist())})
        for path in stored.all()
        for row in stored.read(path)
    }
