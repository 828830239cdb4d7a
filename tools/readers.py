"""``python -m tools readers``: exported features in other tools, compared with OpenCV's RootSIFT.

Exported files are matched by the rules of hloc and COLMAP with their published settings. COLMAP
then verifies the matches and reconstructs a model.
"""

import itertools
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
import PIL.Image
import PIL.ImageOps
from numpy.typing import NDArray

import caloric
from caloric.bench.report import versions
from caloric.descriptor import normalize
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.interop import colmap_command, hdf5
from caloric.interop.colmap_command import CommandWriter
from caloric.interop.exporters import Request
from caloric.types import Log, Report
from tools.pages.markdown import table

SIDE = 1600  # of the images, in pixels
Rule = Callable[[NDArray[np.float32], NDArray[np.float32]], NDArray[np.int64]]


@dataclass(frozen=True)
class Image:
    """An image of a method: its features, and the descriptors (n, d) that readers get."""

    name: str
    features: Features
    descriptors: NDArray[np.float32]


def hloc(ratio: float | None = None, distance: float | None = None) -> Rule:
    """Return hloc's ``nearest_neighbor`` matcher with a mutual check.

    Arrays (n, d) and (m, d) of unit vectors give indices (k, 2). Both thresholds are applied in
    both directions.
    """

    def accepted(similarity: NDArray[np.float32]) -> NDArray[np.int64]:
        rows, first = np.arange(len(similarity)), similarity.argmax(1)
        nearest = 2 - 2 * similarity[rows, first]
        keep = np.ones(len(rows), bool)
        if ratio is not None:
            others = similarity.copy()
            others[rows, first] = -np.inf
            keep &= nearest <= ratio**2 * (2 - 2 * others.max(1))
        if distance is not None:
            keep &= nearest <= distance**2
        return np.where(keep, first, -1)

    def match(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.int64]:
        similarity = a @ b.T
        forth, back = accepted(similarity), accepted(np.ascontiguousarray(similarity.T))
        rows = np.flatnonzero((forth >= 0) & (back[forth] == np.arange(len(forth))))
        return np.stack([rows, forth[rows]], 1)

    return match


RULES: dict[str, Rule | None] = {
    "hloc, NN-ratio": hloc(ratio=0.8),
    "hloc, NN-mutual": hloc(),
    "hloc, NN-superpoint": hloc(distance=0.7),
    "COLMAP's matcher": None,
}


def resized(source: Path, directory: Path, limit: int | None) -> Iterator[Path]:
    """Write upright images of at most 1600 pixels, with EXIF data, and yield their paths."""
    paths = sorted(p for p in source.iterdir() if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if len(paths) < 2:
        raise InputError(f"{source}: at least two .jpg or .png images are required")
    for path in paths[:limit]:
        target = directory / f"{path.stem}.jpg".replace(" ", "_")
        with PIL.Image.open(path) as image:
            # Without the orientation, which exif_transpose removes.
            upright = PIL.ImageOps.exif_transpose(image).convert("RGB")
        upright.thumbnail((SIDE, SIDE))
        upright.save(target, quality=95, exif=upright.getexif())
        yield target


def exported(paths: list[Path], count: int) -> list[Image]:
    """Return Caloric's features, with the descriptors that hloc reads from the exported file."""
    library = hdf5.h5py()
    features = caloric.extract([caloric.read_image(p) for p in paths], max_features=count)
    with tempfile.TemporaryDirectory() as directory:
        file = Path(directory) / "features.h5"
        hdf5.write(file, [(p.name, f) for p, f in zip(paths, features, strict=True)])
        with library.File(file) as stored:
            return [
                Image(path.name, f, np.ascontiguousarray(stored[path.name]["descriptors"][:].T))
                for path, f in zip(paths, features, strict=True)
            ]


def root_sift(paths: list[Path], count: int) -> list[Image]:
    """Return OpenCV's SIFT features with RootSIFT normalization."""
    sift, images = cv2.SIFT_create(count), []  # type: ignore[attr-defined]
    for path in paths:
        pixels = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE)
        if pixels is None:
            raise InputError(f"{path}: cannot be read")
        keypoints, values = sift.detectAndCompute(pixels, None)
        root = np.asarray(normalize.root(np.asarray(values, np.float32)), np.float32)
        size = (pixels.shape[0], pixels.shape[1])
        features = Features(Frames.from_opencv(keypoints), root, size, "RootSIFT", "")
        images.append(Image(path.name, features, root))
    return images


