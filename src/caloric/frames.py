"""Frames: the positions, scales, orientations and shapes of features, and their conventions.

* Coordinates are (x, y); the center of the top-left pixel is (0, 0), as in OpenCV. COLMAP uses
  (0.5, 0.5); :meth:`Frames.from_colmap` and :meth:`Frames.to_colmap` convert.
* A frame is a 2 x 3 affine map u ↦ A u + t from the plane of the unit disk to the image, with
  σ = √|det A|. OpenCV's ``size`` is 2σ, COLMAP's scale is σ, and kornia's LAF is [6A | t].
* Angles are in radians, from +x towards +y: clockwise on the screen. OpenCV uses degrees.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from caloric.errors import InputError
from caloric.image.scalespace import SCALES, octave_and_layer
from caloric.runtime import tables
from caloric.runtime.arrays import at_least, namespace
from caloric.runtime.indexing import rows, select
from caloric.types import ArrayOrTensor, FloatArray

# kornia cuts patches of ±1 around a LAF, and its detectors return LAFs of 6σ.
LAF_SCALE = 6.0


def with_scale(maps: ArrayOrTensor, factor: float) -> ArrayOrTensor:
    """Return frames (..., 2, 3) with scales multiplied by a factor and the same positions."""
    return namespace(maps).concatenate([factor * maps[..., :2], maps[..., 2:]], -1)


def _scores(scores: ArrayLike | None, count: int) -> NDArray[np.float32]:
    return np.zeros(count, np.float32) if scores is None else np.asarray(scores, np.float32)


def local_maps(maps_a: FloatArray, maps_b: FloatArray) -> FloatArray:
    """Return the affine maps (m, 2, 2) from frames (m, 2, 3) of one image to those of another."""
    return products(maps_b[:, :, :2], inverses(maps_a))


def sigmas(maps: ArrayOrTensor) -> ArrayOrTensor:
    """Return σ = √|det A| (n,) of frames (n, 2, 3), in pixels."""
    return abs(determinants(maps)) ** 0.5


def determinants(maps: ArrayOrTensor) -> ArrayOrTensor:
    """Return det A (n,) of frames (n, 2, 3) or matrices (n, 2, 2)."""
    return maps[:, 0, 0] * maps[:, 1, 1] - maps[:, 0, 1] * maps[:, 1, 0]


def inverses(linear: ArrayOrTensor) -> ArrayOrTensor:
    """Return the inverses (n, 2, 2) of matrices (n, 2, 2); singular ones have no finite inverse."""
    a, b, c, d = linear[:, 0, 0], linear[:, 0, 1], linear[:, 1, 0], linear[:, 1, 1]
    adjugate = namespace(linear).stack([d, -b, -c, a], 1).reshape(-1, 2, 2)
    return adjugate / determinants(linear)[:, None, None]


def singular_values(linear: ArrayOrTensor) -> tuple[ArrayOrTensor, ArrayOrTensor]:
    """Return the largest and the smallest singular value (n,) of matrices (n, 2, 2).

    The squares of the entries sum to s² + t², and the absolute determinant is s t, so that s + t
    and s − t are known: many times faster than NumPy's routine.
    """
    squares, area = (linear**2).sum((1, 2)), 2 * abs(determinants(linear))
    total, difference = (squares + area) ** 0.5, at_least(squares - area, 0.0) ** 0.5
    return (total + difference) / 2, (total - difference) / 2


def products(a: FloatArray, b: FloatArray) -> FloatArray:
    """Return A B (n, 2, 2) of matrices (n, 2, 2), faster than NumPy's products."""
    (a00, a01, a10, a11), (b00, b01, b10, b11) = (
        np.ascontiguousarray(v.reshape(-1, 4).T) for v in (a, b)
    )
    result = np.empty((len(a), 2, 2))
    result[:, 0, 0], result[:, 0, 1] = a00 * b00 + a01 * b10, a00 * b01 + a01 * b11
    result[:, 1, 0], result[:, 1, 1] = a10 * b00 + a11 * b10, a10 * b01 + a11 * b11
    return result


