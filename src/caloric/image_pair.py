"""Match two images in one call: features, matches, geometry, matched points and a plot."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any, Literal, Unpack

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import comparison, verification, viz
from caloric.descriptor.recipes import DescriptorLike
from caloric.detector.options import DetectKeywords, DetectOptions
from caloric.errors import InputError, check_bool
from caloric.extraction import dispatch, oblique, tiled
from caloric.features import Features
from caloric.gpu import devices
from caloric.image import inputs, tiles
from caloric.image.pixels import Source, is_tensor
from caloric.image.views import TILTS
from caloric.matching import agreement as neighborhood
from caloric.matching.geometry import Geometry
from caloric.matching.neighbors import Matches
from caloric.matching.selection import check_options
from caloric.options import ExtractOptions
from caloric.pair_propagation import Verified, propagated
from caloric.runtime import keywords, progress, threads
from caloric.types import FloatArray, GeometryModel, ImageLike, ModelChoice, Windows


@dataclass(frozen=True, eq=False)
class ImageMatch:
    """The matches and the geometry of two images.

    ``bool(result)`` is True if the confidence of the geometry exceeds 0.5.

    Parameters
    ----------
    image_a, image_b : array
        The images as given or read.
    features_a, features_b : Features
        Their features.
    matches : Matches
        All matches of the features.
    geometry : Geometry
        The estimated geometry and its inliers.
    level : int
        The largest tilt of the simulated views that were used, or tried without success; 1 if none
        were needed.
    names : (str, str)
        The paths of the images; "" for images that were not given as paths.
    view_features : (int, int)
        How many of the features were added from simulated views by ``views="auto"``.
    propagated_features : (int, int)
        How many of the features were added by propagation, at the end.
    """

    image_a: NDArray[np.generic]
    image_b: NDArray[np.generic]
    features_a: Features
    features_b: Features
    matches: Matches
    geometry: Geometry
    level: int = 1
    names: tuple[str, str] = ("", "")
    view_features: tuple[int, int] = (0, 0)
    propagated_features: tuple[int, int] = (0, 0)

    def __len__(self) -> int:
        """Return the number of inliers."""
        return len(self.geometry)

    def __bool__(self) -> bool:
        """Return whether the confidence of the geometry exceeds 0.5."""
        return bool(self.geometry)

    def __repr__(self) -> str:
        """Return a one-line summary."""
        return f"ImageMatch({self.summary})"

    @property
    def summary(self) -> str:
        """The numbers of features, matches and inliers, and the model, as text."""
        model = _MODELS[self.geometry.model]
        has_model = self.geometry.matrix is not None
        inliers = f"{len(self)} inliers of {model}" if has_model else "no geometry"
        a, b = self.view_features
        views = f" and {a} and {b} of simulated views" if a or b else ""
        new = sum(self.propagated_features)
        propagated = f" ({new} of them propagated)" if new else ""
        detected_a, detected_b = self.detected
        return (
            f"{detected_a - a} and {detected_b - b} features{views}, "
            f"{len(self.matches)} matches{propagated}, {inliers}"
            f"{'' if self else ' (not reliable)'}"
            f"{'' if self.level == 1 else f', simulated views up to tilt {self.level}'}"
        )

    @property
    def detected(self) -> tuple[int, int]:
        """The numbers of features in both images without propagated ones."""
        a, b = self.propagated_features
        return len(self.features_a) - a, len(self.features_b) - b

    @property
    def points_a(self) -> FloatArray:
        """The points (m, 2) of the inliers in the first image."""
        return self.all_points()[0][self.geometry.inliers]

    @property
    def points_b(self) -> FloatArray:
        """The corresponding points (m, 2) in the second image, refined unless ``refine=False``."""
        return self.all_points()[1][self.geometry.inliers]

    def all_points(self) -> tuple[FloatArray, FloatArray]:
        """Return the points (n, 2) of all matches in both images, including outliers."""
        return self.matches.points(self.features_a.frames.xy, self.features_b.frames.xy)

    def figure(self, title: str = "", max_lines: int = viz.MAX_LINES) -> viz.Figure:
        """Return a figure of both images with at most ``max_lines`` of the matches."""
        return self.drawing(title, max_lines).figure()

    def drawing(self, title: str = "", max_lines: int = viz.MAX_LINES) -> viz.MatchDrawing:
        """Return the figure before its lines are rendered."""
        return viz.arranged(
            self.image_a, self.image_b, self.features_a, self.features_b, self.matches,
            self.geometry, limit=self.geometry.threshold or _LIMIT, title=title or self.summary,
            max_lines=max_lines,
        )  # fmt: skip

    def show(self) -> None:
        """Show the matches in the default image viewer."""
        self.figure().show()

    def save(self, path: str | Path) -> None:
        """Write the matches to a file; its suffix selects the format.

        Parameters
        ----------
        path : str or Path
            A figure (.png, .jpg and others; .pdf and .svg with vector lines need matplotlib), an
            interactive page (.html), or the output of ``caloric match --json`` (.json).
        """
        # By name, because the module of the page imports this one.
        import_module("caloric.view.files").save(self, Path(path))

    def _repr_png_(self) -> bytes:
        return self.figure().smaller(_NOTEBOOK_WIDTH).png()


_NOTEBOOK_WIDTH = 1000  # pixels
_LIMIT = 2.0  # pixels: the largest residual in the legend of a figure without a geometry
_MODELS: dict[GeometryModel, str] = {
    "homography": "a homography",
    "affine": "an affine map",
    "fundamental": "a fundamental matrix",
    "essential": "an essential matrix",
}


ViewsChoice = Literal["auto", "none", "2", "4", "8"]  # in the command line and the web page


def views_argument(choice: ViewsChoice) -> Literal["auto"] | int | None:
    """Return a choice as the argument ``views`` of :func:`match_images`."""
    if choice == "auto":
        return "auto"
    return None if choice == "none" else int(choice)


@keywords.takes(DetectOptions)
@threads.single_threaded_blas
def match_images(
    image_a: ImageLike,
    image_b: ImageLike,
    descriptor: DescriptorLike = "caloric",
    *,
    model: ModelChoice = "auto",
    ratio: float | None = 0.9,
    agreement: bool = True,
    threshold: float | None = None,
    views: Literal["auto"] | int | None = "auto",
    refine: bool = True,
    propagate: bool = True,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
    masks: Sequence[ImageLike | None] | None = None,
    white_level: float | None = None,
    seed: int = 0,
    device: str = "cpu",
    **options: Unpack[DetectKeywords],
) -> ImageMatch:
    """Match two images: extract their features, match them, and verify the matches.

    Parameters
    ----------
    image_a, image_b : array, PIL image, path, bytes, file object or tensor
        The images: see :func:`read_image`.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    model : "auto", "homography", "fundamental", "essential" or "affine"
        "homography" for planes and for a rotating camera; "fundamental" or "essential" (which needs
        ``intrinsics``) for scenes with depth; "affine" for small parts. "auto" chooses between a
        homography and a fundamental matrix, or an essential matrix if there are ``intrinsics``;
        ``geometry.model`` is the choice and ``geometry.reason`` says why.
    ratio : float or None
        Lowe's ratio test: keep a match only if its distance is below this fraction of the distance
        to the second nearest feature. Smaller is stricter; None keeps all.
    agreement : bool
        Also keep matches that fail the ratio test but agree with their neighbors: see
        :func:`match`.
    threshold : float, optional
        Largest residual of an inlier, in pixels. By default the noise of the matches is estimated,
        and inliers are within its 99 % limit: ``geometry.sigma`` and ``geometry.threshold``.
    views : "auto", 2, 4, 8 or None
        Simulated oblique views, for planes seen from very different angles: see :func:`extract`.
        "auto" matches the original images first, and adds views with tilts up to 2, 4 and 8 until
        the confidence of the geometry exceeds 0.9, or 0.5 with 200 inliers; ``level`` is the
        largest tilt that was needed. If there are fewer than 40 inliers (of 2,000 features or
        more), one more level is added. It stops earlier if matches agree with their neighbors no
        better than those of unrelated images.
        With ``upright`` no views are simulated.
    refine : bool
        Refine the matches: see :func:`refine`.
    propagate : bool
        If the confidence of the geometry exceeds 0.9, predict features without a match in the other
        image from the inliers around them, and refine them there. This usually doubles the number
        of inliers; the new frames are appended to the features. Without ``refine`` there is no
        propagation.
    intrinsics : (array (3, 3), array (3, 3)), optional
        The calibration matrices of both cameras, for "essential" and "auto".
    masks : (mask_a, mask_b), optional
        Masks (h, w), nonzero where features may be detected; either may be None.
    white_level : float, optional
        The value of white in both images, such as 4095 for 12-bit data: see :func:`read_image`.
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
        ``features_b``; ``show()`` and ``save(path)`` plot it. ``bool(result)`` is True if the
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
        raise InputError(
            f"masks: expected two masks, either of which may be None, got {len(masks)}"
        )
    first = None if views == "auto" else views
    extract_options = ExtractOptions(descriptor=descriptor, views=first, **options)
    match_options = comparison.MatchOptions(ratio=ratio, agreement=agreement, device=device)
    check_bool("refine", refine)
    check_bool("propagate", propagate)
    check_options(model, threshold, seed, intrinsics)
    target = devices.resolve(device)
    dispatch.check_device(target, extract_options, on_device=False)
    names = inputs.label(image_a, ""), inputs.label(image_b, "")
    labels = [names[0] or "the first image", names[1] or "the second image"]
    images = [
        _opened(image, label, white_level)
        for image, label in zip((image_a, image_b), labels, strict=True)
    ]
    progress.report(
        "extracting features" if first is None else f"simulated views up to tilt {first}"
    )
    sources = _sources(images, labels, extract_options)
    extracting = [
        _extracting(extract_options, device, *image)
        for image in zip(images, sources, masks, labels, strict=True)
    ]
    prepare: Callable[[], list[Any]] = list
    if refine:
        prepare = partial(comparison.prepared, images, device, labels)
    if target is not None:  # prepare the images for refinement while their features are awaited
        octaves, searched = prepare(), (extracting[0](), extracting[1]())
    else:
        searched, octaves = _on_two_threads(extracting), prepare()
    counts = len(searched[0]), len(searched[1])

    def matched(pair: tuple[Any, Any]) -> ImageMatch:
        if refine:
            matches = comparison.matched_and_refined(pair, octaves, match_options)
        else:
            (matches,) = comparison.matched([pair], match_options)
        progress.check()
        # Descriptors on a device are needed on the host only from here on.
        downloads = [threads.begin(partial(comparison.on_host, features)) for features in pair]
        geometry = verification.verify(
            *pair, matches, model=model, seed=seed, threshold=threshold, intrinsics=intrinsics
        )
        a, b = (download() for download in downloads)
        level = max(a.views, b.views)
        added = len(a) - counts[0], len(b) - counts[1]
        return ImageMatch(images[0], images[1], a, b, matches, geometry, level, names, added)

    progress.report("comparing descriptors")
    best = latest = matched(searched)
    a, b = best.features_a, best.features_b
    limit = extract_options.max_features
    few = _FEW if limit is None else min(_FEW, limit // 50)
    # Simulated views are rotated, which upright frames do not allow; they add no texture.
    can_simulate = views == "auto" and not extract_options.upright and len(a) and len(b)
    for tilt in TILTS if can_simulate else ():
        is_reliable = best.geometry.confidence > _RELIABLE
        enough = few if is_reliable else _MANY
        if (best and len(best) >= enough) or _is_hopeless(latest, max(a.views, b.views)):
            break
        progress.report(f"simulated views, tilt {tilt}")
        with_views = replace(extract_options, views=tilt)
        pending = [
            oblique.begin(image, mask, with_views, (tilt,), device, tiles.MEMORY)
            for image, mask in zip(images, masks, strict=True)
        ]
        a, b = (
            oblique.joined((plain, views())) for plain, views in zip((a, b), pending, strict=True)
        )
        latest = matched((a, b))
        best = max(best, latest, key=_order)
        if is_reliable:  # the additional level was for more inliers only
            break
    if not best:
        return replace(best, level=max(a.views, b.views))  # the last level that was tried
    # The geometry of regular patterns is often incorrect, with a lower confidence.
    if not (refine and propagate) or best.geometry.confidence <= _RELIABLE:
        return best
    progress.report("propagating matches")
    options_of_features = replace(extract_options, views=None)
    more = propagated(
        Verified(best.features_a, best.features_b, best.matches, best.geometry),
        (octaves[0], octaves[1]), sources, (masks[0], masks[1]), options_of_features, threshold,
        device,
    )  # fmt: skip
    counts = len(more.a) - len(best.features_a), len(more.b) - len(best.features_b)
    return replace(
        best, features_a=more.a, features_b=more.b, matches=more.matches, geometry=more.geometry,
        propagated_features=counts,
    )  # fmt: skip


def _sources(
    images: Sequence[Any], names: Sequence[str], options: ExtractOptions
) -> tuple[Source, Source]:
    """Return the sources of two images; propagation reads the scale spaces of the extraction."""

    def kept(image: Any, name: str) -> Source:
        with inputs.naming(name):
            pixels = tiled.checked_source(image, options.recipe.kernel)
        return tiles.KeptSource(pixels.size, pixels.read)

    return kept(images[0], names[0]), kept(images[1], names[1])


def _extracting(
    options: ExtractOptions, device: str, image: Any, pixels: Source, mask: Any, name: str
) -> Callable[[], Any]:
    """Start extracting the features of an image; call the result to get them.

    Features extracted on a device stay on it, unless there are simulated views. Errors start with
    ``name``.
    """
    stay = devices.resolve(device) is not None and options.views is None
    with inputs.prefixed_errors(name):
        extraction = dispatch.begin(image, mask, options, device, tiles.MEMORY, stay, name, pixels)

    def features() -> Any:
        with inputs.prefixed_errors(name):
            return extraction.features()

    return features


def _on_two_threads(work: Sequence[Callable[[], Any]]) -> tuple[Any, Any]:
    pool = ThreadPoolExecutor(2)
    try:
        first, second = [pool.submit(progress.inherited(one)) for one in work]
        return first.result(), second.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)  # on Ctrl-C, do not wait for the other


