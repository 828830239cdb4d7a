"""A demonstration that needs no input: a photograph against a strong change of itself."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import features, viz
from caloric.errors import InputError
from caloric.theory.gaussians import FloatArray

DESCRIPTORS = ("sift", "caloric")
FEATURES = 2000
_RIGHT = 3.0


@dataclass(frozen=True, eq=False)
class View:
    """A photograph, a changed view of it, and the homography that made the one from the other."""

    original: NDArray[np.uint8]
    changed: NDArray[np.uint8]
    homography: FloatArray


def view() -> View:
    """scikit-image's picture of a cat, seen from the side, turned, relit, blurred and noisy."""
    try:
        from skimage import data
    except ImportError:
        raise InputError(
            "the demonstration takes its photograph from scikit-image; "
            "install it with: pip install scikit-image"
        ) from None
    original = np.asarray(data.chelsea())  # type: ignore[no-untyped-call]
    h, w = original.shape[:2]
    tilt = np.array([[0.52, 0.0], [0.0, 1.0]])
    turn, lean = (
        np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in np.radians([35, 20])
    )
    A = 1.05 * turn @ tilt @ lean
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]]) @ A.T
    low = corners.min(0)
    size = np.ceil(corners.max(0) - low).astype(int)
    affine = np.concatenate([A, -low[:, None]], 1)
    grey = (127, 127, 127)
    moved = cv2.warpAffine(original, affine, size.tolist(), flags=cv2.INTER_AREA, borderValue=grey)
    rng = np.random.default_rng(0)
    light = np.linspace(0.45, 1.15, size[0])[None, :, None]
    lit = 255 * (cv2.GaussianBlur(moved, (0, 0), 1.0) / 255.0) ** 1.4 * light
    noisy = np.clip(np.rint(lit + 3 * rng.standard_normal(lit.shape)), 0, 255).astype(np.uint8)
    return View(original, noisy, np.concatenate([affine, [[0, 0, 1]]]))


@dataclass(frozen=True, eq=False)
class Score:
    """How one descriptor did: matches that it made, and which are right."""

    descriptor: str
    xy_a: FloatArray
    xy_b: FloatArray
    error: FloatArray

    @property
    def right(self) -> int:
        """Matches within 3 pixels of the truth."""
        return int(np.sum(self.error < _RIGHT))


def score(seen: View, descriptor: str) -> Score:
    """Match with one descriptor and hold every match against the known homography."""
    a = features.extract(seen.original, descriptor, max_features=FEATURES)
    b = features.extract(seen.changed, descriptor, max_features=FEATURES)
    found = features.match(a, b)
    p, q = a.frames.xy[found.indices[:, 0]], b.frames.xy[found.indices[:, 1]]
    truth = np.concatenate([p, np.ones((len(p), 1))], 1) @ seen.homography.T
    return Score(descriptor, p, q, np.linalg.norm(truth[:, :2] / truth[:, 2:] - q, axis=1))


def run(out: Path) -> tuple[list[Score], Path]:
    """All descriptors of the demonstration, and one picture of them, right matches green."""
    out.mkdir(parents=True, exist_ok=True)
    seen = view()
    scores = [score(seen, name) for name in DESCRIPTORS]
    rows = []
    for s in scores:
        title = f"{s.descriptor}: {s.right} of {len(s.error)} matches are right (green)"
        residual = np.where(s.error < _RIGHT, 0.0, 1.0)
        rows.append(
            viz.draw_matches(
                seen.original, seen.changed, s.xy_a, s.xy_b, residual, 1.0, title, most=len(s.error)
            )
        )
    path = out / "demo.png"
    viz.write_picture(path, np.concatenate(rows))
    return scores, path