def mapped_covariances(covariances: FloatArray, linear: FloatArray) -> FloatArray:
    """Return L C Lᵀ (n, 2, 2) of covariances and matrices (n, 2, 2)."""
    return products(products(linear, covariances), linear.swapaxes(1, 2))


@dataclass(frozen=True, eq=False)
class Frames:
    """Positions, scales, orientations and shapes of n features of an image.

    Attributes
    ----------
    maps : array (n, 2, 3) float64
        Affine maps [A | (x, y)] in pixels. A maps the unit circle to the ellipse of the frame at
        1 σ.
    scores : array (n,) float32
        Strengths; higher is stronger.
    """

    maps: FloatArray
    scores: NDArray[np.float32]

    def __post_init__(self) -> None:
        """Check that shapes agree, numbers are finite and no frame is singular."""
        maps = np.array(self.maps, np.float64)
        scores = np.array(self.scores, np.float32)
        if maps.ndim != 3 or maps.shape[1:] != (2, 3):
            raise InputError(f"frames: expected maps of shape (n, 2, 3), got {maps.shape}")
        if scores.shape != (len(maps),):
            raise InputError(f"frames: {len(maps)} maps but scores of shape {scores.shape}")
        if not np.isfinite(maps).all():
            raise InputError("frames: NaN or infinite values; remove these frames first")
        if len(maps) and not (np.abs(determinants(maps)) > 0).all():
            raise InputError("frames: a frame is singular; its scale must be positive")
        maps.setflags(write=False)
        scores.setflags(write=False)
        object.__setattr__(self, "maps", maps)
        object.__setattr__(self, "scores", scores)

    @classmethod
    def unchecked(cls, maps: FloatArray, scores: NDArray[np.float32]) -> "Frames":
        """Return frames of arrays that are known to be valid, without copying them."""
        frames = object.__new__(cls)
        for name, values in (("maps", maps), ("scores", scores)):
            values.setflags(write=False)
            object.__setattr__(frames, name, values)
        return frames

    def __len__(self) -> int:
        """Return the number of frames."""
        return len(self.maps)

    def __getitem__(self, index: Any) -> "Frames":
        """Return the frames selected by a slice, a mask, an array of indices or one index."""
        index = rows(index, len(self))
        return Frames(select(self.maps, index), self.scores[index])

    def __repr__(self) -> str:
        """Return a summary in one line."""
        sizes = f", σ {self.sigma.min():.3g} to {self.sigma.max():.3g} px" if len(self) else ""
        return f"Frames({len(self)}{sizes})"

    def _repr_html_(self) -> str:
        return self.html_table(repr(self))

    def html_table(self, title: str) -> str:
        """Return an HTML table of the first frames."""
        first = self[: tables.SHOWN]
        numbers = zip(
            first.xy[:, 0].tolist(), first.xy[:, 1].tolist(), first.sigma.tolist(),
            np.degrees(first.angle).tolist(), first.scores.tolist(), strict=True,
        )  # fmt: skip
        head = ("x", "y", "σ [px]", "angle [°]", "score")
        return tables.html(title, head, numbers, len(self))

    @property
    def xy(self) -> FloatArray:
        """Positions (n, 2) in pixels."""
        return self.maps[:, :, 2]

    @property
    def sigma(self) -> FloatArray:
        """Scales σ = √|det A| (n,) in pixels."""
        return np.asarray(sigmas(self.maps))

    @property
    def angle(self) -> FloatArray:
        """Orientations (n,) in radians in (−π, π], the directions to which A maps +x."""
        return np.asarray(np.arctan2(self.maps[:, 1, 0], self.maps[:, 0, 0]))

    def moved(self, change: FloatArray) -> "Frames":
        """Return the frames after an affine change of coordinates (2, 3)."""
        maps = change[:, :2] @ self.maps
        maps[:, :, 2] += change[:, 2]
        return Frames(maps, self.scores)

    @classmethod
    def empty(cls) -> "Frames":
        """Return a set of no frames."""
        return cls(np.zeros((0, 2, 3)), np.zeros(0, np.float32))

    @classmethod
    def from_xysa(
        cls,
        x: ArrayLike,
        y: ArrayLike,
        sigma: ArrayLike,
        angle: ArrayLike = 0.0,
        scores: ArrayLike | None = None,
    ) -> "Frames":
        """Return circular frames from positions and scales in pixels and angles in radians."""
        columns = (np.atleast_1d(np.asarray(v, np.float64)) for v in (x, y, sigma, angle))
        try:
            x, y, sigma, angle = np.broadcast_arrays(*columns)
        except ValueError:
            raise InputError("frames: x, y, sigma and angle must have the same length") from None
        if not (sigma > 0).all():
            raise InputError("frames: sigma must be positive")
        c, s = sigma * np.cos(angle), sigma * np.sin(angle)
        maps = np.stack([np.stack([c, -s, x], -1), np.stack([s, c, y], -1)], -2)
        return cls(maps, _scores(scores, len(maps)))

    @classmethod
    def from_opencv(cls, keypoints: Sequence[Any]) -> "Frames":
        """Return the frames of ``cv2.KeyPoint`` objects; an angle of −1 (undefined) becomes 0."""
        if len(keypoints) == 0:
            return cls.empty()
        rows = [(k.pt[0], k.pt[1], k.size / 2, k.angle, k.response) for k in keypoints]
        x, y, sigma, degrees, response = np.array(rows, np.float64).T
        angle = np.radians(np.where(degrees == -1, 0, degrees))
        return cls.from_xysa(x, y, sigma, angle, response)

    def to_opencv(self) -> tuple[Any, ...]:
        """Return ``cv2.KeyPoint`` objects, which have σ and angle but no affine shape."""
        import cv2

        # OpenCV's SIFT selects the pyramid level of a descriptor by the octave field.
        octave, layer = octave_and_layer(self.sigma)
        rows = zip(
            self.xy.tolist(),
            (2 * self.sigma).tolist(),
            np.degrees(self.angle % (2 * np.pi)).tolist(),
            self.scores.tolist(),
            (((octave - 1) & 255) | (np.clip(layer, 0, SCALES) << 8)).tolist(),
            strict=True,
        )
        return tuple(cv2.KeyPoint(x, y, size, a, r, o) for (x, y), size, a, r, o in rows)

    @classmethod
    def from_laf(cls, laf: ArrayLike, scores: ArrayLike | None = None) -> "Frames":
        """Return the frames of kornia's local affine frames, (n, 2, 3) or (1, n, 2, 3).

        The scale of a LAF is 6σ.
        """
        maps = np.asarray(laf, np.float64)
        if maps.ndim == 4 and len(maps) == 1:
            maps = maps[0]
        return cls(with_scale(maps, 1 / LAF_SCALE), _scores(scores, len(maps)))

    def to_laf(self) -> NDArray[np.float32]:
        """Return kornia's local affine frames, (1, n, 2, 3) float32, of scale 6σ."""
        return np.asarray(with_scale(self.maps[None], LAF_SCALE), np.float32)

    @classmethod
    def from_colmap(cls, keypoints: ArrayLike) -> "Frames":
        """Return the frames of COLMAP rows (x, y[, scale, angle]) or (x, y, a11, a12, a21, a22)."""
        rows = np.asarray(keypoints, np.float64)
        if rows.ndim != 2 or rows.shape[1] not in (2, 4, 6):
            raise InputError(
                f"COLMAP keypoints must have 2, 4 or 6 columns, got shape {rows.shape}"
            )
        xy = rows[:, :2] - 0.5
        if rows.shape[1] == 6:
            maps = np.concatenate([rows[:, 2:].reshape(-1, 2, 2), xy[:, :, None]], -1)
            return cls(maps, _scores(None, len(maps)))
        sigma, angle = rows[:, 2:].T if rows.shape[1] == 4 else (np.ones(len(rows)), 0.0)
        return cls.from_xysa(xy[:, 0], xy[:, 1], sigma, angle)

    def to_colmap(self) -> NDArray[np.float32]:
        """Return COLMAP's rows (x, y, a11, a12, a21, a22), (n, 6) float32."""
        rows = np.concatenate([self.xy + 0.5, self.maps[:, :, :2].reshape(-1, 4)], 1)
        return rows.astype(np.float32)