METHODS: dict[str, Callable[[list[Path], int], list[Image]]] = {
    "caloric": exported,
    "OpenCV RootSIFT": root_sift,
}


def _database(images: list[Image], directory: Path, path: Path) -> None:
    """Write a database with the features of a method; descriptors are bytes."""
    with ExitStack() as stack:
        writer = CommandWriter(path, Request(path, images=directory), stack)
        for image in images:
            writer.features(image.name, image.features)
        writer.imported()
    with closing(sqlite3.connect(path)) as database, database:
        for image in images:
            values = np.asarray(normalize.to_uint8(image.descriptors))
            database.execute(
                "UPDATE descriptors SET cols = ?, data = ? WHERE image_id = "
                "(SELECT image_id FROM images WHERE name = ?)",
                (values.shape[1], values.tobytes(), image.name),
            )


def _pairs(images: list[Image], window: int | None) -> Iterator[tuple[Image, Image]]:
    """Yield all pairs, or those whose indices differ by at most ``window``."""
    for (i, a), (j, b) in itertools.combinations(enumerate(images), 2):
        if window is None or j - i <= window:
            yield a, b


def _write_matches(pairs: Iterable[tuple[Image, Image]], rule: Rule | None, path: Path) -> None:
    """Write the matches of pairs for COLMAP's importer, or only the pairs if there is no rule."""
    with path.open("w", encoding="utf-8") as file:
        for a, b in pairs:
            if rule is None:
                file.write(f"{a.name} {b.name}\n")
            elif len(indices := rule(a.descriptors, b.descriptors)):
                rows = "".join(f"{i} {j}\n" for i, j in indices.tolist())
                file.write(f"{a.name} {b.name}\n{rows}\n")


def model(
    images: list[Image], directory: Path, rule: Rule | None, window: int | None = None
) -> Report:
    """Match images by a rule, or with COLMAP if it is None; return the size of the largest model.

    COLMAP verifies the matches and reconstructs with its default settings.
    """
    with tempfile.TemporaryDirectory() as name:
        out = Path(name)
        database, sparse = out / "database.db", out / "sparse"
        sparse.mkdir()
        _database(images, directory, database)
        _write_matches(_pairs(images, window), rule, out / "matches.txt")
        colmap_command.call(
            "matches_importer", "--database_path", database, "--match_list_path",
            out / "matches.txt", "--match_type", "pairs" if rule is None else "raw",
            *colmap_command.without_gpu("matches_importer"),
        )  # fmt: skip
        with closing(sqlite3.connect(database)) as opened:
            ((matches,),) = opened.execute("SELECT SUM(rows) FROM matches")
            ((inliers,),) = opened.execute("SELECT SUM(rows) FROM two_view_geometries")
        models = colmap_command.map_images(database, directory, sparse)
        best = max(models, key=lambda m: (len(m.images), m.points), default=None)
        return {
            "of": len(images),
            "matches": matches or 0,
            "inliers": inliers or 0,
            "images": len(best.images) if best else 0,
            "points": best.points if best else 0,
            "mean error, pixels": best.error if best else None,
        }


def run(
    sources: list[Path],
    count: int,
    limit: int | None,
    window: int | None,
    rules: list[str],
    progress: Log,
) -> Report:
    """Return the models of each directory of images, by rule and method."""
    report: Report = {
        "about": {
            "versions": versions(),
            "cores": os.cpu_count(),
            "max_features": count,
            "window": window,
        }
    }
    for source in sources:
        with tempfile.TemporaryDirectory() as name:
            paths = list(resized(source, Path(name), limit))
            results: Report = {rule: {} for rule in rules}
            for method, extract in METHODS.items():
                images = extract(paths, count)
                for rule in rules:
                    progress(f"{source.name}: {method}, {rule}")
                    results[rule][method] = model(images, Path(name), RULES[rule], window)
                    progress(f"  {results[rule][method]}")
            report[source.name] = results
    return report


def lines(report: Report) -> list[str]:
    """Return a Markdown table of all models."""

    def error(value: float | None) -> str:
        return "no model" if value is None else f"{value:.2f} px"

    head = ["images", "matcher", "features", "registered", "points", "mean error", "inliers"]
    rows = [
        [source, rule, method, f"{v['images']} of {v['of']}", f"{v['points']:,}",
         error(v["mean error, pixels"]), f"{v['inliers']:,} of {v['matches']:,}"]
        for source, results in report.items() if source != "about"
        for rule, methods in results.items() for method, v in methods.items()
    ]  # fmt: skip
    return [table(head, rows)]
