"""``caloric demo``: a page with three examples on images that come with scikit-image."""

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

from caloric import pipeline, synthetic, viz
from caloric.alignment.align import Alignment, align
from caloric.descriptor import recipes
from caloric.errors import InputError
from caloric.image_pair import match_images
from caloric.runtime.files import replacing
from caloric.synthetic import View
from caloric.types import FloatArray
from caloric.view.images import data_url

DESCRIPTORS = ("sift", "caloric")
FEATURES = 2000
KERNELS = ("sift", "dsp-inner", "similarity", "heat")
_CORRECT = 3.0  # largest error of a correct match in pixels
_MAX_LINES = 100
_TILT = 5.0  # 78° from the surface normal
_ENTRIES = {"near the center": (0.15, 0.05), "near the border": (0.6, -0.35)}
_SIDE = 180  # side of a kernel panel in pixels
_BETA = np.radians(35.0)  # direction of the entries
_PANEL = 300  # side of a panel of the animation in pixels


@dataclass(frozen=True, eq=False)
class Score:
    """The matches of one method, (m, 2) in each image, and their errors (m,) in pixels."""

    name: str
    xy_a: FloatArray
    xy_b: FloatArray
    errors: FloatArray

    @property
    def correct(self) -> int:
        """Return the number of matches within 3 pixels of the ground truth."""
        return int(np.sum(self.errors < _CORRECT))

    def __str__(self) -> str:
        """Return the number of correct matches as text."""
        return f"{self.name}: {self.correct} of {len(self.errors)} matches correct"

    def drawn(self, views: View) -> NDArray[np.uint8]:
        """Return an image of the matches: correct ones are green, incorrect ones orange."""
        return viz.draw_matches(
            views.original, views.changed, self.xy_a, self.xy_b,
            errors=np.where(self.errors < _CORRECT, 0.0, _CORRECT), limit=_CORRECT,
            title=str(self), max_lines=_MAX_LINES,
        ).pixels  # fmt: skip


def _photograph(name: str) -> NDArray[np.uint8]:
    try:
        from skimage import data
    except ImportError:
        raise InputError(
            "the demo needs photographs from scikit-image: pip install 'caloric[demo]'"
        ) from None
    return np.asarray(getattr(data, name)(), np.uint8)


def changed_view() -> View:
    """Return a photograph of a cat, and a tilted, rotated, relit, blurred and noisy view of it."""
    original = _photograph("chelsea")
    tilt = np.eye(3)
    tilt[:2, :2] = (
        1.05 * synthetic.rotation(np.radians(35)) @ np.diag([0.52, 1.0])
        @ synthetic.rotation(np.radians(20))
    )  # fmt: skip
    homography, size = synthetic.fitted(tilt, original.shape)
    view = synthetic.render(original, homography, size, border=(127, 127, 127))
    blurred = cv2.GaussianBlur(view, (0, 0), 1.0) / 255.0
    shading = np.linspace(0.45, 1.15, size[0])[None, :, None]
    changed = synthetic.relit(blurred, 1.4, shading, 3 / 255, np.random.default_rng(0))
    return View(original, changed, homography)


def oblique_view() -> View:
    """Return a photograph and an oblique view of it, 78° from the surface normal."""
    original = _photograph("coffee")
    homography, size = synthetic.fitted(
        synthetic.oblique(original.shape, _TILT), original.shape, margin=12
    )
    changed = synthetic.render(original, homography, size, border=(40, 40, 40))
    return View(original, np.asarray(changed, np.uint8), homography)


def score(views: View, descriptor: str) -> Score:
    """Match both images with one descriptor."""
    a, b = (
        pipeline.extract(image, descriptor, max_features=FEATURES)
        for image in (views.original, views.changed)
    )
    points = pipeline.match(a, b).points(a.frames.xy, b.frames.xy)
    return Score(descriptor, *points, views.errors(*points))


def _opencv_matches(views: View) -> tuple[FloatArray, FloatArray]:
    """Return the matched points of OpenCV's SIFT with a ratio test of 0.8."""
    sift = cv2.SIFT_create(8000)  # type: ignore[attr-defined]
    images = (cv2.cvtColor(v, cv2.COLOR_RGB2GRAY) for v in (views.original, views.changed))
    (points_a, a), (points_b, b) = (sift.detectAndCompute(image, None) for image in images)
    pairs = cv2.BFMatcher().knnMatch(a, b, k=2)
    kept = [first for first, second in pairs if first.distance < 0.8 * second.distance]
    return (
        np.array([points_a[m.queryIdx].pt for m in kept], np.float64).reshape(-1, 2),
        np.array([points_b[m.trainIdx].pt for m in kept], np.float64).reshape(-1, 2),
    )


