"""A tour without input: one page with three things, from pictures that come with scikit-image."""

import html
import io
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray
from PIL import Image

from caloric import pipeline, viz
from caloric.alignment.align import Alignment, align
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.image_pair import match_images
from caloric.runtime.files import replacing
from caloric.types import FloatArray
from caloric.view.pictures import address

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
    original = _photograph("chelsea")
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


def by_descriptors(views: View) -> tuple[list[Score], NDArray[np.uint8]]:
    """Return the scores of SIFT's descriptor and the default, and a picture of both."""
    scores = [score(views, name) for name in DESCRIPTORS]
    rows = []
    for s in scores:
        title = f"{s.descriptor}: {s.right} of {len(s.error)} matches are right (green)"
        residual = np.where(s.error < _CORRECT, 0.0, _CORRECT)
        rows.append(
            viz.draw_matches(
                views.original, views.changed, s.xy_a, s.xy_b,
                errors=residual, limit=_CORRECT, title=title, most=_DRAWN,
            ).pixels
        )  # fmt: skip
    return scores, np.concatenate(rows, 1)


def _photograph(name: str) -> NDArray[np.uint8]:
    try:
        from skimage import data
    except ImportError:
        raise InputError(
            "the demonstration takes its photographs from scikit-image; "
            "install it with: pip install scikit-image"
        ) from None
    return np.asarray(getattr(data, name)(), np.uint8)


def from_aside() -> View:
    """Return a photograph, and the same as a plane seen from 78 degrees aside."""
    photograph = _photograph("coffee")
    h, w = photograph.shape[:2]
    squeeze = np.array([[1 / _TILT, 0, 0], [0, 1, 0], [np.sqrt(1 - _TILT**-2) / (2.2 * w), 0, 1]])
    corners = np.array([[0, 0, 1], [w, 0, 1], [w, h, 1], [0, h, 1]]) @ squeeze.T
    corners = corners[:, :2] / corners[:, 2:]
    low, size = corners.min(0) - 12, np.ceil(np.ptp(corners, axis=0) + 24).astype(int)
    homography = np.array([[1, 0, -low[0]], [0, 1, -low[1]], [0, 0, 1.0]]) @ squeeze
    # Rendered larger and averaged, as the pixels of a camera are.
    fine = np.diag([_FINER, _FINER, 1.0]) @ homography
    large = cv2.warpPerspective(photograph, fine, (_FINER * size).tolist(), borderValue=(40,) * 3)
    aside = cv2.resize(large, size.tolist(), interpolation=cv2.INTER_AREA)
    return View(photograph, np.asarray(aside, np.uint8), homography)


_TILT, _FINER = 5.0, 6


def _by_opencv(views: View) -> tuple[FloatArray, FloatArray]:
    """Return the points that OpenCV's SIFT matches, with the usual ratio of 0.8."""
    sift = cv2.SIFT_create(8000)  # type: ignore[attr-defined]
    images = (cv2.cvtColor(v, cv2.COLOR_RGB2GRAY) for v in (views.original, views.changed))
    (points_a, a), (points_b, b) = (sift.detectAndCompute(image, None) for image in images)
    pairs = cv2.BFMatcher().knnMatch(a, b, k=2)
    kept = [first for first, second in pairs if first.distance < 0.8 * second.distance]
    return (
        np.array([points_a[m.queryIdx].pt for m in kept], np.float64).reshape(-1, 2),
        np.array([points_b[m.trainIdx].pt for m in kept], np.float64).reshape(-1, 2),
    )


