"""Run the comparison of estimators and the calibration over all rendered pairs."""

import os
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import cv2

from caloric.bench.datasets import photographs
from caloric.bench.report import versions
from caloric.runtime import threads
from caloric.types import Log, Report
from tools.geometry import calibration, estimators, scenes


def trial(paths: list[Path], task: tuple[str, int, int]) -> tuple[list[Report], ...]:
    """Return the rows of one rendered pair."""
    cv2.setNumThreads(1)
    kind, index, seed = task
    cases = [scenes.case(kind, paths, index, seed)]
    return calibration.evidence(cases), calibration.choices(cases), estimators.compare(cases)


def run(directory: Path, seeds: int, processes: int, log: Log) -> Report:
    """Return the report: coefficients, reliability, choices of models, estimators compared."""
    paths = photographs(directory)
    tasks = [(k, i, s) for s in range(seeds) for k in scenes.KINDS for i in range(len(paths))]
    os.environ[threads.SETTING] = "1"
    rows: tuple[list[Report], ...] = ([], [], [])
    with ProcessPoolExecutor(processes) as pool:
        for parts in pool.map(partial(trial, paths), tasks):
            for target, part in zip(rows, parts, strict=True):
                target.extend(part)
            log(f"{len(rows[0])} geometries")
    return {"versions": versions(), "photographs": len(paths), "seeds": seeds} | report(*rows)


def report(evidence: list[Report], chosen: list[Report], compared: list[Report]) -> Report:
    """Return the results of all pairs: reliability, choices of models, estimators compared."""
    return {
        "calibration": calibration.calibrate(evidence),
        "auto": {
            kind: {
                "pairs": len(of_kind),
                "homography": sum(row["model"] == "homography" for row in of_kind),
                "as good as the better": sum(row["as good"] for row in of_kind),
            }
            for kind in scenes.KINDS
            if (of_kind := [row for row in chosen if row["kind"] == kind])
        },
        "estimators": estimators.summary(compared),
    }
