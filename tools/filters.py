"""``python -m tools filters``: which correct matches filters keep, from the same features.

Filters by neighbors, Caloric's agreement, AdaLAM (kornia) and GMS (OpenCV with its contributed
modules), are compared with the ratio test. GMS is run with rotation and scale, since features have
both.
"""

import time
from collections.abc import Callable
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.bench.pair_data import Pair, distances
from caloric.bench.pairs import CORRECT
from caloric.errors import InputError
from caloric.features import Features
from caloric.types import Log, Report

Filter = Callable[[Features, Features], NDArray[np.integer[Any]]]


def ratio_test(a: Features, b: Features) -> NDArray[np.integer[Any]]:
    """Return the matches (m, 2) of the default ratio test."""
    return pipeline.match(a, b).indices


def agreement(a: Features, b: Features) -> NDArray[np.integer[Any]]:
    """Return the matches (m, 2) that pass the ratio test or agree with their neighbors."""
    return pipeline.match(a, b, agreement=True).indices


def adalam(a: Features, b: Features) -> NDArray[np.integer[Any]]:
    """Return the matches (m, 2) of AdaLAM with its defaults, and mutual nearest seeds."""
    import torch
    from kornia.feature import match_adalam

    descriptors = [torch.from_numpy(np.asarray(f.descriptors, np.float32)) for f in (a, b)]
    lafs = [torch.from_numpy(f.frames.to_laf()) for f in (a, b)]
    _, indices = match_adalam(*descriptors, *lafs, hw1=a.image_size, hw2=b.image_size)
    return np.asarray(indices.numpy())


def gms(a: Features, b: Features) -> NDArray[np.integer[Any]]:
    """Return the matches (m, 2) of GMS among all nearest neighbors."""
    nearest = pipeline.match(a, b, mutual=False, ratio=None)
    sizes = [f.image_size[::-1] for f in (a, b)]
    candidates = [cv2.DMatch(int(i), int(j), 0.0) for i, j in nearest.indices]
    kept = cv2.xfeatures2d.matchGMS(  # type: ignore[attr-defined]
        *sizes, a.frames.to_opencv(), b.frames.to_opencv(), candidates, True, True
    )
    return np.array([(m.queryIdx, m.trainIdx) for m in kept], np.intp).reshape(-1, 2)


def filters() -> dict[str, Filter]:
    """Return the filters by name."""
    if not hasattr(cv2, "xfeatures2d"):
        raise InputError("GMS needs opencv-contrib-python-headless instead of OpenCV")
    return {"ratio test": ratio_test, "agreement": agreement, "AdaLAM": adalam, "GMS": gms}


def run(pairs: list[Pair], count: int, log: Log) -> Report:
    """Return the mean numbers of kept and of correct matches, and CPU seconds, per filter."""
    compared = filters()
    rows: dict[str, list[tuple[float, ...]]] = {name: [] for name in compared}
    for pair in pairs:
        a, b = (pipeline.extract(read(), max_features=count) for read in (pair.first, pair.second))
        for name, select in compared.items():
            started = time.process_time()
            indices = select(a, b)
            seconds = time.process_time() - started
            errors = distances(pair, a.frames.xy[indices[:, 0]], b.frames.xy[indices[:, 1]])
            rows[name].append((len(indices), int((errors <= CORRECT).sum()), seconds))
        log(pair.name)
    return {
        name: dict(zip(("matches", "correct", "seconds"), np.mean(values, 0).tolist(), strict=True))
        | {
            "worst quarter": float(
                np.mean(sorted(v[1] for v in values)[: max(1, len(values) // 4)])
            )
        }
        for name, values in rows.items()
    }