def compare_oblique(views: View) -> tuple[str, viz.Figure]:
    """Return the scores of OpenCV's SIFT and Caloric on an oblique view, and a figure of both."""
    pair = match_images(views.original, views.changed, model="homography")
    matches = {"OpenCV SIFT": _opencv_matches(views), "Caloric": (pair.points_a, pair.points_b)}
    scores = [Score(name, *points, views.errors(*points)) for name, points in matches.items()]
    return "; ".join(map(str, scores)), viz.Figure(_draw_both(views, scores))


def _draw_both(views: View, scores: list[Score]) -> NDArray[np.uint8]:
    """Return the matches of two methods side by side."""
    first, second = (s.drawn(views) for s in scores)
    return np.concatenate([first, np.full((len(first), 16, 3), 255, np.uint8), second], 1)


def _kernel_panel(name: str, patch: NDArray[np.uint8], x: tuple[float, float]) -> NDArray[np.uint8]:
    """Return an image of the weight that the entry at ``x`` gives to each point of a patch."""
    kernel = recipes.descriptor(name).kernel
    along = (np.arange(_SIDE) + 0.5) * 2 / _SIDE - 1
    y = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
    angles = _BETA + np.linspace(-np.pi / 2, np.pi / 2, 61)
    best = np.max([kernel.evaluate(np.array(_BETA), np.array(x), phi, y) for phi in angles], 0)
    weight = (best / best.max()).reshape(_SIDE, _SIDE, 1)
    gray = cv2.resize(patch, (_SIDE, _SIDE), interpolation=cv2.INTER_CUBIC)[..., None]
    heat = cv2.applyColorMap((255 * weight).astype(np.uint8), cv2.COLORMAP_INFERNO)[..., ::-1]
    opacity = 0.75 * np.sqrt(weight)
    panel = ((1 - opacity) * gray + opacity * heat).astype(np.uint8)
    center = tuple(int((v + 1) * _SIDE / 2) for v in x)
    cv2.drawMarker(panel, center, (255, 255, 255), cv2.MARKER_CROSS, 9)
    return np.asarray(panel, np.uint8)


