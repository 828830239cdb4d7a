"""The data with which descriptors are chosen and whitening is learned, without Oxford Affine.

* Choosing: photographs and strong synthetic changes of them, with the keypoints and metrics of the
  benchmarks.
* Learning: the images of the scikit-image package and synthetic changes of them. What is learned
  from these may be shipped.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric import synthetic
from caloric.bench.correspondence import corresponding
from caloric.bench.methods import opencv_keypoints, read_gray
from caloric.bench.metrics import average_precision, correct_matches
from caloric.bench.pair_data import Camera, fundamental
from caloric.descriptor import engine, whitening
from caloric.descriptor.options import DescribeOptions
from caloric.descriptor.recipes import Descriptor
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image import scalespace
from caloric.image.pixels import to_gray
from caloric.matching.neighbors import neighbors
from caloric.runtime import threads
from caloric.types import FloatArray

SAMPLE_IMAGES = (
    "astronaut.png", "brick.png", "camera.png", "cell.png", "chelsea.png", "clock_motion.png",
    "coffee.png", "coins.png", "grass.png", "gravel.png", "hubble_deep_field.jpg", "ihc.png",
    "moon.png", "motorcycle_left.png", "page.png", "retina.jpg", "rocket.jpg", "text.png",
)  # fmt: skip
_MAX_SIDE = 1000  # pixels
_KEYPOINTS = 800


@dataclass(frozen=True, eq=False)
class View:
    """The scale space of an image, and its keypoints."""

    ladder: scalespace.Ladder
    frames: Frames


@dataclass(frozen=True, eq=False)
class Views:
    """An image, a changed version of it, and the indices (m, 2) of corresponding frames."""

    first: View
    second: View
    truth: NDArray[np.intp]


def _downsampled(image: NDArray[np.uint8]) -> NDArray[np.uint8]:
    scale = _MAX_SIDE / max(image.shape)
    if scale >= 1:
        return image
    size = (round(scale * image.shape[1]), round(scale * image.shape[0]))
    return np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA), np.uint8)


def sample_images() -> list[NDArray[np.uint8]]:
    """Return the images of the scikit-image package in grayscale, at most 1,000 pixels long."""
    import skimage

    directory = Path(skimage.__file__).parent / "data"
    missing = [name for name in SAMPLE_IMAGES if not (directory / name).is_file()]
    if missing:
        raise InputError(f"scikit-image has no {', '.join(missing)}; install version 0.22 to 0.26")
    return [_downsampled(read_gray(directory / name)) for name in SAMPLE_IMAGES]


def photographs(directory: Path) -> list[NDArray[np.uint8]]:
    """Return the photographs of a directory in grayscale, sorted by name."""
    paths = sorted(p for p in directory.glob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png"))
    if not paths:
        raise InputError(f"{directory}: contains no images (.jpg, .png)")
    return [_downsampled(read_gray(path)) for path in paths]


def view(image: NDArray[np.uint8], count: int = _KEYPOINTS) -> View:
    """Return the scale space of an image with its strongest OpenCV keypoints."""
    frames = Frames.from_opencv(opencv_keypoints(image, count))
    return View(scalespace.build(to_gray(image)).ladder(), frames)


def changed(image: NDArray[np.uint8], seed: Sequence[int]) -> Views:
    """Return an image and a strong synthetic change of it."""
    rng = np.random.default_rng(list(seed))
    change = synthetic.draw(rng, (image.shape[0], image.shape[1]))
    a, b = view(image), view(synthetic.apply(image, change, rng))
    return Views(a, b, corresponding(a.frames, b.frames, change.homography).indices)


def whitening_pairs() -> list[Views]:
    """Return the data of the shipped whitening: two changes of each sample image."""
    images = sample_images()
    return [changed(image, (k, i)) for k in (7, 8) for i, image in enumerate(images)]


def for_choosing(images: list[NDArray[np.uint8]]) -> list[Views]:
    """Return three changes of each of 16 random photographs."""
    return [changed(images[i], (k, i)) for k in (1, 2, 3) for i in _permutation(images)[:16]]


def held_out(images: list[NDArray[np.uint8]]) -> list[Views]:
    """Return two changes of each of 16 other photographs, not used for choosing."""
    return [changed(images[i], (k, i)) for k in (1, 2) for i in _permutation(images)[16:32]]


def _permutation(images: list[NDArray[np.uint8]]) -> NDArray[np.intp]:
    return np.random.default_rng(0).permutation(len(images))


def matched(
    pairs: list[Views], values: Callable[[View], NDArray[np.float32]]
) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the descriptors (m, D) of corresponding frames in the first and second views."""
    a = [values(pair.first)[pair.truth[:, 0]] for pair in pairs]
    b = [values(pair.second)[pair.truth[:, 1]] for pair in pairs]
    return np.concatenate(a), np.concatenate(b)


