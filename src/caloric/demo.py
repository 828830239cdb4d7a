"""A demonstration without input: a photograph matched with a strongly changed view of it."""

from dataclasses import dataclass
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import pipeline, viz
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.theory.gaussians import FloatArray

DESCRIPTORS = ("sift", "caloric")
FEATURES = 2000
_CORRECT = 3.0  # pixels: the largest error of a correct match
_DRAWN = 100  # lines
KERNELS = ("sift", "dsp-inner", "similarity", "heat")
_PLACES = {"in the middle": (0.15, 0.05), "far out": (0.6, -0.35)}  # x of a descriptor entry
_SIDE = 180
_BETA = np.radians(35.0)


@dataclass(frozen=True, eq=False)
class View:
    """A photograph, a changed view of it, and the homography (3, 3) between them."""

    original: NDArray[np.uint8]
    changed: NDArray[np.uint8]
    homography: FloatArray


def view() -> View:
    """Return a photograph of a cat, and a tilted, rotated, relit, blurred and noisy view of it."""
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
    rotation, axis = (
        np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for a in np.radians([35, 20])
    )
    A = 1.05 * rotation @ tilt @ axis
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]]) @ A.T
    low = corners.min(0)
    size = np.ceil(corners.max(0) - low).astype(int)
    affine = np.concatenate([A, -low[:, None]], 1)
    grey = (127, 127, 127)
    moved = cv2.warpAffine(original, affine, size.tolist(), flags=cv2.INTER_AREA, borderValue=grey)
    rng = np.random.default_rng(0)
    light = np.linspace(0.45, 1.15, size[0])[None, :, None]
    relit = 255 * (cv2.GaussianBlur(moved, (0, 0), 1.0) / 255.0) ** 1.4 * light
    noisy = np.clip(np.rint(relit + 3 * rng.standard_normal(relit.shape)), 0, 255).astype(np.uint8)
    return View(original, noisy, np.concatenate([affine, [[0, 0, 1]]]))


@dataclass(frozen=True, eq=False)
class Score:
    """The matches of one descriptor, (m, 2) in each image, and their errors (m,) in pixels."""

    descriptor: str
    xy_a: FloatArray
    xy_b: FloatArray
    error: FloatArray

    @property
    def right(self) -> int:
        """Return the number of matches within 3 pixels of the ground truth."""
        return int(np.sum(self.error < _CORRECT))


def score(views: View, descriptor: str) -> Score:
    """Match both images by one descriptor; return the errors by the known homography."""
    a = pipeline.extract(views.original, descriptor, max_features=FEATURES)
    b = pipeline.extract(views.changed, descriptor, max_features=FEATURES)
    matches = pipeline.match(a, b)
    p, q = a.frames.xy[matches.indices[:, 0]], b.frames.xy[matches.indices[:, 1]]
    truth = np.concatenate([p, np.ones((len(p), 1))], 1) @ views.homography.T
    return Score(descriptor, p, q, np.linalg.norm(truth[:, :2] / truth[:, 2:] - q, axis=1))


def _panel(name: str, patch: NDArray[np.uint8], x: tuple[float, float]) -> NDArray[np.uint8]:
    """Return a picture of the weight that the entry at ``x`` gives to each point of a patch."""
    kernel = recipes.descriptor(name).kernel
    along = (np.arange(_SIDE) + 0.5) * 2 / _SIDE - 1
    y = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    angles = _BETA + np.linspace(-np.pi / 2, np.pi / 2, 61)
    best = np.max([kernel.evaluate(np.array(_BETA), np.array(x), phi, y) for phi in angles], 0)
    weight = (best / best.max()).reshape(_SIDE, _SIDE, 1)
    grey = cv2.resize(patch, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC)[..., None]
    hot = cv2.applyColorMap((255 * weight).astype(np.uint8), cv2.COLORMAP_INFERNO)[..., ::-1]
    opacity = 0.75 * np.sqrt(weight)
    panel = ((1 - opacity) * grey + opacity * hot).astype(np.uint8)
    at = tuple(int((v + 1) * _SIDE / 2) for v in x)
    cv2.drawMarker(panel, at, (255, 255, 255), cv2.MARKER_CROSS, 9)
    return np.asarray(panel, np.uint8)


def kernels_picture(original: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return a picture of the kernels over a patch, for an entry in the middle and one far out."""
    grey = np.asarray(cv2.cvtColor(original, cv2.COLOR_RGB2GRAY), np.uint8)
    patch = grey[75:175, 115:215]
    panels = []
    for where, x in _PLACES.items():
        for name in KERNELS:
            head = np.full((34, _SIDE, 3), 255, np.uint8)
            viz.write(head, f"{name}, {where}", (4, 17))
            panels.append(np.concatenate([head, _panel(name, patch, x)]))
    return np.concatenate(panels, 1)


def run(out: Path) -> tuple[list[Score], Path]:
    """Run the demonstration; return the scores, and the path of a picture.

    The picture shows correct matches in green, and below them the weights of the kernels over a
    patch.
    """
    out.mkdir(parents=True, exist_ok=True)
    views = view()
    scores = [score(views, name) for name in DESCRIPTORS]
    rows = []
    for s in scores:
        title = f"{s.descriptor}: {s.right} of {len(s.error)} matches are right (green)"
        residual = np.where(s.error < _CORRECT, 0.0, _CORRECT)
        rows.append(
            viz.draw_matches(
                views.original,
                views.changed,
                s.xy_a,
                s.xy_b,
                errors=residual,
                limit=_CORRECT,
                title=title,
                most=_DRAWN,
            ).pixels
        )
    path = out / "demo.png"
    parts = [np.concatenate(rows, 1), kernels_picture(views.original)]
    width = max(p.shape[1] for p in parts)
    wide = [
        np.pad(p, ((0, 0), (0, width - p.shape[1]), (0, 0)), constant_values=255) for p in parts
    ]
    viz.Picture(np.concatenate(wide)).save(path)
    return scores, path
