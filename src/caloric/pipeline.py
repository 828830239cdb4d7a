"""The public verbs: detect, describe, extract, match, refine, verify.

They check their arguments and call the stages: image, frames, densities, descriptors, matches,
geometry. Extraction is in :mod:`caloric.extraction`.
"""

import numbers
from collections.abc import Sequence
from typing import Any, TypedDict, Unpack, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric import comparison
from caloric.descriptor.options import DescribeKeywords, DescribeOptions
from caloric.descriptor.recipes import DescriptorLike
from caloric.detector.options import DetectKeywords, DetectOptions
from caloric.errors import InputError, known_options
from caloric.extraction import dispatch, tiled
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import tiles
from caloric.image.pixels import several, source, to_gray
from caloric.matching import geometry, refinement
from caloric.matching.geometry import Geometry
from caloric.matching.neighbors import Matches
from caloric.matching.refinement import Refined
from caloric.options import ExtractKeywords, ExtractOptions
from caloric.runtime import keywords, threads
from caloric.types import GeometryModel


@keywords.takes(DetectOptions)
@threads.single_threaded_blas
def detect(
    image: ArrayLike,
    *,
    mask: ArrayLike | None = None,
    memory: int = tiles.MEMORY,
    **options: Unpack[DetectKeywords],
) -> Frames:
    """Detect frames: extrema of the difference of Gaussians, with orientations.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4)
        uint8, uint16, bool, or floats in [0, 1]; colors in RGB order.
    mask : array (h, w), optional
        Non-zero where features may be.
    memory : int
        Working memory in bytes. A larger image is processed in tiles, with the same result: bit for
        bit with the compiled core, up to rounding without it and for ``affine``.
    **options
        See :class:`DetectOptions`.

    Returns
    -------
    Frames
        n frames, strongest first.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> len(caloric.detect(image, max_features=50))
    50
    """
    chosen = DetectOptions(**options)
    pixels = source(image)
    allowed = tiled.allowed_by(mask, pixels.size)
    frames, _ = tiled.find(pixels, allowed, chosen, tiles.checked_memory(memory))
    dispatch.advise(image, len(frames), chosen)
    return frames


@keywords.takes(DescribeOptions)
@threads.single_threaded_blas
def describe(
    image: ArrayLike,
    frames: Frames,
    descriptor: DescriptorLike = "caloric",
    *,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    **options: Unpack[DescribeKeywords],
) -> NDArray[np.generic]:
    """Describe an image at given frames, from any detector.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4)
        uint8, uint16, bool, or floats in [0, 1]; colors in RGB order.
    frames : Frames
        n frames; see ``Frames.from_opencv``, ``from_colmap``, ``from_laf``.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU, where a larger image is processed in tiles. A device
        takes an image as a whole; one that does not fit is processed on the CPU.
    **options
        See :class:`DescribeOptions`.

    Returns
    -------
    ndarray (n, d)
        One descriptor per frame.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> frames = caloric.detect(image, max_features=50)
    >>> caloric.describe(image, frames).shape
    (50, 128)
    """
    request = ExtractOptions.of(descriptor, options, describe)
    target, memory = devices.resolve(device), tiles.checked_memory(memory)
    if not isinstance(frames, Frames):
        raise InputError("frames must be caloric.Frames; see Frames.from_opencv and its siblings")
    return dispatch.describe_frames(image, frames, request, target, memory)


class _Keywords(ExtractKeywords, total=False):
    mask: Any
    device: str
    memory: int
    on_device: bool


@overload
def extract(
    image: list[Any] | tuple[Any, ...],
    descriptor: DescriptorLike = ...,
    **options: Unpack[_Keywords],
) -> list[Features]: ...
@overload
def extract(
    image: Any, descriptor: DescriptorLike = ..., **options: Unpack[_Keywords]
) -> Features: ...
@keywords.takes(ExtractOptions)
def extract(
    image: Any,
    descriptor: DescriptorLike = "caloric",
    *,
    mask: Any = None,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    on_device: bool = False,
    **options: Unpack[ExtractKeywords],
) -> Features | list[Features]:
    """Detect features in an image and compute their descriptors.

    Parameters
    ----------
    image : array (h, w) or (h, w, 3 or 4), or tensor (c, h, w)
        uint8, uint16, bool, or floats in [0, 1]; colors in RGB order. A list of images or a tensor
        (b, c, h, w) gives a list: see :func:`extract_many`.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    mask : array (h, w), optional
        Non-zero where features may be.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU, where a larger image is processed in tiles. A device
        takes an image as a whole; one that does not fit is processed on the CPU.
    on_device : bool
        Leave the features on the device, as :class:`caloric.interop.torch.DeviceFeatures`, which
        :func:`match` takes as well. Not with ``views``.
    **options
        See :class:`ExtractOptions`.

    Returns
    -------
    Features
        Frames and descriptors (n, d), strongest first.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> features = caloric.extract(image, max_features=50)
    >>> features.descriptors.shape, features.frames.xy.shape
    ((50, 128), (50, 2))
    """
    request = ExtractOptions.of(descriptor, options, extract)
    memory, images = tiles.checked_memory(memory), several(image)
    if images is not None:
        return dispatch.extract_list(images, mask, request, device, memory, on_device)
    result: Features = dispatch.extract_one(image, mask, request, device, memory, on_device)
    return result


