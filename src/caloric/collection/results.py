"""The result of a whole run: registered images, missing ones with the reasons, and numbers."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from caloric.collection.summaries import PairSummary
from caloric.interop.colmap_model import Reconstruction
from caloric.runtime.words import counted

_LISTED = 20  # missing images in the summary; the report has all
_FEW = 8  # matches that are needed for a fundamental matrix


@dataclass(frozen=True)
class CollectionResult:
    """The result of :func:`caloric.collection.run`.

    ``bool(result)`` is True if there is a model.

    Attributes
    ----------
    registered : tuple of str
        Names of the images in at least one model.
    missing : dict
        All other images of the directory, with the reasons.
    models : tuple of Reconstruction
        The models that have points, largest first.
    numbers : dict
        Counts of images, features, pairs, ..., and the reprojection error of the largest model.
    skipped : dict
        Images skipped by a step, with the reasons.
    failure : str
        Why there is no model; "" if there is one.
    seconds : dict
        The duration of each step.
    report : Path
        The report as a page; ``report.json`` next to it has the same content for programs.
    warnings : tuple of str
        Implausible results, such as focal lengths, and cameras that differ from the options.
    """

    registered: tuple[str, ...]
    missing: dict[str, str]
    models: tuple[Reconstruction, ...]
    numbers: dict[str, float]
    skipped: dict[str, str]
    failure: str
    seconds: dict[str, float]
    report: Path
    warnings: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        """Return whether there is a model."""
        return bool(self.models)

    def __str__(self) -> str:
        """Return the summary: a line with the number of images, then the missing images."""
        lines = [self.summary]
        missing = [f"  not registered: {name}: {why}" for name, why in self.missing.items()]
        lines += missing[:_LISTED]
        if len(self.missing) > _LISTED:
            lines.append(f"  ... and {len(self.missing) - _LISTED} more: see the report")
        lines += [f"  warning: {warning}" for warning in self.warnings]
        return "\n".join([*lines, f"report: {self.report}"])

    @property
    def summary(self) -> str:
        """Return the number of registered images and of models in one line."""
        total = len(self.registered) + len(self.missing)
        count = f"{len(self.registered):,} of {counted(total, 'image')}"
        if not self.models:
            return f"{count} registered: {self.failure}"
        return f"{count} registered in {counted(len(self.models), 'model')}"


def owner_of(store: Path) -> tuple[Path, list[str]] | None:
    """Return the image directory of a store and the names of its images, if it has a report."""
    try:
        report = json.loads((store / "report.json").read_text("utf-8"))
        names = [image["name"] for image in report.get("images", ())]
        return Path(report["directory"]), names
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def images_of(directory: Path) -> Path | None:
    """Return the image directory of a store, if its report has it and it exists."""
    owner = owner_of(directory)
    return owner[0] if owner is not None and owner[0].is_dir() else None


def missing(
    outcomes: dict[str, int | str], pairs: Iterable[PairSummary], registered: set[str]
) -> dict[str, str]:
    """Return the images that are in no model, with the reasons.

    ``outcomes`` has the number of features of each image, or the reason why it was skipped.
    """
    by_image: dict[str, list[PairSummary]] = {}
    for pair in pairs:
        for name in (pair.name_a, pair.name_b):
            by_image.setdefault(name, []).append(pair)
    return {
        name: (
            outcome.removeprefix(f"{name}: ")
            if isinstance(outcome, str)
            else _reason(name, outcome, by_image.get(name))
        )
        for name, outcome in outcomes.items()
        if name not in registered
    }


def _reason(name: str, features: int, pairs: list[PairSummary] | None) -> str:
    if features == 0:
        return "no features"
    if not pairs:
        return "not paired with another image"
    verified = [pair for pair in pairs if pair.is_verified]
    best = max(verified or pairs, key=lambda pair: (pair.inliers, pair.matches))
    other = best.name_b if best.name_a == name else best.name_a
    if verified:
        images = counted(len(verified), "image")
        return f"not enough overlap: matches {images}, best {other} with {best.inliers} inliers"
    matches = max(pair.matches for pair in pairs)
    if matches < _FEW or not best.inliers:
        text = f"no match: at most {counted(matches, 'match')} with another image"
        return text if matches < _FEW else f"{text}, which have no common geometry"
    return (
        f"weak match: no reliable geometry; best partner: {other} ({best.inliers} of "
        f"{best.matches} matches are inliers)"
    )


def too_few(described: int) -> str:
    """Return why there is no model if fewer than two images, ``described``, have features."""
    images = "only 1 image has" if described else "none of the images has"
    return f"{images} features; add images that have texture and overlap"


def failure(pairs: Iterable[PairSummary], discarded: tuple[Reconstruction, ...]) -> str:
    """Return why there is no model; ``discarded`` are models without points."""
    inliers = [pair.inliers for pair in pairs if pair.is_verified]
    if not inliers:
        return "no two images have a reliable geometry; add images that overlap"
    if discarded:
        images = counted(len(discarded[0].images), "image")
        return f"COLMAP registered {images} but no point; add images that overlap more"
    count = f"{counted(len(inliers), 'verified pair')}, with"
    return (
        f"COLMAP found no pair of images to start from ({count} at most {max(inliers)} inliers); "
        "add images from other positions that overlap more"
    )
