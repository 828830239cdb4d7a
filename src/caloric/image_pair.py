"""Two images in one call: features, matches, geometry, the matched points and a picture."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any, Literal, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import pipeline, viz
from caloric.descriptor.recipes import DescriptorLike
from caloric.detector.options import DetectKeywords, DetectOptions
from caloric.errors import Failure, InputError
from caloric.extraction import dispatch, oblique
from caloric.features import Features
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image.pixels import as_list
from caloric.image.reading import read_image
from caloric.image.views import TILTS
from caloric.matching.geometry import Geometry, check_options
from caloric.matching.neighbors import Matches, check_ratio
from caloric.options import ExtractOptions
from caloric.runtime import keywords
from caloric.types import FloatArray, GeometryModel


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

    def picture(self, title: str = "", most: int = viz.MAX_LINES) -> viz.Figure:
        """Return a picture of both images and at most so many of the matched points."""
        return viz.draw_matches(
            self.image_a, self.image_b, self.features_a, self.features_b, self.matches,
            self.geometry, limit=self.threshold, title=title or self.summary, max_lines=most,
        )  # fmt: skip

    def show(self) -> None:
        """Open the picture in the viewer of this computer."""
        self.picture().show()

    def save(self, path: str | Path) -> None:
        """Write the picture to a file, .png or .jpg."""
        self.picture().save(path)

    def _repr_png_(self) -> bytes:
        return self.picture().smaller(_SHOWN).png()


_SHOWN = 1000  # pixels: the width of the picture in a notebook
_MODELS: dict[GeometryModel, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


ViewsChoice = Literal["auto", "none", "2", "4", "8"]  # of commands and of the page


def views_argument(choice: ViewsChoice) -> Literal["auto"] | int | None:
    """Return the argument ``views`` of :func:`match_images` for a choice."""
    if choice == "auto":
        return "auto"
    return None if choice == "none" else int(choice)


@keywords.takes(DetectOptions)
def match_images(
    image_a: ArrayLike | str | Path,
    image_b: ArrayLike | str | Path,
    descriptor: DescriptorLike = "caloric",
    *,
    model: GeometryModel = "homography",
    ratio: float | None = 0.9,
    threshold: float = 2.0,
    views: Literal["auto"] | int | None = "auto",
    refine: bool = True,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    masks: Sequence[ArrayLike | None] | None = None,
    seed: int = 0,
    device: str = "cpu",
    **options: Unpack[DetectKeywords],
) -> ImageMatch:
    """Match two images: extract their features, match them, and verify the matches.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4), or the path of a file
        The images.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    model : "homography", "fundamental", "essential" or "affine"
        A homography for planes and for photographs from one position; the others for scenes with
        depth ("essential" needs ``intrinsics``) and for small parts.
    ratio : float or None
        Lowe's ratio test: keep a match only if its distance is below this fraction of the distance
        to the second nearest feature. Smaller is stricter, None keeps all.
    threshold : float
        Largest residual of an inlier, in pixels.
    views : "auto", 2, 4, 8 or None
        Simulated oblique views, for planes seen from very different angles: see :func:`extract`.
        "auto" matches the original images first, and adds views with tilts up to 2, 4 and 8 until
        the confidence of the geometry exceeds 0.9; ``level`` says which were needed. A pair that
        needs no views takes no longer. One with fewer than 40 inliers (of 2,000 features or more)
        gets one more level. Not with ``upright``.
    refine : bool
        Refine the matches: see :func:`refine`.
    intrinsics : (array (3, 3), array (3, 3)), optional
        The camera matrices of both images, for "essential".
    masks : (mask_a, mask_b), optional
        Non-zero where features may be, (h, w) each, or None for one of them.
    seed : int
        Seed of the robust estimation.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    **options
        See :class:`DetectOptions`.

    Returns
    -------
    ImageMatch
        ``points_a`` and ``points_b`` (m, 2), ``geometry``, ``matches``, ``features_a`` and
        ``features_b``; ``show()`` and ``save(path)`` draw it. ``bool(result)`` is True if the
        confidence of the geometry exceeds 0.5.

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
    first = None if views == "auto" else views
    request = ExtractOptions(descriptor=descriptor, views=first, **options)
    check_ratio(ratio)
    check_options(model, threshold, seed, intrinsics)
    devices.resolve(device)
    images = [_opened(image) for image in (image_a, image_b)]
    a, b = _extracted(images, masks, (image_a, image_b), request, device)

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
    limit = request.max_features
    few = _FEW if limit is None else min(_FEW, limit // 50)
    # Views are rotated, so upright frames have none.
    for tilt in TILTS if views == "auto" and not request.upright else ():
        sure = best.geometry.confidence > _SURE
        if sure and len(best) >= few:
            break
        wider = replace(request, views=tilt)
        pending = [
            oblique.begin(image, mask, wider, (tilt,), device, tiles.MEMORY)
            for image, mask in zip(images, masks, strict=True)
        ]
        a, b = (
            oblique.joined((before, views())) for before, views in zip((a, b), pending, strict=True)
        )
        best = max(best, matched(a, b), key=_order)
        if sure:  # it was reliable already, and has more points now
            break
    if best:
        return best
    return replace(best, level=max(a.views, b.views))  # all levels that were tried


def _extracted(
    images: Sequence[Any],
    masks: Sequence[Any],
    names: Sequence[object],
    options: ExtractOptions,
    device: str,
) -> tuple[Features, Features]:
    """Return the features of two images, extracted at the same time."""

    def extracted(image: Any, mask: Any, name: object, which: str) -> Features:
        ((_, features),) = dispatch.extract_each([(image, mask)], options, device)
        if isinstance(features, Failure):
            named = name if _is_path(name) else f"the {which} image"
            raise InputError(f"{named}: {features.reason}")
        return cast(Features, features)

    pool = ThreadPoolExecutor(2)
    try:
        a, b = pool.map(extracted, images, masks, names, ("first", "second"))
        return a, b
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # Ctrl-C does not wait for the other image


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
    if as_list(image) is not None:
        raise InputError("match_images takes one image and one other, not lists or batches")
    return image