@keywords.takes(ExtractOptions)
def extract_many(
    images: Sequence[Any],
    descriptor: DescriptorLike = "caloric",
    *,
    masks: Sequence[Any] | None = None,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    on_device: bool = False,
    **options: Unpack[ExtractKeywords],
) -> list[Features]:
    """Extract the features of several images; a device processes images of one size together.

    Parameters
    ----------
    images : sequence of arrays, or tensor (b, c, h, w)
        The images: see :func:`extract`.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    masks : sequence of arrays, optional
        One mask (h, w) or None for each image.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU: see :func:`extract`.
    on_device : bool
        Leave the features on the device: see :func:`extract`.
    **options
        See :class:`ExtractOptions`.

    Returns
    -------
    list of Features
        Frames and descriptors (n, d) of each image, strongest first. Descriptors of up to eight
        images that come from a device share memory, which is freed when none of them is in use.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> images = np.random.default_rng(0).random((3, 120, 160))
    >>> [len(features) for features in caloric.extract_many(list(images), max_features=50)]
    [50, 50, 50]
    """
    request = ExtractOptions.of(descriptor, options, extract_many)
    memory = tiles.checked_memory(memory)
    return dispatch.extract_list(list(images), masks, request, device, memory, on_device)


class _MatchKeywords(TypedDict, total=False):
    mutual: bool
    ratio: float | None
    radius: float
    refine: bool
    images: tuple[ArrayLike, ArrayLike] | None
    device: str


@overload
def match(
    features_a: Sequence[tuple[Any, Any]], **options: Unpack[_MatchKeywords]
) -> list[Matches]: ...
@overload
def match(features_a: Any, features_b: Any, **options: Unpack[_MatchKeywords]) -> Matches: ...
@known_options
@threads.single_threaded_blas
def match(
    features_a: Any,
    features_b: Any = None,
    *,
    mutual: bool = True,
    ratio: float | None = 0.9,
    radius: float = 10.0,
    refine: bool = False,
    images: tuple[ArrayLike, ArrayLike] | None = None,
    device: str = "cpu",
) -> Matches | list[Matches]:
    """Match the descriptors of two images by exact nearest neighbors.

    Of features from simulated views one match is kept per place.

    Parameters
    ----------
    features_a, features_b : Features, or array (n, d)
        What to match. Or a list of pairs of them in place of the first, which gives a list of
        matches: a device searches them together, and gets the features of each image once.
    mutual : bool
        Keep a match only if each is the nearest of the other.
    ratio : float, optional
        Keep a match only if its distance is below this share of the distance to the nearest other
        descriptor. Between two :class:`Features` "other" means farther than ``radius`` pixels from
        the first; where one is a bare array, it is the second nearest. None keeps all.
    radius : float
        See ``ratio``.
    refine : bool
        Move the second frame of each match to sub-pixel, affine-corrected agreement with the first:
        ``Matches.refined``, which :func:`verify` uses. Needs ``images``. Not for a list of pairs.
    images : (image_a, image_b), optional
        The two images, for ``refine``.
    device : str
        Where to search for neighbors and to refine: "cpu", "cuda", "cuda:1" or "auto".

    Returns
    -------
    Matches, or list of Matches
        ``indices`` (m, 2), ``distances`` (m,) and, if refined, ``refined`` (m, 2, 3) and
        ``covariances`` (m, 2, 2).

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a = caloric.extract(image, max_features=50)
    >>> b = caloric.extract(image[:, ::-1], max_features=50)
    >>> caloric.match(a, b).indices.shape[1]
    2
    >>> len(caloric.match([(a, b), (b, a), (a, a)]))
    3
    """
    if features_b is None:
        if refine:
            raise InputError("refine=True takes one pair at a time")
        return comparison.match_pairs(
            comparison.checked_pairs(features_a), mutual, ratio, radius, device
        )
    pair = features_a, features_b
    both = all(isinstance(features, Features) for features in pair)
    if refine and (not both or images is None or len(images) != 2):
        raise InputError("refine=True needs two caloric.Features and images=(image_a, image_b)")
    (matches,) = comparison.match_pairs([pair], mutual, ratio, radius, device)
    if not refine or images is None:
        return matches
    return comparison.refined(features_a, features_b, matches, images, device)


