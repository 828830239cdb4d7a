"""``python -m tools registration``: images registered by COLMAP's SIFT and by Caloric.

Incorrect pairs among the accepted ones are counted by :mod:`tools.incorrect_pairs`.
Both run with their defaults, on all pairs, and with the same version of COLMAP. Finished work in
the working directory is kept, as by ``caloric collection run``.
"""

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from caloric import collection
from caloric.bench.report import versions
from caloric.collection import sources
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.runtime import threads
from caloric.types import Log, Report
from tools import incorrect_pairs
from tools.pages.markdown import table

_UNRELATED = 500  # pairs of images from different sets


def extract_and_match(images: Path, database: Path) -> None:
    """Extract and match with COLMAP's SIFT on the CPU and its defaults, into a new database."""
    if colmap.available():
        library = colmap.pycolmap()
        library.extract_features(database, images, device=library.Device.cpu)
        library.match_exhaustive(database, device=library.Device.cpu)
        return
    paths = ("--database_path", database, "--image_path", images)
    for name, options in (("feature_extractor", paths), ("exhaustive_matcher", paths[:2])):
        colmap_command.call(name, *options, *colmap_command.without_gpu(name))


def _colmap(images: Path, work: Path) -> Report:
    """Return the models of COLMAP's SIFT, with its defaults."""
    database, sparse = work / "database.db", work / "sparse"
    if not sparse.is_dir():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        extract_and_match(images, database)
        unfinished = work / "unfinished"
        unfinished.mkdir()
        colmap.map_images(database, images, unfinished, {})
        unfinished.rename(sparse)
    with closing(sqlite3.connect(database)) as opened:
        ((features,),) = opened.execute("SELECT AVG(rows) FROM keypoints")
    numbers = _numbers([colmap_model.summary(path) for path in colmap_model.models(sparse)])
    return numbers | {"features per image": features}


def _numbers(models: list[collection.Reconstruction]) -> Report:
    models = sorted((m for m in models if m.points), key=lambda m: -len(m.images))
    return {
        "registered": len({name for model in models for name in model.images}),
        "models": len(models),
        "points": models[0].points if models else 0,
        "track length": models[0].track_length if models else None,
        "mean error, pixels": models[0].error if models else None,
    }


def _caloric(images: Path, out: Path) -> Report:
    """Return the models of ``caloric collection run`` with its defaults."""
    if not (out / "report.json").is_file():
        collection.run(images, out)
    report = json.loads((out / "report.json").read_text("utf-8"))
    models = [colmap_model.summary(Path(model["directory"])) for model in report["models"]]
    missing = {i["name"]: i["reason"] for i in report["images"] if i["reason"] is not None}
    features = report["numbers"]["features"] / report["numbers"]["images"]
    extra = {"missing": missing, "seconds": report["seconds"], "features per image": features}
    return _numbers(models) | extra


def run(directories: list[Path], work: Path, progress: Log) -> Report:
    """Return the results of each image directory by its name."""
    results: Report = {}
    for directory in directories:
        paths = work / directory.name / "colmap", work / directory.name / "caloric"
        progress(f"{directory.name}: COLMAP SIFT")
        peer = _colmap(directory, paths[0])
        progress(f"{directory.name}: caloric")
        ours = _caloric(directory, paths[1])
        model = paths[1] / "colmap" / "sparse" / "0"
        if model.is_dir():
            peer |= incorrect_pairs.judged(
                incorrect_pairs.of_database(paths[0] / "database.db"), model
            )
            ours |= incorrect_pairs.judged(incorrect_pairs.of_store(paths[1]), model)
        images = len(sources.names(str(directory)))
        results[directory.name] = {"images": images, "COLMAP SIFT": peer, "caloric": ours}
    about = {"versions": versions(), "COLMAP": colmap.version(), "threads": threads.count()}
    report: Report = {"about": about, "sets": results}
    if len(directories) > 1:
        progress("pairs of images from different sets")
        stores = [work / directory.name / "caloric" for directory in directories]
        report["unrelated"] = incorrect_pairs.unrelated(stores, _UNRELATED)
    return report


def lines(report: Report) -> list[str]:
    """Return the Markdown table of the results."""
    values_of = ["features", "points", "error", "incorrect pairs"]
    head = ["set", "images", "COLMAP SIFT", *values_of, "caloric", *values_of]
    rows = []
    for name, result in report["sets"].items():
        row = [name, str(result["images"])]
        for method in ("COLMAP SIFT", "caloric"):
            values = result[method]
            error = values["mean error, pixels"]
            incorrect = "–"
            if "incorrect pairs" in values:
                incorrect = f"{len(values['incorrect pairs'])} of {values['pairs']}"
            row += [
                str(values["registered"]), f"{values['features per image']:,.0f}",
                f"{values['points']:,}",
                "–" if error is None else f"{error:.2f} px",
                incorrect,
            ]  # fmt: skip
        rows.append(row)
    text = [table(head, rows)]
    if "unrelated" in report:
        counts = report["unrelated"]
        text.append(
            f"{counts['accepted']} of {counts['pairs']} pairs of images from different sets are "
            "accepted."
        )
    return text
