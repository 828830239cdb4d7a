"""Refinement of matches to sub-pixel, affine-corrected agreement by a short continuation.

The template of a match is the gradient field of the first image in the coordinates of its frame;
the second frame is moved until its field agrees. This is what :func:`caloric.align` does for one
template, done for thousands of small ones at once, at two σ.
"""

from dataclasses import dataclass

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.descriptor import fields
from caloric.descriptor.fields import Pixels
from caloric.frames import sigmas
from caloric.runtime import threads
from caloric.theory.gaussians import FloatArray

SIDE = 21  # samples across a neighbourhood
REACH = 5.0  # σ from the centre to the edge of a neighbourhood
_BLURS = (1.0, 0.5)  # σ of the continuation, in samples
_STEPS = 4  # per blur
_FARTHEST = 1.0  # σ of the second frame: the largest shift of a match
_LARGEST = 1.7  # the largest factor by which the frame may be stretched
_BLOCK = 512  # matches
_LONGEST = 0.4  # the largest change of a parameter per step: the update stays invertible
_FLAT = 1e-4  # mean square gradient, for pixels in [0, 1], below which a patch counts as flat


@dataclass(frozen=True, eq=False)
class Refined:
    """The refined second frames ``maps`` (m, 2, 3), and which of them were ``moved`` (m,)."""

    maps: FloatArray
    moved: NDArray[np.bool_]


def _octaves(image: Pixels) -> list[Pixels]:
    levels = []
    for level in fields.halves(image):
        levels.append(level)
        if min(level.shape) < 32:
            break
    return levels


_LINE = np.linspace(-REACH, REACH, SIDE)
_GRID = np.stack(np.meshgrid(_LINE, _LINE), -1).reshape(-1, 2)
_WINDOW = np.exp(-(_GRID**2).sum(1) / (2 * (REACH / 2) ** 2)).astype(np.float32)


def _patches(levels: list[Pixels], maps: FloatArray) -> Pixels:
    """Return patches (m, SIDE, SIDE) around frames, from levels no coarser than the samples."""
    octave = np.log2(np.maximum(sigmas(maps) * (_LINE[1] - _LINE[0]), 1e-9))
    octave = np.clip(np.floor(octave), 0, len(levels) - 1).astype(int)
    xy = np.einsum("mij,nj->mni", maps[:, :, :2], _GRID) + maps[:, None, :, 2]
    xy = (xy / 2.0 ** octave[:, None, None]).astype(np.float32)
    result = np.empty((len(maps), SIDE * SIDE), np.float32)
    for level in np.unique(octave):
        rows = np.flatnonzero(octave == level)
        result[rows] = cv2.remap(
            levels[level], xy[rows, :, 0], xy[rows, :, 1], cv2.INTER_CUBIC,
            borderMode=cv2.BORDER_REPLICATE,
        )  # fmt: skip
    return result.reshape(len(maps), SIDE, SIDE)


def _blurred(patches: Pixels, sigma: float) -> Pixels:
    """Return the patches (m, SIDE, SIDE) blurred by ``sigma`` samples."""
    reach = int(np.ceil(3 * sigma))
    taps = np.exp(-0.5 * (np.arange(-reach, reach + 1) / sigma) ** 2).astype(np.float32)
    taps /= taps.sum()
    index = np.arange(SIDE)[:, None] + np.arange(-reach, reach + 1)
    matrix = np.zeros((SIDE, SIDE), np.float32)
    np.add.at(matrix, (np.arange(SIDE)[:, None], np.clip(index, 0, SIDE - 1)), taps)
    return np.asarray(matrix @ patches @ matrix.T, np.float32)


def _gradients(patches: Pixels) -> tuple[Pixels, Pixels]:
    """Return ∂/∂x and ∂/∂y of patches, per σ of the frame."""
    down, across = np.gradient(patches, _LINE[1] - _LINE[0], axis=(1, 2))
    return np.asarray(across, np.float32), np.asarray(down, np.float32)


def _fields(patches: Pixels) -> tuple[Pixels, NDArray[np.bool_]]:
    """Return ∇f over its weighted root mean square (m, 2, n), and which patches are not flat."""
    values = np.stack(_gradients(patches), 1).reshape(len(patches), 2, -1)
    power = (values**2).sum(1) @ _WINDOW / _WINDOW.sum()
    return values / np.sqrt(power + 1e-12)[:, None, None], power > _FLAT


def _costs(residual: Pixels) -> FloatArray:
    return np.asarray((residual**2).sum(1) @ _WINDOW, np.float64)