def aside_picture(views: View) -> tuple[str, viz.Picture]:
    """Return what OpenCV's SIFT and Caloric match in a view from aside, and a picture of it."""
    pair = match_images(views.original, views.changed)
    panels, said = [], []
    for name, (a, b) in (
        ("OpenCV SIFT", _by_opencv(views)),
        ("Caloric", (pair.points_a, pair.points_b)),
    ):
        truth = cv2.perspectiveTransform(a[None], views.homography)[0]
        errors = np.where(np.linalg.norm(truth - b, axis=1) < _CORRECT, 0.0, _CORRECT)
        said.append(f"{name}: {np.sum(errors == 0)} of {len(a)} matches right")
        drawn = viz.draw_matches(
            views.original, views.changed, a, b,
            errors=errors, limit=_CORRECT, title=said[-1], most=_DRAWN,
        )  # fmt: skip
        panels.append(drawn.pixels)
    gap = np.full((len(panels[0]), 16, 3), 255, np.uint8)
    return "; ".join(said), viz.Picture(np.concatenate([panels[0], gap, panels[1]], 1))


@dataclass(frozen=True, eq=False)
class Found:
    """A part of a photograph, found in a changed view of the whole, from ``start`` (2, 3) on."""

    part: NDArray[np.uint8]
    whole: NDArray[np.uint8]
    start: FloatArray
    alignment: Alignment


def aligned() -> Found:
    """Return where a face is in a turned, smaller, shaded and noisy view, a quarter covered."""
    photograph = _photograph("astronaut")
    part = photograph[60:200, 150:290]
    turn = cv2.getRotationMatrix2D((220.0, 130.0), 30, 0.8)
    turn[:, 2] += (42, 34)
    seen = cv2.warpAffine(photograph, turn, (512, 512), borderValue=(90.0,) * 3)
    shaded = np.linspace(0.45, 1.0, 512)[None, :, None] * cv2.GaussianBlur(seen, (0, 0), 1.2)
    covered = np.array([[150, 165, 1], [290, 165, 1], [290, 200, 1], [150, 200, 1]]) @ turn.T
    cv2.fillPoly(shaded, [np.rint(covered).astype(np.int32)], (70.0,) * 3)
    noisy = shaded + 6 * np.random.default_rng(0).standard_normal(shaded.shape)
    whole = np.clip(noisy, 0, 255).astype(np.uint8)
    start = np.array([[1.0, 0, 150], [0, 1, 60]])
    return Found(part, whole, start, align(part, whole, initial=start))


