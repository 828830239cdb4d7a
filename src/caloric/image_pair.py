"""Two images in one call: features, matches, geometry, the matched points and a picture."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import pipeline, viz
from caloric.descriptor.engine import recipe_from
from caloric.descriptor.recipes import Descriptor
from caloric.detector import extrema
from caloric.detector.detection import FEATURES, Options
from caloric.errors import InputError, known_options
from caloric.features import Failure, Features
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image.pixels import several
from caloric.image.reading import read_image
from caloric.image.views import TILTS, largest_tilt
from caloric.kernels import Kernel
from caloric.matching.geometry import Geometry, check_options
from caloric.matching.neighbours import Matches, check_ratio
from caloric.plan import Plan
from caloric.types import Detector, FloatArray, GeometryModel


@dataclass(frozen=True, eq=False)
class ImageMatch:
    """Two images and what they have in common; false if that is less likely right than not.

    Parameters
    ----------
    image_a, image_b : array
        The images, as they were given or read.
    features_a, features_b : Features
        Their features.
    matches : Matches
        All matches of the features.
    geometry : Geometry
        The geometry that most of the matches agree on, and which of them do.
    threshold : float
        The largest residual of an inlier, in pixels.
    level : int
        The largest tilt of the simulated views that it took, or that were tried in vain; 1 if there
        was no need for any.
    """

    image_a: NDArray[np.generic]
    image_b: NDArray[np.generic]
    features_a: Features
    features_b: Features
    matches: Matches
    geometry: Geometry
    threshold: float
    level: int = 1

    def __len__(self) -> int:
        """Return the number of matched points: the inliers of the geometry."""
        return len(self.geometry)

    def __bool__(self) -> bool:
        """Return whether the geometry is more likely right than not: see :class:`Geometry`."""
        return bool(self.geometry)

    def __repr__(self) -> str:
        """Return a summary in one line."""
        return f"ImageMatch({self.summary})"

    @property
    def summary(self) -> str:
        """How many features, matches and inliers there are."""
        model = _MODELS[self.geometry.model]
        return (
            f"{len(self.features_a)} and {len(self.features_b)} features, "
            f"{len(self.matches)} matches, {len(self)} inliers of {model}"
            f"{'' if self else ', which may be chance'}"
            f"{'' if self.level == 1 else f', from views with tilts to {self.level}'}"
        )

    @property
    def points_a(self) -> FloatArray:
        """The matched points (m, 2) in the first image: the inliers of the geometry."""
        return self.all_points()[0][self.geometry.inliers]

    @property
    def points_b(self) -> FloatArray:
        """The same points (m, 2) in the second image, refined unless that was turned off."""
        return self.all_points()[1][self.geometry.inliers]

    def all_points(self) -> tuple[FloatArray, FloatArray]:
        """Return the points (n, 2) of all matches in both images, outliers too."""
        return self.matches.points(self.features_a.frames.xy, self.features_b.frames.xy)

    def picture(self, title: str = "", most: int = viz.MOST_LINES) -> viz.Picture:
        """Return a picture of both images and at most so many of the matched points."""
        return viz.draw_matches(
            self.image_a, self.image_b, self.features_a, self.features_b, self.matches,
            self.geometry, limit=self.threshold, title=title or self.summary, most=most,
        )  # fmt: skip

    def show(self) -> None:
        """Open the picture in the viewer of this computer."""
        self.picture().show()

    def save(self, path: str | Path) -> None:
        """Write the picture to a file, .png or .jpg."""
        self.picture().save(path)

    def _repr_png_(self) -> bytes:
        return self.picture().smaller(_SHOWN).png()


ImagePair = ImageMatch  # its former name

_SHOWN = 1000  # pixels: the width of the picture in a notebook
_MODELS: dict[GeometryModel, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


@known_options
def match_images(
    image_a: ArrayLike | str | Path,
    image_b: ArrayLike | str | Path,
    descriptor: str | Descriptor | Kernel = "caloric",
    *,
    max_features: int | None = FEATURES,
    model: GeometryModel = "homography",
    ratio: float | None = 0.9,
    threshold: float = 2.0,
    views: Literal["auto"] | int | None = "auto",
    refine: bool = True,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    masks: Sequence[ArrayLike | None] | None = None,
    affine: bool = False,
    upright: bool = False,
    detector: Detector = "dog",
    contrast: float | None = None,
    edge: float = extrema.EDGE,
    seed: int = 0,
    device: str = "cpu",
) -> ImageMatch:
    """Match two images: extract their features, match them, and verify the matches.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4), or the path of a file
        The images.
    descriptor : str, Descriptor or Kernel
        One of :func:`descriptors`, a recipe of your own, or a kernel.
    max_features : int or None
        Keep this many features of each image, the strongest. None for all above the contrast.
    model : "homography", "fundamental", "essential" or "affine"
        A homography for planes and for photographs from one place; the others for scenes with
        depth ("essential" needs ``intrinsics``) and for small parts.
    ratio : float or None
        Keep a match only if its distance is below this share of the distance to the second nearest
        feature, Lowe's ratio test; smaller is stricter, None keeps all.
    threshold : float
        The largest residual of an inlier, in pixels.
    views : "auto", 2, 4, 8 or None
        Simulated views, for planes seen from aside: see :func:`extract`. "auto" matches the images
        themselves first and goes on to views with tilts up to 2, 4 and 8 until the confidence of
        the geometry is above 0.9; ``level`` says which. A pair that needs no views takes no longer.
        One with fewer than 40 inliers (of 2,000 features or more) gets one more level. With
        ``upright`` there are no views.
    refine : bool
        Refine the matches: see :func:`refine`.
    intrinsics : (array (3, 3), array (3, 3)), optional
        The camera matrices of both images, for "essential".
    masks : (mask_a, mask_b), optional
        Non-zero where features may be, (h, w) each, or None for one of them.
    affine, upright, detector, contrast, edge
        How features are detected: see :func:`detect`.
    seed : int
        Of the random samples of the search for the geometry.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".

    Returns
    -------
    ImageMatch
        ``points_a`` and ``points_b`` (m, 2), ``geometry``, ``matches``, ``features_a`` and
        ``features_b``; ``show()`` and ``save(path)`` draw it. It is false if no geometry was found
        that is more likely right than not.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> pair = caloric.match_images(image, image[5:, 7:])
    >>> np.abs(pair.points_a - pair.points_b - (7, 5)).max() < 0.5
    np.True_
    """
    masks = (None, None) if masks is None else masks
    if len(masks) != 2:
        raise InputError(f"masks: two images need two masks or None each, got {len(masks)}")
    recipe = recipe_from(descriptor, None, None, {}, match_images)
    options = Options(max_features, affine, upright, detector, contrast, edge)
    first = 1 if views == "auto" else largest_tilt(views)
    plan = Plan.of(descriptor, recipe, options, views=first)
    check_ratio(ratio)
    check_options(model, threshold, seed, intrinsics)
    devices.resolve(device)
    images = [_opened(image) for image in (image_a, image_b)]

    def extracted(image: Any, mask: Any, name: object, which: str) -> Features:
        ((_, found),) = pipeline.extract_each([(image, mask)], plan, device, tiles.MEMORY)
        if isinstance(found, Failure):
            raise InputError(f"{name if _is_path(name) else f'the {which} image'}: {found.reason}")
        return found

    pool = ThreadPoolExecutor(2)
    try:
        a, b = pool.map(extracted, images, masks, (image_a, image_b), ("first", "second"))
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for the other image

    def matched(a: Features, b: Features) -> ImageMatch:
        matches = pipeline.match(
            a, b, ratio=ratio, refine=refine, images=(images[0], images[1]) if refine else None,
            device=device,
        )  # fmt: skip
        geometry = pipeline.verify(
            a, b, matches, model=model, seed=seed, threshold=threshold, intrinsics=intrinsics
        )
        level = max(a.views, b.views)
        return ImageMatch(images[0], images[1], a, b, matches, geometry, threshold, level)

    best = matched(a, b)
    few = _FEW if max_features is None else min(_FEW, max_features // 50)
    # Views are turned, so that there are none of upright frames.
    for tilt in TILTS if views == "auto" and not upright else ():
        sure = best.geometry.confidence > _SURE
        if sure and len(best) >= few:
            break
        wider = replace(plan, views=tilt)
        begun = [
            pipeline.begin_views(image, mask, wider, (tilt,), device, tiles.MEMORY)
            for image, mask in zip(images, masks, strict=True)
        ]
        a, b = (
            pipeline.joined_features((before, views()))
            for before, views in zip((a, b), begun, strict=True)
        )
        best = max(best, matched(a, b), key=_order)
        if sure:  # it was right already, and has more points now
            break
    if best:
        return best
    return replace(best, level=max(a.views, b.views))  # all that was tried


_SURE = 0.9  # the confidence of a geometry after which "auto" stops
_FEW = 40  # inliers: with fewer, one more level of views is tried


def _order(pair: ImageMatch) -> tuple[float, int]:
    """Return what makes a result better than another: its confidence, then its inliers."""
    return min(pair.geometry.confidence, _SURE), len(pair)


def _is_path(image: object) -> bool:
    return isinstance(image, str | PathLike)


def _opened(image: Any) -> Any:
    if _is_path(image):
        return read_image(image)
    if several(image) is not None:
        raise InputError("match_images takes one image and one other, not lists or batches")
    return image
