"""``python -m tools registration``: images registered by COLMAP's SIFT and by Caloric.

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
from caloric.interop import colmap_command, colmap_model
from caloric.runtime import threads
from caloric.types import Log, Report
from tools.pages.markdown import table


def _colmap(images: Path, work: Path) -> Report:
    """Return the models of COLMAP's SIFT, from the executable with its defaults."""
    database, sparse = work / "database.db", work / "sparse"
    if not sparse.is_dir():
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        paths = ("--database_path", database, "--image_path", images)
        colmap_command.call(
            "feature_extractor", *paths, *colmap_command.without_gpu("feature_extractor")
        )
        colmap_command.call(
            "exhaustive_matcher", *paths[:2], *colmap_command.without_gpu("exhaustive_matcher")
        )
        unfinished = work / "unfinished"
        unfinished.mkdir()
        colmap_command.map_images(database, images, unfinished, {})
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
        progress(f"{directory.name}: COLMAP SIFT")
        peer = _colmap(directory, work / directory.name / "colmap")
        progress(f"{directory.name}: caloric")
        results[directory.name] = {
            "images": len(sources.names(str(directory))),
            "COLMAP SIFT": peer,
            "caloric": _caloric(directory, work / directory.name / "caloric"),
        }
    about = {"versions": versions(), "threads": threads.count()}
    return {"about": about, "sets": results}


def lines(report: Report) -> list[str]:
    """Return the Markdown table of the results."""
    values_of = ["features", "points", "error"]
    head = ["set", "images", "COLMAP SIFT", *values_of, "caloric", *values_of]
    rows = []
    for name, result in report["sets"].items():
        row = [name, str(result["images"])]
        for method in ("COLMAP SIFT", "caloric"):
            values = result[method]
            error = values["mean error, pixels"]
            row += [
                str(values["registered"]), f"{values['features per image']:,.0f}",
                f"{values['points']:,}",
                "–" if error is None else f"{error:.2f} px",
            ]  # fmt: skip
        rows.append(row)
    return [table(head, rows)]
