"""A second round for images that are missing in the largest model.

Features of simulated oblique views are added to each missing image, after its stored features, and
matched with the images that have the most matches with it and with their neighbors, by a less
strict ratio test. COLMAP then adds the image to the existing model, whose images keep their
features. Nothing is stored: the round is repeated by the next run.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from caloric import pipeline, verification
from caloric.collection import exporting, extraction, observations, sources
from caloric.collection.engines import Engine
from caloric.collection.extraction import StoredImage
from caloric.collection.matching import Matching
from caloric.collection.sources import ImageFile
from caloric.collection.steps import Progress, no_progress
from caloric.collection.summaries import PairSummary
from caloric.errors import Failure, InputError
from caloric.extraction import dispatch
from caloric.features import Features
from caloric.frames import Frames
from caloric.interop.conversion import in_file_axes
from caloric.matching.two_views import TwoViews
from caloric.options import ExtractOptions
from caloric.runtime.words import counted

_VIEWS = 2  # largest tilt of the simulated views
_RATIO = 0.9  # threshold of the ratio test, less strict than in the first round
_PARTNERS = 12  # images that a missing image is matched with
_MOST = 500  # missing images; those with the most matches come first


@dataclass(frozen=True)
class Task:
    """A missing image, the shards of its features and of other images, and the options."""

    directory: str
    name: str
    shards_of: dict[str, str]
    options: ExtractOptions
    matching: Matching


@dataclass(frozen=True, eq=False)
class Completed:
    """New features of an image, the stored ones first, and its verified pairs."""

    name: str
    features: Features
    pairs: list[TwoViews]
    summaries: list[PairSummary]


def partners(name: str, pairs: Iterable[PairSummary], registered: set[str]) -> list[str]:
    """Return the registered images to match with a missing image, the most promising first.

    They are those with the most inliers or else matches with it, and then those with the most
    inliers with the best of them.
    """
    scores: dict[str, dict[str, tuple[int, int]]] = {}
    for pair in pairs:
        score = (pair.inliers if pair.is_verified else 0, pair.matches)
        scores.setdefault(pair.name_a, {})[pair.name_b] = score
        scores.setdefault(pair.name_b, {})[pair.name_a] = score

    def ranked(image: str) -> list[str]:
        near = scores.get(image, {})
        candidates = [other for other in near if other in registered and other != name]
        return sorted(candidates, key=lambda other: (near[other], other), reverse=True)

    direct = ranked(name)[: _PARTNERS // 2]
    indirect = [other for partner in direct[:2] for other in ranked(partner)[: _PARTNERS // 2]]
    return list(dict.fromkeys(direct + indirect))[:_PARTNERS]


def complete_image(task: Task) -> Completed | None:
    """Return the new features and pairs of an image, on a worker; None if it cannot be read."""

    def row(name: str) -> dict[str, Any]:
        return extraction.rows(Path(task.shards_of[name]), {name})[name]

    old = row(task.name)
    try:
        file = ImageFile(task.name, old["content"])
        pixels, orientation = sources.pixels(task.directory, file, old.get("white_level"))
    except InputError:
        return None
    options = replace(extraction.stored_as_bytes(task.options), views=_VIEWS)
    _, features = next(iter(dispatch.extract_each([(pixels, None)], options, "cpu", 10**9)))
    if isinstance(features, Failure):
        return None
    features, maps = in_file_axes(features, orientation), extraction.features_of(old).frames.maps
    if not np.allclose(features.frames.maps[: len(maps)], maps, atol=1e-3):
        return None  # the stored features are from another device
    pairs, summaries = [], []
    for other in task.shards_of:
        if other == task.name:
            continue
        partner = extraction.features_of(row(other))
        matches = pipeline.match(features, partner, ratio=_RATIO)
        indices = matches.indices.astype(np.uint32)
        # Unlike in the first round the frames are used too, which finds weaker geometries.
        estimate = verification.verify(
            features, partner, matches,
            model=task.matching.model, threshold=task.matching.threshold,
        )  # fmt: skip
        inliers = np.flatnonzero(estimate.inliers).astype(np.uint32)
        valid = estimate.matrix is not None and estimate.confidence > task.matching.confidence
        summaries.append(
            PairSummary(
                task.name, other, len(indices), len(inliers), estimate.confidence, valid
            )
        )  # fmt: skip
        if valid:
            pairs.append(
                TwoViews(
                    task.name, other, indices, matches.distances, inliers, estimate.matrix,
                    task.matching.model,
                )
            )  # fmt: skip
    return Completed(task.name, features, pairs, summaries)


def tasks(
    directory: str,
    store: Path,
    options: ExtractOptions,
    matching: Matching,
    pairs: list[PairSummary],
    registered: set[str],
) -> list[Task]:
    """Return a task for each missing image that has partners, those with most matches first."""
    known: dict[str, StoredImage] = extraction.stored_images(store)
    best: dict[str, int] = {}
    for pair in pairs:
        for name in (pair.name_a, pair.name_b):
            best[name] = max(best.get(name, 0), pair.matches)
    missing = [name for name, image in known.items() if image.count and name not in registered]
    missing.sort(key=lambda name: (-best.get(name, 0), name))
    result = []
    for name in missing[:_MOST]:
        images = [name, *partners(name, pairs, registered)]
        if len(images) > 1:
            shards_of = {image: str(known[image].path) for image in images}
            result.append(Task(directory, name, shards_of, options, matching))
    return result


@dataclass(frozen=True)
class CompletionResult:
    """The number of missing images, and the new features and pairs of those with verified pairs."""

    missing: int
    images: dict[str, Completed]

    def __str__(self) -> str:
        """Return a summary in one line."""
        missing = counted(self.missing, "missing image")
        verb = "has" if len(self.images) == 1 else "have"
        return f"{len(self.images)} of {missing} {verb} new verified pairs"


def complete(
    work: list[Task], engine: Engine, progress: Progress = no_progress
) -> CompletionResult:
    """Match missing images again."""
    result = {}
    for done, completed in enumerate(engine.run(complete_image, work), 1):
        progress("missing images", done, len(work))
        if completed is not None and completed.pairs:
            result[completed.name] = completed
    return CompletionResult(len(work), dict(sorted(result.items())))


def images(store: Path, completed: dict[str, Completed]) -> Iterator[tuple[str, Features]]:
    """Yield the features of each image of a store, followed by those of simulated views."""
    stored = extraction.stored_images(store)
    for name, features in exporting.images(store):
        if name in completed:
            whole = completed[name].features
            views = whole[stored[name].count :]
            frames = Frames(
                np.concatenate([features.frames.maps, views.frames.maps]),
                np.concatenate([features.scores, views.scores]),
            )
            descriptors = np.concatenate([features.descriptors, views.descriptors])
            yield name, replace(whole, frames=frames, descriptors=descriptors)
        else:
            yield name, features


def two_views(store: Path, completed: dict[str, Completed]) -> Iterator[TwoViews]:
    """Yield the pairs of a store; new pairs replace those with fewer inliers."""
    stored, counts = extraction.stored_images(store), observations.counts(store)
    new = {}
    for name, image in completed.items():
        # Features of views follow those that propagation has added to the stored ones.
        count, added = stored[name].count, counts[name] - stored[name].count
        for pair in image.pairs:
            matches = pair.matches.copy()
            matches[matches[:, 0] >= count, 0] += added
            new[frozenset((name, pair.name_b))] = replace(pair, matches=matches)
    for pair in exporting.two_views(store):
        replacement = new.pop(frozenset((pair.name_a, pair.name_b)), None)
        better = replacement is not None and len(replacement.inliers) > len(pair.inliers)
        yield replacement if replacement is not None and better else pair
    yield from new.values()


def summaries(pairs: list[PairSummary], others: Iterable[PairSummary]) -> list[PairSummary]:
    """Return summaries of pairs, with those of the second round instead of worse ones."""
    result = {frozenset((pair.name_a, pair.name_b)): pair for pair in pairs}
    for pair in others:
        key = frozenset((pair.name_a, pair.name_b))
        old = result.get(key)
        if old is None or (pair.is_verified, pair.inliers) > (old.is_verified, old.inliers):
            result[key] = pair
    return sorted(result.values(), key=lambda pair: (pair.name_a, pair.name_b))
