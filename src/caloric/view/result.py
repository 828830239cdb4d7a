"""Settings of the page, and a result of ``match_images`` as JSON."""

import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import recipes
from caloric.errors import InputError, unknown
from caloric.image_pair import ImageMatch, ViewsChoice, views_argument
from caloric.matching.geometry import alternative
from caloric.types import FloatArray, Report, UncalibratedChoice

MODELS = get_args(UncalibratedChoice)
VIEWS = get_args(ViewsChoice)
_NO_RESIDUAL = 1e6  # residual in pixels if there is no geometry
_SQUARE_SIDES = (64, 192)  # smallest and largest side of the suggested square in pixels


@dataclass(frozen=True)
class Settings:
    """The options of ``caloric match`` that the page offers."""

    descriptor: str = "caloric"
    model: UncalibratedChoice = "auto"
    views: ViewsChoice = "auto"
    ratio: float = 0.9
    threshold: float | None = None

    def __post_init__(self) -> None:
        """Check values that ``match_images`` does not check, or checks late."""
        recipes.descriptor(self.descriptor)
        if self.model not in MODELS:
            raise unknown("model", self.model, MODELS)
        if self.views not in VIEWS:
            raise unknown("choice of views", self.views, VIEWS)

    @classmethod
    def of(cls, query: Mapping[str, str]) -> "Settings":
        """Return the settings in the query of a request; missing ones have their defaults."""
        values: dict[str, Any] = {}
        for field in fields(cls):
            text = query.get(field.name)
            if text is not None:
                values[field.name] = _parsed(field.name, field.type, text)
        return cls(**values)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments for ``match_images``."""
        ratio = None if self.ratio == 1 else self.ratio
        return asdict(self) | {"views": views_argument(self.views), "ratio": ratio}

    def options(self) -> dict[str, Any]:
        """Return the options of ``caloric match`` that differ from its defaults."""
        defaults = asdict(Settings())
        return {k: v for k, v in asdict(self).items() if v != defaults[k]}


def _parsed(name: str, kind: Any, text: str) -> Any:
    """Return the value of a setting; an empty text is None if this is allowed."""
    if kind == float | None:
        return number(name, text) if text else None
    return number(name, text) if kind is float else text


def number(name: str, text: str) -> float:
    """Parse a finite number of a request; an error names the parameter."""
    try:
        value = float(text)
    except ValueError:
        value = np.nan
    if not abs(value) < 1e9:
        raise InputError(f"{name} must be a number, got {text!r}")
    return value


def choices() -> Report:
    """Return the descriptors, models and views that the page offers."""
    return {
        "descriptors": [*recipes.descriptors(), *recipes.VARIANTS],
        "models": list(MODELS),
        "views": list(VIEWS),
    }


def command(paths: tuple[str, str], options: Mapping[str, Any]) -> str:
    """Return the shell command that writes the result as a page."""
    words = ["caloric", "match", *paths]
    for name, value in options.items():
        words.append("--" + name.replace("_", "-"))
        if value is not True:
            words.append(f"{value:g}" if isinstance(value, float) else str(value))
    return shlex.join([*words, "--html", "matches.html"])


def frames(pair: ImageMatch) -> tuple[FloatArray, FloatArray]:
    """Return the frames (m, 2, 3) of all matches in both images, refined if the matches are."""
    i, j = pair.matches.indices.T
    refined = pair.matches.refined
    second = pair.features_b.frames.maps[j] if refined is None else refined
    return pair.features_a.frames.maps[i], second


def summary(pair: ImageMatch) -> Report:
    """Return a result as JSON for the page, with the matches as columns in their order.

    The matrix of an unreliable geometry is None, as in the JSON of ``caloric match``.
    """
    geometry = pair.geometry
    first, second = frames(pair)
    residuals = np.nan_to_num(geometry.residuals, nan=_NO_RESIDUAL, posinf=_NO_RESIDUAL)
    matrix = geometry.matrix if pair else None
    return {
        "descriptor": pair.features_a.descriptor,
        "features": [len(pair.features_a), len(pair.features_b)],
        "model": geometry.model,
        "matrix": None if matrix is None else matrix.tolist(),
        "reliable": bool(pair),
        "confidence": float(geometry.confidence),
        "reason": geometry.reason,
        "level": pair.level,
        "threshold": round(geometry.threshold, 3),
        "sigma": round(geometry.sigma, 3),
        "alternative": alternative(geometry),
        "refined": pair.matches.refined is not None,
        "square": suggested_square(pair),
        "a": _columns(first),
        "b": _columns(second),
        "distance": _rounded(pair.matches.distances, 4),
        "residual": _rounded(np.minimum(residuals, _NO_RESIDUAL), 3),
        "inlier": geometry.inliers.astype(int).tolist(),
        "propagated": pair.matches.is_from("propagation").astype(int).tolist(),
    }


def suggested_square(pair: ImageMatch) -> list[float] | None:
    """Return x, y and side of a square of the first image to align, or None without a geometry.

    The square is centered on the matched points and as large as their spread, so that the second
    image is likely to contain it.
    """
    if not pair:
        return None
    points = pair.points_a
    center = np.median(points, 0)
    central = points[np.argmin(np.linalg.norm(points - center, axis=1))]
    spread = float(np.median(np.abs(points - center)))
    low, high = _SQUARE_SIDES
    return [*central.round(1).tolist(), round(float(np.clip(2 * spread, low, high)))]


def _rounded(values: NDArray[Any], digits: int) -> list[float]:
    return [round(v, digits) for v in values.astype(float).tolist()]


def _columns(maps: FloatArray) -> Report:
    """Return the positions x, y, scales s = σ and orientations t of frames."""
    sigma = np.sqrt(np.abs(np.linalg.det(maps[:, :, :2])))
    angle = np.arctan2(maps[:, 1, 0], maps[:, 0, 0])
    return {
        "x": _rounded(maps[:, 0, 2], 2), "y": _rounded(maps[:, 1, 2], 2),
        "s": _rounded(sigma, 3), "t": _rounded(angle, 4),
    }  # fmt: skip
