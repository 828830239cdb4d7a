"""The public functions detect, describe, extract, extract_many, match and refine.

They check their arguments and call :mod:`caloric.extraction`, :mod:`caloric.comparison` and
:mod:`caloric.matching`.
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
from caloric.extraction import dispatch
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import inputs, tiles
from caloric.matching import refinement
from caloric.matching.neighbors import Matches
from caloric.matching.refinement import Refined
from caloric.options import ExtractKeywords, ExtractOptions
from caloric.runtime import keywords, threads
from caloric.types import ImageLike, TorchTensor


@keywords.takes(DetectOptions)
@threads.single_threaded_blas
def detect(
    image: ImageLike,
    *,
    mask: ImageLike | None = None,
    memory: int = tiles.MEMORY,
    **options: Unpack[DetectKeywords],
) -> Frames:
    """Detect extrema of the difference of Gaussians and estimate their orientations.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        See :func:`read_image`.
    mask : array (h, w) or any other image, optional
        Features are detected only where the mask is nonzero.
    memory : int
        Working memory in bytes. Images that need more are processed in tiles; the result is
        bit-identical with the compiled core, and equal up to rounding without it or for ``affine``.
    **options
        See :class:`DetectOptions`.

    Returns
    -------
    Frames
        Detected frames, strongest first; frames in further orientations of a position come last.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> len(caloric.detect(image, max_features=50))
    50
    """
    return dispatch.detect(image, mask, DetectOptions(**options), tiles.checked_memory(memory))


@keywords.takes(DescribeOptions)
@threads.single_threaded_blas
def describe(
    image: ImageLike,
    frames: Frames,
    descriptor: DescriptorLike = "caloric",
    *,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    **options: Unpack[DescribeKeywords],
) -> NDArray[np.generic]:
    """Compute descriptors at given frames, which may come from any detector.

    Parameters
    ----------
    image : array, PIL image, path, bytes, file object or tensor
        See :func:`read_image`.
    frames : Frames
        n frames; see ``Frames.from_opencv``, ``Frames.from_colmap`` and ``Frames.from_laf``.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if available) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU; images that need more are processed in tiles. An image
        that does not fit into the memory of the device is processed on the CPU.
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
        raise InputError("frames must be caloric.Frames; Frames.from_opencv converts keypoints")
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
    image: ImageLike, descriptor: DescriptorLike = ..., **options: Unpack[_Keywords]
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
    image : array, PIL image, path, bytes, file object or tensor
        See :func:`read_image`. For a list of images or a 4-D tensor the result is a list: see
        :func:`extract_many`.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    mask : array (h, w) or any other image, optional
        Features are detected only where the mask is nonzero.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if available) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU; images that need more are processed in tiles. An image
        that does not fit into the memory of the device is processed on the CPU.
    on_device : bool
        Leave the features on the device, as :class:`caloric.interop.torch.DeviceFeatures`, which
        :func:`match` also accepts. It is an error if they do not fit into its memory. Cannot be
        combined with ``views``.
    **options
        See :class:`ExtractOptions`.

    Returns
    -------
    Features
        Frames and descriptors (n, d), in the order of :func:`detect`.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> image = np.random.default_rng(0).random((120, 160))
    >>> features = caloric.extract(image, max_features=50)
    >>> features.descriptors.shape, features.frames.xy.shape
    ((50, 128), (50, 2))
    """
    request = ExtractOptions.of(descriptor, options, extract)
    memory, images = tiles.checked_memory(memory), inputs.as_list(image)
    if images is not None:
        return dispatch.extract_list(images, mask, request, device, memory, on_device)
    name = inputs.label(image, "image")
    with inputs.naming(name):
        opened = inputs.opened(image)
        extraction = dispatch.begin(opened, mask, request, device, memory, on_device, name)
        features: Features = extraction.features()
        return dispatch.moved_to(devices.resolve(device), features) if on_device else features


@keywords.takes(ExtractOptions)
def extract_many(
    images: Sequence[ImageLike] | TorchTensor,
    descriptor: DescriptorLike = "caloric",
    *,
    masks: Sequence[Any] | None = None,
    device: str = "cpu",
    memory: int = tiles.MEMORY,
    on_device: bool = False,
    **options: Unpack[ExtractKeywords],
) -> list[Features]:
    """Extract features from many images; a device processes images of the same size together.

    Parameters
    ----------
    images : sequence of images, or 4-D tensor
        The images, in any of the forms of :func:`read_image`. An error names the image.
    descriptor : str, Descriptor or Kernel
        Name of a descriptor (see :func:`descriptors`), a recipe, or a kernel.
    masks : sequence of masks, optional
        For each image a mask or None: see :func:`extract`.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if available) or "torch:cpu".
    memory : int
        Working memory in bytes on the CPU: see :func:`extract`.
    on_device : bool
        Leave the features on the device: see :func:`extract`.
    **options
        See :class:`ExtractOptions`.

    Returns
    -------
    list of Features
        Features of each image, in the order of :func:`detect`. The descriptors of up to eight
        images processed on a device share one buffer, which is freed when none of them is in use.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> images = np.random.default_rng(0).random((3, 120, 160))
    >>> [len(features) for features in caloric.extract_many(list(images), max_features=50)]
    [50, 50, 50]
    """
    request = ExtractOptions.of(descriptor, options, extract_many)
    memory = tiles.checked_memory(memory)
    return dispatch.extract_list(inputs.listed(images), masks, request, device, memory, on_device)


class _MatchKeywords(TypedDict, total=False):
    mutual: bool
    ratio: float | None
    radius: float
    agreement: bool
    refine: bool
    images: tuple[ImageLike, ImageLike] | None
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
    agreement: bool = False,
    refine: bool = False,
    images: tuple[ImageLike, ImageLike] | None = None,
    device: str = "cpu",
) -> Matches | list[Matches]:
    """Match the descriptors of two images by exact nearest-neighbor search.

    If the features include simulated views, only one match is kept per pair of positions.

    Parameters
    ----------
    features_a, features_b : Features, or array (n, d)
        Features or bare descriptors to match. Alternatively, pass only a list of pairs
        ``[(features_a, features_b), ...]`` to get a list of matches: a device processes the pairs
        together and uploads the features of each image once.
    mutual : bool
        Keep only mutual nearest neighbors.
    ratio : float or None
        Ratio test: keep a match only if its distance is below ``ratio`` times the distance to the
        second-nearest neighbor. For :class:`Features`, neighbors within ``radius`` pixels of the
        nearest one are ignored when searching for the second nearest. None disables the test.
    radius : float
        Radius in pixels for ``ratio``.
    agreement : bool
        Also keep matches that fail the ratio test but agree with their neighbors: the local affine
        map of a match, given by its two frames, predicts its neighbors better than chance. Requires
        :class:`Features`. ``Matches.origin`` says which they are.
    refine : bool
        Refine the second frame of each match to sub-pixel accuracy: see :func:`refine`. The result
        is in ``Matches.refined``, which :func:`verify` uses. Requires ``images`` and a single pair.
    images : (image_a, image_b), optional
        The two images, for ``refine``.
    device : str
        Device for the search and the refinement: "cpu", "cuda", "cuda:1" or "auto".

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
    options = comparison.MatchOptions(mutual, ratio, radius, agreement, device)
    if features_b is None:
        if refine:
            raise InputError("refine=True accepts only one pair at a time")
        return comparison.matched(comparison.checked_pairs(features_a), options)
    pair = comparison.checked_pair(features_a, features_b)
    both = all(comparison.has_positions(features) for features in pair)
    if refine and (not both or images is None or len(images) != 2):
        raise InputError("refine=True needs two caloric.Features and images=(image_a, image_b)")
    if refine and images is not None:
        prepared = comparison.prepared(images, device)
        return comparison.matched_and_refined(pair, prepared, options)
    return comparison.matched([pair], options)[0]