def _moved(maps: FloatArray, steps: FloatArray) -> FloatArray:
    """Return B ∘ δ⁻¹ (m, 2, 3) of maps B (m, 2, 3) and parameters of δ (m, 6)."""
    delta = np.zeros((len(maps), 3, 3))
    delta[:, 2, 2] = 1
    delta[:, 0], delta[:, 1] = steps[:, [0, 1, 4]], steps[:, [2, 3, 5]]
    delta[:, [0, 1], [0, 1]] += 1
    return np.asarray(maps @ np.linalg.inv(delta))


def _level(
    template: Pixels, second: list[Pixels], b: FloatArray, blur: float
) -> tuple[FloatArray, FloatArray]:
    """Return the second frames (m, 2, 3) after the steps at one σ, and their costs (m,).

    ``template`` (m, 2, n) has the fields around the first frames at that σ.
    """
    count = len(template)
    planes = template.reshape(-1, SIDE, SIDE)
    across, down = (v.reshape(template.shape) for v in _gradients(planes))
    x, y = _GRID[:, 0].astype(np.float32), _GRID[:, 1].astype(np.float32)
    gx, gy = template[:, 0], template[:, 1]
    zero = np.zeros_like(gx)
    # ∇(f ∘ δ) = δᵀ ∇f ∘ δ: the field is moved, and its vectors are rotated and scaled.
    turned = (
        np.stack([gx, zero], 1), np.stack([zero, gx], 1),
        np.stack([gy, zero], 1), np.stack([zero, gy], 1),
    )  # fmt: skip
    slopes = np.stack(
        [across * x + turned[0], across * y + turned[1], down * x + turned[2],
         down * y + turned[3], across, down], 1,
    )  # fmt: skip
    weighted = (slopes * _WINDOW).reshape(count, 6, -1)
    slopes = slopes.reshape(count, 6, -1)
    hessian = (weighted @ slopes.transpose(0, 2, 1)).astype(np.float64)
    # Without any gradient the Hessian is 0; with this term the step is then 0 too.
    least = 1e-6 * np.trace(hessian, axis1=1, axis2=2)[:, None, None] + 1e-9
    diagonal = (hessian + least) * np.eye(6)
    damping = np.full(count, 1e-3)
    values, _ = _fields(_blurred(_patches(second, b), blur))
    residual = values - template
    cost = _costs(residual)
    for _ in range(_STEPS):
        gradient = (weighted @ residual.reshape(count, -1, 1)).astype(np.float64)
        step = np.linalg.solve(hessian + damping[:, None, None] * diagonal, gradient)[:, :, 0]
        trial = _moved(b, np.clip(step, -_LONGEST, _LONGEST))
        values, _ = _fields(_blurred(_patches(second, trial), blur))
        new = values - template
        lower = _costs(new) < cost
        b = np.where(lower[:, None, None], trial, b)
        residual = np.where(lower[:, None, None], new, residual)
        cost = np.where(lower, _costs(new), cost)
        damping = np.where(lower, damping / 5, np.maximum(10 * damping, 1e-2))
    return b, cost / _WINDOW.sum()


def refine(image_a: Pixels, image_b: Pixels, a: FloatArray, b: FloatArray) -> Refined:
    """Return the second frames b (m, 2, 3) moved to agree with the first frames a (m, 2, 3).

    A frame is left unchanged if it would move by more than its σ, be stretched by more than 1.7 or
    agree less than before, or if the patch of the first image is flat.
    """
    first, second = _octaves(image_a), _octaves(image_b)

    def block(rows: range) -> tuple[FloatArray, NDArray[np.bool_]]:
        part = slice(rows.start, rows.stop)
        patches, start = _patches(first, a[part]), b[part]
        _, textured = _fields(patches)
        moved = start
        for blur in _BLURS:
            template, _ = _fields(_blurred(patches, blur))
            moved, cost = _level(template, second, moved, blur)
        before = _fields(_blurred(_patches(second, start), _BLURS[-1]))[0]
        better = cost < _costs(before - template) / _WINDOW.sum()
        fits = textured & better & _allowed(start, moved) & (cost < 0.5)
        return np.where(fits[:, None, None], moved, start), fits

    parts = threads.each(block, threads.strips(len(a), _BLOCK))
    if not parts:
        return Refined(b, np.zeros(0, bool))
    return Refined(*(np.concatenate(v) for v in zip(*parts, strict=True)))


def _allowed(before: FloatArray, after: FloatArray) -> NDArray[np.bool_]:
    """Return which frames (m,) moved by at most σ and were not stretched too much."""
    shift = np.linalg.norm(after[:, :, 2] - before[:, :, 2], axis=1)
    change = np.linalg.solve(before[:, :, :2], after[:, :, :2])
    stretch = np.linalg.svd(change, compute_uv=False)
    near = shift <= _FARTHEST * sigmas(before)
    return np.asarray(near & (stretch[:, 0] <= _LARGEST) & (stretch[:, 1] >= 1 / _LARGEST))