POINT_SIGMA = 2.5  # pixels, of points that have no scale


@known_options
@threads.single_threaded_blas
def refine(
    image_a: ArrayLike,
    image_b: ArrayLike,
    frames_a: Features | Frames | ArrayLike | Sequence[Any],
    frames_b: Features | Frames | ArrayLike | Sequence[Any],
    *,
    sigma: float = POINT_SIGMA,
    device: str = "cpu",
) -> Refined:
    """Move the second of matched frames or points to sub-pixel agreement with the first.

    For anyone's matches: row i of ``frames_a`` was matched to row i of ``frames_b``. The template
    of a match is the gradient field around its first frame; the second frame is moved, turned and
    stretched until its field agrees.

    Parameters
    ----------
    image_a, image_b : array (h, w) or (h, w, 3 or 4)
        The upload.
    frames_a, frames_b : Frames, Features, keypoints of OpenCV, or array (m, 2) or (m, 2, 3)
        As many in both. Points (m, 2) get round, upright frames.
    sigma : float
        σ of the frames of points, in pixels.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if there is one) or "torch:cpu".

    Returns
    -------
    Refined
        ``xy`` (m, 2) and ``maps`` (m, 2, 3) in the second image, ``moved`` (m,), and
        ``covariances`` (m, 2, 2). A frame is left as it was if it would move by more than its σ, be
        stretched by more than 1.7 or agree less than before, or if the place is flat.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from scipy.ndimage import gaussian_filter
    >>> image = gaussian_filter(np.random.default_rng(0).random((80, 90)), 2)
    >>> image = (image - image.min()) / np.ptp(image)
    >>> found = caloric.refine(image, image[:, 5:], [[40.0, 30.0]], [[35.6, 29.5]], sigma=3)
    >>> np.abs(found.xy - [35, 30]).max() < 0.05
    np.True_
    """
    if not (isinstance(sigma, numbers.Real) and 0 < sigma < np.inf):
        raise InputError(f"sigma must be a positive number of pixels, got {sigma!r}")
    a, b = (
        comparison.maps_of(frames, which, float(sigma))
        for frames, which in ((frames_a, "frames_a"), (frames_b, "frames_b"))
    )
    if len(a) != len(b):
        raise InputError(f"{len(a)} frames_a but {len(b)} frames_b: row i matches row i")
    descent = comparison.descent(device)
    return refinement.refine(to_gray(image_a), to_gray(image_b), a, b, descent)


@known_options
def verify(
    features_a: Features | Frames,
    features_b: Features | Frames,
    matches: Matches,
    *,
    model: GeometryModel = "homography",
    seed: int = 0,
    threshold: float = 2.0,
    intrinsics: tuple[ArrayLike, ArrayLike] | None = None,
) -> Geometry:
    """Estimate the geometry that most matches agree on.

    Parameters
    ----------
    features_a, features_b : Features or Frames
        What was matched.
    matches : Matches
        The result of :func:`match`; refined places are used if there are any, and weighed by their
        covariances.
    model : "homography", "affine", "fundamental" or "essential"
        What maps points of the first image to points or lines of the second.
    seed : int
        Seed of the random sampling.
    threshold : float
        The largest residual of an inlier, in pixels.
    intrinsics : (K_a, K_b), optional
        Calibration matrices (3, 3), which "essential" needs.

    Returns
    -------
    Geometry
        ``matrix`` (3, 3) or None, ``inliers`` (m,), ``residuals`` (m,) and ``confidence``. It is
        true in a condition if it is more likely right than not.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> a, b = caloric.extract([image, image])
    >>> geometry = caloric.verify(a, b, caloric.match(a, b))
    >>> np.allclose(geometry.matrix / geometry.matrix[2, 2], np.eye(3), atol=1e-3)
    True
    """
    if not isinstance(matches, Matches):
        raise InputError("matches must be what caloric.match returns; points: geometry.estimate")
    first, second = comparison.matched_maps(features_a, features_b, matches)
    return geometry.estimate(
        first[:, :, 2],
        second[:, :, 2],
        model=model,
        seed=seed,
        threshold=threshold,
        intrinsics=intrinsics,
        size=features_b.image_size if isinstance(features_b, Features) else None,
        size_a=features_a.image_size if isinstance(features_a, Features) else None,
        covariances=matches.covariances,
        frames=(first, second),
    )