POINT_SIGMA = 2.5  # pixels; default scale of points


@known_options
@threads.single_threaded_blas
def refine(
    image_a: ImageLike,
    image_b: ImageLike,
    frames_a: Features | Frames | ArrayLike | Sequence[Any],
    frames_b: Features | Frames | ArrayLike | Sequence[Any],
    *,
    sigma: float = POINT_SIGMA,
    device: str = "cpu",
) -> Refined:
    """Refine the second frame or point of each match to sub-pixel accuracy.

    Matches may come from any method: row i of ``frames_a`` matches row i of ``frames_b``. The
    second frame is moved and deformed by an affine map until the gradients around it agree with
    those around the first frame.

    Parameters
    ----------
    image_a, image_b : array, PIL image, path, bytes, file object or tensor
        The two images: see :func:`read_image`.
    frames_a, frames_b : Frames, Features, OpenCV keypoints, or array (m, 2) or (m, 2, 3)
        The m matched frames of each image. Points (m, 2) are given circular, upright frames.
    sigma : float
        Scale σ of these frames, in pixels.
    device : str
        "cpu", "cuda", "cuda:1", "auto" (a GPU if available) or "torch:cpu".

    Returns
    -------
    Refined
        ``xy`` (m, 2) and ``maps`` (m, 2, 3) in the second image, ``moved`` (m,), and
        ``covariances`` (m, 2, 2). A frame without texture is left unchanged, as is one that would
        move by more than its σ, stretch by more than a factor of 1.7, or agree less than before.

    Examples
    --------
    >>> import numpy as np, caloric
    >>> from scipy.ndimage import gaussian_filter
    >>> image = gaussian_filter(np.random.default_rng(0).random((80, 90)), 2)
    >>> image = (image - image.min()) / np.ptp(image)
    >>> refined = caloric.refine(image, image[:, 5:], [[40.0, 30.0]], [[35.6, 29.5]], sigma=3)
    >>> np.abs(refined.xy - [35, 30]).max() < 0.05
    np.True_
    """
    if not (isinstance(sigma, numbers.Real) and 0 < sigma < np.inf):
        raise InputError(f"sigma must be a positive number of pixels, got {sigma!r}")
    a, b = (
        comparison.maps_of(frames, which, float(sigma))
        for frames, which in ((frames_a, "frames_a"), (frames_b, "frames_b"))
    )
    if len(a) != len(b):
        raise InputError(f"{len(a)} frames_a but {len(b)} frames_b; they must match row by row")
    descent = comparison.descent(device)
    return refinement.refine(inputs.gray(image_a), inputs.gray(image_b), a, b, descent)