_RELIABLE = 0.9  # confidence of a geometry at which "auto" stops
_FEW = 40  # inliers: with fewer, one more level of views is added
_MANY = 200  # inliers of an accepted geometry at which "auto" stops, too
# Agreement with neighbors of some match, without which further views are of no use, by the largest
# tilt so far: unrelated images have up to 39 and 46, rendered views of tilts up to 7 at least 78
# and 106.
_MIN_SUPPORT = {2: 30.0, 4: 60.0}


def _is_hopeless(pair: ImageMatch, level: int) -> bool:
    """Return whether matches agree with their neighbors no better than those of unrelated images.

    ``level`` is the largest tilt of their simulated views.
    """
    if level not in _MIN_SUPPORT:
        return False
    maps = pair.features_a.frames.maps, pair.features_b.frames.maps
    frames = comparison.matched_maps(*maps, pair.matches)
    scores = neighborhood.scores(*frames, pair.features_b.image_size)
    return float(scores.max(initial=0.0)) < _MIN_SUPPORT[level]


def _order(pair: ImageMatch) -> tuple[float, int]:
    """Return the sort key of results: the confidence, then the number of inliers."""
    return min(pair.geometry.confidence, _RELIABLE), len(pair)


def _opened(image: Any, name: str, white_level: float | None) -> Any:
    if inputs.as_list(image) is not None:
        raise InputError("match_images expects two single images, not lists or batches")
    if white_level is None and (is_tensor(image) or isinstance(image, Windows)):
        return image
    with inputs.naming(name):
        return inputs.read_image(image, white_level=white_level)