def animation(found: Found) -> bytes:
    """Return an animated picture (WebP) of how the part goes to its place while σ shrinks."""
    h, w = found.part.shape[:2]
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float64)
    steps = found.alignment.path
    maps = [found.start, *(step.point for step in steps)]
    sigmas = [steps[0].sigma, *(step.sigma for step in steps)]
    frames = []
    for i in range(len(maps) - 1):
        for t in np.linspace(0, 1, 6, endpoint=False):
            t = t * t * (3 - 2 * t)
            frames.append(((1 - t) * maps[i] + t * maps[i + 1], sigmas[i + 1]))
    frames += [(maps[-1], sigmas[-1])] * 16
    pictures = []
    for transform, sigma in frames:
        part, whole = (
            cv2.GaussianBlur(v, (0, 0), max(0.5, 0.5 * sigma)) for v in (found.part, found.whole)
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        inside = cv2.warpAffine(whole, transform, (w, h), flags=flags)
        outline = np.rint(corners @ transform[:, :2].T + transform[:, 2]).astype(np.int32)
        cv2.polylines(whole, [outline], True, (80, 220, 120), 4, cv2.LINE_AA)
        told = f"sigma {sigma:.0f} pixels" if sigma >= 2 else f"sigma {sigma:.1f} pixels"
        picture = _side_by_side(
            (part, "the part"), (whole, f"the whole, {told}"), (inside, "inside the frame")
        )
        pictures.append(Image.fromarray(picture))
    buffer = io.BytesIO()
    pictures[0].save(
        buffer, "WEBP", save_all=True, append_images=pictures[1:], duration=60, loop=0, quality=60,
        method=0,
    )  # fmt: skip
    return buffer.getvalue()


def _side_by_side(*panels: tuple[NDArray[Any], str]) -> NDArray[np.uint8]:
    """Return square pictures of one size beside each other, with their titles above."""
    canvas = np.full((_SHOWN + 26, len(panels) * (_SHOWN + 8) - 8, 3), 255, np.uint8)
    for i, (picture, title) in enumerate(panels):
        left = i * (_SHOWN + 8)
        square = cv2.resize(picture, (_SHOWN, _SHOWN), interpolation=cv2.INTER_LINEAR)
        canvas[26:, left : left + _SHOWN] = square
        viz.write(canvas, title, (left, 12))
    return canvas


_SHOWN = 300  # pixels across a panel of the animation

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Caloric: what it does</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 17px/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 1200px; padding: 1rem; }}
h1 {{ margin-bottom: 0; }} h2 {{ margin: 2.5rem 0 .3rem; }}
img {{ display: block; width: 100%; height: auto; border-radius: 6px; margin: .6rem 0; }}
code, pre {{ font: 15px/1.45 ui-monospace, monospace; }}
figure {{ margin: 0; }} figcaption {{ font-size: 15px; opacity: .8; }}
pre {{ white-space: pre-wrap; padding: .7rem 1rem; border-radius: 6px; border: 1px solid #8886; }}
</style>
<h1>Caloric</h1>
<p>Local features that match by heat diffusion. Three things it does, made on this machine in
{seconds:.0f} seconds from pictures that come with scikit-image.</p>
{sections}
<p>More: <code>caloric view A.jpg B.jpg</code> on your own photographs, and the documentation.</p>
</html>
"""
_SECTION = """<h2>{number}. {title}</h2>
<p>{text}</p>
<figure><img alt="{said}" src="{source}"><figcaption>{said}</figcaption></figure>
<pre>{code}</pre>
"""


def _section(number: int, title: str, text: str, said: str, picture: bytes, code: str) -> str:
    source = address(picture, "webp" if picture[8:12] == b"WEBP" else "png")
    return _SECTION.format(
        number=number, title=title, text=text, said=html.escape(said), source=source,
        code=html.escape(code),
    )  # fmt: skip


def run(out: Path) -> tuple[list[Score], str, Path]:
    """Write the tour, ``index.html``, and ``demo.png``; return scores, a sentence and the page."""
    started = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    views = view()
    scores, matched = by_descriptors(views)
    kernels = kernels_picture(views.original)
    said, aside = aside_picture(from_aside())
    found = aligned()
    wide = max(matched.shape[1], kernels.shape[1])
    both = [
        cv2.resize(p, (wide, round(len(p) * wide / p.shape[1])), interpolation=cv2.INTER_CUBIC)
        for p in (matched, kernels)
    ]
    better = viz.Picture(np.concatenate(both))
    better.save(out / "demo.png")
    right = "; ".join(f"{s.descriptor}: {s.right} of {len(s.error)} right" for s in scores)
    sections = [
        _section(
            1, "A picture seen from 78 degrees aside",
            "Where two photographs give no geometry that is believed, views from aside are "
            "simulated. Right matches are green.",
            said, aside.png(), "pair = caloric.match_images(a, b)   # pair.points_a, pair.points_b",
        ),
        _section(
            2, "A part aligned with a turned, smaller, shaded view, a quarter of it covered",
            "The theory's own algorithm: an energy is diffused until it has one minimum, which is "
            "followed while the diffusion shrinks. It says how likely it is right: "
            f"{found.alignment.confidence:.2f}.",
            "a face, outlined while it moves to its place in a changed view", animation(found),
            "found = caloric.align(part, whole)   # found.transform, found.confidence",
        ),
        _section(
            3, "More right matches at the price of SIFT",
            "SIFT's descriptor and the default on a tilted, relit, blurred and noisy view. Below, "
            "what an entry of a descriptor takes of a patch: SIFT's kernel stays as small far out, "
            "the others grow as the theory says.",
            right, better.png(),
            "features = caloric.extract(image, 'caloric')   # or 'sift', 'heat', …",
        ),
    ]  # fmt: skip
    page = out / "index.html"
    seconds = time.perf_counter() - started
    text = _PAGE.format(sections="".join(sections), seconds=max(1, seconds))
    with replacing(page) as file:
        file.write(text.encode())
    return scores, said, page