def plain(image: View, recipe: Descriptor) -> NDArray[np.float32]:
    """Return normalized descriptors (n, D) without whitening."""
    unwhitened = replace(recipe, whitening=None, dimensions=None)
    values = engine.describe_levels(
        image.ladder, image.frames.maps, DescribeOptions(descriptor=unwhitened)
    )
    return np.asarray(values, np.float32)


@threads.single_threaded_blas
def learned(views: list[View], recipe: Descriptor, t: float, dimension: int) -> NDArray[np.float32]:
    """Return the whitening matrix (D, d) of a recipe, learned from views."""
    values = [plain(view, recipe) for view in views if len(view.frames)]
    return whitening.learn(np.concatenate(values), t, dimension)


@threads.single_threaded_blas
def whitened(image: View, recipe: Descriptor, matrix: NDArray[np.float32]) -> NDArray[np.float32]:
    """Return descriptors (n, d), whitened by a given matrix."""
    return np.asarray(whitening.apply(plain(image, recipe), matrix), np.float32)


@threads.single_threaded_blas
def score(pair: Views, a: NDArray[np.float32], b: NDArray[np.float32]) -> float:
    """Return the average precision of the descriptors of two views, as in the benchmarks."""
    matches = neighbors(a, b, None, 0.0)
    is_correct = correct_matches(matches.nearest, pair.truth)
    possible = max(1, len(np.unique(pair.truth[:, 0])))
    return average_precision(matches.first.astype(np.float64), is_correct, possible)


class Scene:
    """A scene of Strecha's data set at half resolution: views and cameras."""

    def __init__(self, directory: Path, count: int = 1000) -> None:
        """Read ``cameras.json`` and ``images/`` of a directory."""
        try:
            cameras = json.loads((directory / "cameras.json").read_text())
        except OSError:
            raise InputError(
                f"{directory}: contains no cameras.json; name the directory of a scene"
            ) from None
        self.views: list[View] = []
        self.cameras: list[tuple[FloatArray, FloatArray, FloatArray]] = []
        half = np.array([[0.5, 0, -0.25], [0, 0.5, -0.25], [0, 0, 1]])
        for name, camera in sorted(cameras.items()):
            image = read_gray(directory / "images" / name)
            small = cv2.resize(image, None, fx=0.5, fy=0.5, interpolation=cv2.INTER_AREA)
            self.views.append(view(np.asarray(small, np.uint8), count))
            numbers = (half @ camera["K"], camera["R_world_to_cam"], camera["centre"])
            k, r, c = (np.array(v, np.float64) for v in numbers)
            self.cameras.append((k, r, c))

    def fundamental(self, i: int, j: int) -> FloatArray:
        """Return the fundamental matrix (3, 3) from image i to image j."""
        return fundamental(Camera(*self.cameras[i]), Camera(*self.cameras[j]))

    @threads.single_threaded_blas
    def score(self, values: list[NDArray[np.float32]]) -> float:
        """Return the mean share of keypoints with a correct mutual nearest neighbor.

        Images are one to three apart; a match is correct within 1.5 pixels of the epipolar lines.
        """
        shares = []
        for i in range(len(values)):
            for j in range(i + 1, min(i + 4, len(values))):
                matches = neighbors(values[i], values[j], None, 0.0)
                rows = np.flatnonzero(matches.mutual)
                p = self.views[i].frames.xy[rows]
                q = self.views[j].frames.xy[matches.nearest[rows]]
                x, y = (np.column_stack([v, np.ones(len(v))]) for v in (p, q))
                matrix = self.fundamental(i, j)
                lines_j, lines_i = x @ matrix.T, y @ matrix
                residual = np.abs((y * lines_j).sum(1))
                distance = residual / np.minimum(np.hypot(*lines_j.T[:2]), np.hypot(*lines_i.T[:2]))
                shares.append((distance < 1.5).sum() / len(values[i]))
        return float(np.mean(shares))