def draw_kernels(original: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return an image of the kernels over a patch, for an inner and an outer entry."""
    gray = np.asarray(cv2.cvtColor(original, cv2.COLOR_RGB2GRAY), np.uint8)
    patch = gray[75:175, 115:215]
    panels = []
    for location, x in _ENTRIES.items():
        for name in KERNELS:
            header = np.full((34, _SIDE, 3), 255, np.uint8)
            viz.write(header, f"{name}, {location}", (4, 17), 12)
            panels.append(np.concatenate([header, _kernel_panel(name, patch, x)]))
    return np.concatenate(panels, 1)


@dataclass(frozen=True, eq=False)
class Aligned:
    """A template and its alignment with an image, starting from the transform ``start`` (2, 3)."""

    template: NDArray[np.uint8]
    image: NDArray[np.uint8]
    start: FloatArray
    alignment: Alignment


def aligned() -> Aligned:
    """Align a face with a rotated, smaller, shaded and noisy view in which a quarter is hidden."""
    photograph = _photograph("astronaut")
    template = photograph[60:200, 150:290]
    motion = synthetic.similarity(0.8, -30, (42, 34), (220.0, 130.0))
    view = synthetic.warp(photograph, motion, (512, 512), border=(90.0,) * 3)
    shaded = np.linspace(0.45, 1.0, 512)[None, :, None] * cv2.GaussianBlur(view, (0, 0), 1.2)
    hidden = np.array([[150, 165, 1], [290, 165, 1], [290, 200, 1], [150, 200, 1]]) @ motion.T
    cv2.fillPoly(shaded, [np.rint(hidden).astype(np.int32)], (70.0,) * 3)
    image = synthetic.relit(shaded / 255, 1.0, 1.0, 6 / 255, np.random.default_rng(0))
    start = np.array([[1.0, 0, 150], [0, 1, 60]])
    return Aligned(template, image, start, align(template, image, initial=start))


def animation(result: Aligned) -> bytes:
    """Return an animated WebP image of the outline, which moves to the template as σ decreases."""
    h, w = result.template.shape[:2]
    corners = np.array([[0, 0], [w, 0], [w, h], [0, h]], np.float64) - 0.5
    steps = result.alignment.path
    maps = [result.start, *(step.point for step in steps)]
    frames = []
    for before, after, step in zip(maps, maps[1:], steps, strict=False):
        for t in np.linspace(0, 1, 6, endpoint=False):
            eased = t * t * (3 - 2 * t)
            frames.append(((1 - eased) * before + eased * after, step.sigma))
    frames += [(maps[-1], steps[-1].sigma)] * 16
    images = []
    for transform, sigma in frames:
        template, image = (
            cv2.GaussianBlur(v, (0, 0), max(0.5, 0.5 * sigma))
            for v in (result.template, result.image)
        )
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        inside = cv2.warpAffine(image, transform, (w, h), flags=flags)
        outline = np.rint(corners @ transform[:, :2].T + transform[:, 2]).astype(np.int32)
        cv2.polylines(image, [outline], True, (80, 220, 120), 4, cv2.LINE_AA)
        panels = {
            "template": template,
            f"image, sigma {sigma:.{0 if sigma >= 2 else 1}f} px": image,
            "inside the outline": inside,
        }
        images.append(Image.fromarray(_side_by_side(panels)))
    buffer = io.BytesIO()
    images[0].save(
        buffer, "WEBP", save_all=True, append_images=images[1:], duration=60, loop=0, quality=60,
        method=0,
    )  # fmt: skip
    return buffer.getvalue()


def _side_by_side(panels: dict[str, NDArray[Any]]) -> NDArray[np.uint8]:
    """Return images, resized to squares, side by side with their titles."""
    canvas = np.full((_PANEL + 26, len(panels) * (_PANEL + 8) - 8, 3), 255, np.uint8)
    for i, (title, pixels) in enumerate(panels.items()):
        left = i * (_PANEL + 8)
        square = cv2.resize(pixels, (_PANEL, _PANEL), interpolation=cv2.INTER_LINEAR)
        canvas[26:, left : left + _PANEL] = square
        viz.write(canvas, title, (left, 12))
    return canvas


_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>Caloric: demo</title>
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
<p>Local image features by heat diffusion. Three examples, computed on this machine in
{seconds:.0f} seconds from photographs that come with scikit-image.</p>
{sections}
<p>To match your own photographs, run <code>caloric view A.jpg B.jpg</code>.</p>
</html>
"""
_SECTION = """<h2>{number}. {title}</h2>
<p>{text}</p>
<figure><img alt="{caption}" src="{source}"><figcaption>{caption}</figcaption></figure>
<pre>{code}</pre>
"""


@dataclass(frozen=True)
class _Section:
    """A section of the page; ``image`` is a PNG or WebP file."""

    title: str
    text: str
    caption: str
    image: bytes
    code: str

    def html(self, number: int) -> str:
        """Return the section as HTML."""
        image_format = "webp" if self.image[8:12] == b"WEBP" else "png"
        return _SECTION.format(
            number=number, title=self.title, text=self.text, caption=html.escape(self.caption),
            source=data_url(self.image, image_format), code=html.escape(self.code),
        )  # fmt: skip


def run(out: Path) -> tuple[list[Score], str, Path]:
    """Write ``index.html`` and ``demo.png`` to a directory.

    Returns
    -------
    scores : list of Score
        The scores of SIFT's descriptor and of the default one.
    oblique : str
        The scores on the oblique view.
    page : Path
        The path of the page.
    """
    start = time.perf_counter()
    out.mkdir(parents=True, exist_ok=True)
    views = changed_view()
    scores = [score(views, name) for name in DESCRIPTORS]
    matched = _draw_both(views, scores)
    kernels = draw_kernels(views.original)
    height = round(len(kernels) * matched.shape[1] / kernels.shape[1])
    resized = cv2.resize(kernels, (matched.shape[1], height), interpolation=cv2.INTER_CUBIC)
    descriptors = viz.Figure(np.concatenate([matched, np.asarray(resized, np.uint8)]))
    descriptors.save(out / "demo.png")
    oblique, oblique_figure = compare_oblique(oblique_view())
    result = aligned()
    sections = [
        _Section(
            "Matching an oblique view, 78° from the surface normal",
            "If the original images yield no reliable geometry, Caloric simulates oblique views. "
            "Correct matches are green.",
            oblique, oblique_figure.png(),
            "pair = caloric.match_images(a, b, model='homography')  # pair.points_a, pair.points_b",
        ),
        _Section(
            "Aligning a template with a rotated, shaded, partly hidden view",
            "The alignment energy is diffused until it has a single minimum, which is then tracked "
            "while the diffusion is reduced. The confidence of the result is "
            f"{result.alignment.confidence:.2f}.",
            "The outline moves to the face as σ decreases.", animation(result),
            "alignment = caloric.align(template, image)   # alignment.transform, .confidence",
        ),
        _Section(
            "More correct matches at SIFT's computational cost",
            "SIFT's descriptor and the default one on a tilted, relit, blurred and noisy view. "
            "Bottom: the weight that one descriptor entry gives to each point of the patch. SIFT's "
            "kernel has the same width everywhere; the others widen with the distance from the "
            "center, as the theory predicts.",
            "; ".join(map(str, scores)), descriptors.png(),
            "features = caloric.extract(image, 'caloric')   # or 'sift', 'heat', …",
        ),
    ]  # fmt: skip
    page = out / "index.html"
    text = "".join(section.html(number) for number, section in enumerate(sections, 1))
    seconds = max(1, time.perf_counter() - start)
    with replacing(page) as file:
        file.write(_PAGE.format(sections=text, seconds=seconds).encode())
    return scores, oblique, page
