"""A drop-in replacement of ``skimage.feature.SIFT``; coordinates are (row, column)."""

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric import pipeline
from caloric.descriptor import recipes
from caloric.descriptor.layout import Rings
from caloric.descriptor.recipes import Descriptor
from caloric.detector import extrema
from caloric.errors import InputError
from caloric.frames import Frames
from caloric.image.scalespace import FIRST, SCALES, octave_and_layer


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a call, with the attributes that scikit-image sets on its extractor."""

    frames: Frames
    descriptors: NDArray[Any]

    @property
    def keypoints(self) -> NDArray[np.int64]:
        """Return the positions (n, 2) of the keypoints as (row, column), rounded to pixels."""
        return np.rint(self.positions).astype(np.int64)

    @property
    def positions(self) -> NDArray[np.float64]:
        """Return the sub-pixel positions (n, 2) of the keypoints as (row, column)."""
        return self.frames.xy[:, ::-1]

    @property
    def sigmas(self) -> NDArray[np.float64]:
        """Return the scales σ (n,) in pixels."""
        return self.frames.sigma

    @property
    def octaves(self) -> NDArray[np.int64]:
        """Return the octave (n,) of each keypoint; octave 0 is the image upsampled by two."""
        return octave_and_layer(self.sigmas)[0]

    @property
    def scales(self) -> NDArray[np.int64]:
        """Return the level (n,) of each keypoint within its octave, 1 to 3."""
        return octave_and_layer(self.sigmas)[1]

    @property
    def orientations(self) -> NDArray[np.float64]:
        """Return angles (n,) in (−π, π], from the row axis towards the column axis."""
        return np.pi - (np.pi / 2 + self.frames.angle) % (2 * np.pi)

    @property
    def responses(self) -> NDArray[np.float32]:
        """Return the strength (n,) of each keypoint."""
        return self.frames.scores


_PROPERTIES = {name for name, value in vars(Result).items() if isinstance(value, property)}


DEFAULT = "caloric-unlearned"
# Arguments of scikit-image whose values are fixed in Caloric.
_FIXED = {
    "upsampling": 2, "n_scales": SCALES, "sigma_min": FIRST, "sigma_in": 0.5,
    "n_bins": 36, "lambda_ori": 1.5, "c_max": 0.8, "n_hist": 4, "n_ori": 8,
}  # fmt: skip
_WIDTH = 6.0  # scikit-image's default of lambda_descr


class SIFT:
    """A drop-in replacement of ``skimage.feature.SIFT``.

    ``keypoints``, ``descriptors`` and the other attributes are those of the last call.

    Parameters
    ----------
    upsampling, n_scales, sigma_min, sigma_in, n_bins, lambda_ori, c_max, n_hist, n_ori
        Only the defaults of scikit-image are accepted, which are fixed in Caloric's detector.
    n_octaves : int
        The maximum number of octaves; keypoints of higher octaves are left out.
    c_dog, c_edge : float
        The thresholds of contrast and of edges.
    lambda_descr : float
        The size of the descriptor: the radius of its outermost ring is 1.25 times this number of
        σ, the half-width of scikit-image's patch. It is fixed for whitened descriptors.
    descriptor : str
        The default has non-negative bytes and length 512, as scikit-image has;
        ``descriptor="caloric"`` is the default of the library, floats of unit length.
    max_features, upright, affine
        See :func:`caloric.detect`.
    """

    def __init__(
        self,
        upsampling: int = 2,
        n_octaves: int = 8,
        n_scales: int = SCALES,
        sigma_min: float = FIRST,
        sigma_in: float = 0.5,
        c_dog: float = extrema.CONTRAST / SCALES,
        c_edge: float = extrema.EDGE,
        n_bins: int = 36,
        lambda_ori: float = 1.5,
        c_max: float = 0.8,
        lambda_descr: float = _WIDTH,
        n_hist: int = 4,
        n_ori: int = 8,
        *,
        descriptor: str = DEFAULT,
        max_features: int | None = None,
        upright: bool = False,
        affine: bool = False,
    ) -> None:
        """Set the options."""
        given = dict(zip(_FIXED, (upsampling, n_scales, sigma_min, sigma_in, n_bins, lambda_ori,
                                  c_max, n_hist, n_ori), strict=True))  # fmt: skip
        for name, value in given.items():
            if value != _FIXED[name]:
                raise InputError(f"{name} is always {_FIXED[name]} in Caloric, got {value}")
            setattr(self, name, value)
        self.n_octaves = n_octaves
        self.c_dog, self.c_edge, self.lambda_descr = c_dog, c_edge, lambda_descr
        self.delta_min, self.float_dtype = 1 / upsampling, np.float32
        is_integer = isinstance(n_octaves, int | np.integer) and not isinstance(n_octaves, bool)
        if not is_integer or n_octaves < 1:
            raise InputError(f"n_octaves must be a positive integer, got {n_octaves!r}")
        if not lambda_descr > 0:
            raise InputError(f"lambda_descr must be positive, got {lambda_descr!r}")
        self.descriptor = descriptor
        self._recipe = _resized(descriptor, lambda_descr)
        self.options: dict[str, Any] = {
            "max_features": max_features,
            "contrast": c_dog * SCALES,
            "edge": c_edge,
            "upright": upright,
            "affine": affine,
        }
        self.result: Result | None = None

    @property
    def deltas(self) -> NDArray[np.float64]:
        """Return the sampling distance of each octave (n_octaves,), in pixels."""
        return np.asarray(self.delta_min * 2.0 ** np.arange(self.n_octaves), np.float64)

    @property
    def scalespace_sigmas(self) -> NDArray[np.float64]:
        """Return σ of each level of the scale space (n_octaves, n_scales + 3), in pixels."""
        steps = 2.0 ** (np.arange(SCALES + 3) / SCALES)
        return np.asarray(self.deltas[:, None] * FIRST * steps, np.float64)

    def detect(self, image: Any) -> None:
        """Detect the keypoints of an image."""
        frames = pipeline.detect(image, **self.options)
        self.result = Result(frames[self._low(frames)], np.zeros((0, 0), np.float32))

    def extract(self, image: Any) -> None:
        """Describe the keypoints of the last call of ``detect``."""
        if self.result is None:
            raise InputError("there are no keypoints to describe: call detect first")
        frames = self.result.frames
        values = pipeline.describe(image, frames, self._recipe, dtype=self._dtype)
        self.result = Result(frames, values)

    def detect_and_extract(self, image: Any) -> None:
        """Detect and describe keypoints, computed from one scale space."""
        features = pipeline.extract(image, self._recipe, dtype=self._dtype, **self.options)
        features = features[self._low(features.frames)]
        self.result = Result(features.frames, features.descriptors)

    def _low(self, frames: Frames) -> NDArray[np.bool_]:
        """Return which frames (n,) are in the first ``n_octaves`` octaves."""
        return np.asarray(octave_and_layer(frames.sigma)[0] < self.n_octaves)

    @property
    def _dtype(self) -> str:
        return "uint8" if self._recipe.whitening is None else "float32"

    def __getattr__(self, name: str) -> Any:
        """Return an attribute of the last result."""
        if name == "descriptors" or name in _PROPERTIES:
            if self.__dict__.get("result") is None:
                raise AttributeError(f"{name}: call detect or detect_and_extract first")
            return getattr(self.result, name)
        raise AttributeError(name)


def _resized(name: str, lambda_descr: float) -> Descriptor:
    """Return a recipe scaled so that its outermost ring is at the edge of scikit-image's patch."""
    recipe = recipes.descriptor(name)
    if recipe.whitening is not None or not isinstance(recipe.layout, Rings):
        if lambda_descr != _WIDTH:
            raise InputError(f"lambda_descr is always {_WIDTH:g} with {name!r}, got {lambda_descr}")
        return recipe
    # The half-width of a patch of n_hist cells, with an interpolation margin of half a cell.
    scale = lambda_descr * (1 + 1 / _FIXED["n_hist"]) / recipe.layout.radii[-1]
    scaled = recipes.descriptor(recipe, sigma_d=scale * recipe.kernel.sigma_d)
    return replace(
        scaled, layout=replace(recipe.layout, radii=tuple(scale * r for r in recipe.layout.radii))
    )
