"""The last σ of a registration on a device: :mod:`caloric.alignment.registration`, in tensors.

A template of 1,024 x 1,024 pixels is warped, measured and compared some thirty times, one after the
other. Differences from the CPU are those of float32 sums in another order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.alignment import registration
from caloric.alignment.registration import Problem
from caloric.alignment.schedule import SCHEDULE
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature
from caloric.gpu import cuda_streams, upload
from caloric.types import FloatArray, Pixels, TransformModel


@contextmanager
def _working(device: Any) -> Iterator[None]:
    # Without the flag, convolutions round to 10 bits.
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with torch.no_grad(), cuda_streams.using(device), exact:
        yield


@lru_cache(maxsize=64)  # blurs against aliasing differ with every transform
def _taps(sigma: float, count: int, device: Any) -> Tensor:
    return torch.tensor(cv2.getGaussianKernel(count, sigma)[:, 0].astype(np.float32), device=device)


@lru_cache(maxsize=64)
def _mirrored(count: int, margin: int, device: Any) -> Tensor:
    """Return the indices of ``count`` samples with a margin, mirrored as OpenCV does."""
    return torch.tensor(np.pad(np.arange(count), margin, mode="reflect"), device=device)


def _gaussian(planes: Tensor, sigma: float) -> Tensor:
    """Return planes (c, h, w) ⋆ k_σ as ``cv2.GaussianBlur`` does, mirrored at the border."""
    margin = (round(8 * sigma + 1) | 1) // 2
    rows, columns = (_mirrored(n, margin, planes.device) for n in planes.shape[1:])
    taps = _taps(sigma, 2 * margin + 1, planes.device)
    down = functional.conv2d(planes[:, None, rows], taps.view(1, 1, -1, 1))
    return functional.conv2d(down[..., columns], taps.view(1, 1, 1, -1))[:, 0]


def _blurred(planes: Tensor, sigma: float) -> Tensor:
    """Return :func:`caloric.descriptor.fields.blurred`: zeros outside."""
    if sigma <= 0.05:
        return planes
    margin = int(np.ceil(3 * sigma))
    taps = _taps(sigma, 2 * margin + 1, planes.device)
    down = functional.conv2d(planes[:, None], taps.view(1, 1, -1, 1), padding=(margin, 0))
    return functional.conv2d(down, taps.view(1, 1, 1, -1), padding=(0, margin))[:, 0]


@lru_cache(maxsize=64)
def _coarsely(count: int, sigma: float, device: Any) -> tuple[Tensor, Tensor]:
    """Return matrices (few, count) and (count, few): a wide blur on a coarse grid, and back."""
    few = fields.coarse(count, sigma)
    narrow = sigma * few / count
    down = cv2.resize(np.eye(count, dtype=np.float32), (count, few), interpolation=cv2.INTER_AREA)
    taps = cv2.getGaussianKernel(round(8 * narrow + 1) | 1, narrow)
    down = cv2.sepFilter2D(down.reshape(few, count), -1, np.ones(1), taps)
    back = cv2.resize(np.eye(few, dtype=np.float32), (few, count), interpolation=cv2.INTER_LINEAR)
    both = (down.reshape(few, count), back.reshape(count, few))
    return tuple(torch.tensor(v, device=device) for v in both)


def _smoothed(plane: Tensor, sigma: float) -> Tensor:
    """Return plane (h, w) ⋆ k_σ as :mod:`caloric.descriptor.fields` does it."""
    if tuple(fields.coarse(n, sigma) for n in plane.shape) == tuple(plane.shape):
        return _gaussian(plane[None], sigma)[0]
    (down, below), (across, beside) = (_coarsely(n, sigma, plane.device) for n in plane.shape)
    return below @ (down @ plane @ across.T) @ beside.T


def _slopes_of(planes: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return ∂/∂x and ∂/∂y of planes (…, h, w) by central differences, 0 at the border."""
    dx, dy = torch.zeros_like(planes), torch.zeros_like(planes)
    torch.sub(planes[..., 2:], planes[..., :-2], out=dx[..., 1:-1])
    torch.sub(planes[..., 2:, :], planes[..., :-2, :], out=dy[..., 1:-1, :])
    return dx * scale, dy * scale


def _measured(pixels: Tensor, feature: Feature, around: float) -> Tensor:
    """Return ``feature.measure(pixels, around)`` (c, h, w) for pixels (h, w)."""
    smooth = _gaussian(pixels[None], fields.SHARPNESS)[0]
    if not any(feature.harmonics):
        count = fields.LEVELS
        levels = (torch.arange(count, device=pixels.device) + 0.5) / count
        layers = (-0.5 * ((smooth - levels[:, None, None]) * count) ** 2).exp()
        return layers - float(np.sqrt(2 * np.pi) / count)
    gx, gy = _slopes_of(smooth, 0.5)
    square = gx * gx + gy * gy
    floor = fields.FAINT**2 * square.mean() + fields.NOISE**2
    norm = (_smoothed(square, around) + floor).sqrt()
    size = square.sqrt()
    gradient = torch.complex(gx, gy) / size.clamp_min(1e-12)
    turn = gradient**2 if feature.harmonics[1] == 2 else gradient
    strength = size / norm
    first = strength * turn
    second = first * turn
    one, two, three = fields.WEIGHTS
    both = torch.view_as_real(torch.stack([two * first, three * second])).permute(0, 3, 1, 2)
    return torch.cat([(one * (strength - fields.MEAN))[None], both.reshape(4, *pixels.shape)])


@dataclass(frozen=True, eq=False)
class _Level:
    """:class:`~caloric.alignment.registration.Level` on the device."""

    sigma: float
    model: TransformModel
    stride: int
    values: Tensor  # (c, n)
    squares: Tensor  # (n,)
    slopes: Tensor  # (p, c n)
    products: Tensor  # (p (p + 1) / 2, n)
    power: float


@dataclass(frozen=True, eq=False)
class _Evaluation:
    """:class:`~caloric.alignment.registration.Evaluation`, with its normal equations."""

    energy: float
    count: int
    hessian: FloatArray
    gradient: FloatArray
    gain: Tensor
    values: Tensor
    weights: Tensor


@dataclass(frozen=True, eq=False)
class FineScene:
    """A template (h, w) and an image on a device, for the last σ."""

    template: Tensor  # its fields (c, h, w)
    image: Tensor
    feature: Feature
    _levels: dict[tuple[float, TransformModel], _Level] = field(init=False, default_factory=dict)

    @property
    def shapes(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """(h, w) of the template and of the image."""
        return tuple(self.template.shape[1:]), tuple(self.image.shape)

    def level(self, sigma: float, model: TransformModel, *, fine: bool = False) -> _Level:
        """Return the template at σ, as it is at a fine level."""
        key = (sigma, model)
        if key not in self._levels:
            with _working(self.image.device):
                self._levels[key] = self._level(sigma, model)
        return self._levels[key]

    def _level(self, sigma: float, model: TransformModel) -> _Level:
        values, shape = _blurred(self.template, sigma), self.shapes[0]
        step = registration.stride(shape)
        dx, dy = (
            v[:, ::step, ::step] for v in _slopes_of(values, 0.5 * registration.radius(shape))
        )
        values = values[:, ::step, ::step].contiguous()
        x, y = (
            torch.from_numpy(v).to(values.device)
            for v in registration.coordinates(shape, shape, 1, step)
        )
        spun = registration.spin(torch.zeros_like(values), values, self.feature.harmonics)
        slopes = values.new_empty((registration.PARAMETERS[model], *values.shape))
        registration.slopes(slopes, dx, dy, spun, model, x, y)
        flat, slopes = values.flatten(1), slopes.flatten(2)
        # In the order of np.triu_indices.
        products = torch.cat([(own * slopes[i:]).sum(1) for i, own in enumerate(slopes)])
        squares = (flat * flat).sum(0)
        power = float(squares.mean()) + 1e-12
        return _Level(sigma, model, step, flat, squares, slopes.flatten(1), products, power)

    def evaluate(self, level: _Level, transform: FloatArray) -> _Evaluation:
        """Return :func:`caloric.alignment.registration.evaluate`."""
        device = self.image.device
        away = registration.beyond(self.shapes[0], level.stride, self.shapes[1], transform)
        with _working(device):
            values = self._warped(level, transform)
            outside = None if away is None else torch.from_numpy(away).to(device)
            if outside is not None:
                values[:, outside] = 0
            image_squares, products = (values * values).sum(0), (values * level.values).sum(0)
            balanced = (level.power / (image_squares.mean() + 1e-12)).sqrt()
            gain, inverse = balanced, 1 / (SCHEDULE.robust * level.power)
            for _ in range(3):
                residual = gain * (gain * image_squares - 2 * products) + level.squares
                weights = 1 / (1 + residual.clamp_min(0) * inverse)
                fitted = (weights @ products) / (weights @ image_squares + 1e-12)
                used = gain
                gain = torch.minimum(torch.maximum(fitted, 0.3 * balanced), 2 * balanced)
            energy = -weights.log().mean()
            if outside is not None:
                weights = weights.masked_fill(outside, 0)
            hessian = level.products @ weights
            residual = (used * values - level.values) * weights
            gradient = level.slopes @ residual.flatten()
            count = (weights > 0).sum().float()
            figures = torch.cat([torch.stack([energy, count]), gradient, hessian])
            told = figures.cpu().numpy().astype(np.float64)
        size = len(gradient)
        upper = np.zeros((size, size))
        upper[np.triu_indices(size)] = told[2 + size :]
        whole = upper + np.triu(upper, 1).T
        return _Evaluation(
            float(told[0]), int(told[1]), whole, told[2 : 2 + size], used, values, weights
        )

    def _warped(self, level: _Level, transform: FloatArray) -> Tensor:
        h, w = self.shapes[0]
        image, moved = registration.covered(self.image, transform, (h, w))
        rows, columns = image.shape
        grown = registration.scale(transform)
        if grown > registration.ALIASING:
            image = _gaussian(image[None], registration.smoothing(grown))[0]
        # PyTorch's coordinates are -1 to 1 from the first to the last pixel.
        last = np.maximum([[columns - 1], [rows - 1]], 1) / 2
        pixels = np.array([[(w - 1) / 2, 0, (w - 1) / 2], [0, (h - 1) / 2, (h - 1) / 2], [0, 0, 1]])
        unit = moved @ pixels / last - np.array([[0, 0, 1]])
        theta = torch.from_numpy(unit.astype(np.float32))[None].to(image.device, non_blocking=True)
        grid = functional.affine_grid(theta, [1, 1, h, w], align_corners=True)
        seen = functional.grid_sample(
            image[None, None], grid, mode="bicubic", padding_mode="border", align_corners=True
        )[0, 0]
        measured = _measured(seen, self.feature, registration.light((h, w)))
        values = _blurred(measured, level.sigma)[:, :: level.stride, :: level.stride]
        return values.flatten(1)

    def normal_equations(
        self, level: _Level, evaluation: _Evaluation
    ) -> tuple[FloatArray, FloatArray]:
        """Return the Hessian (p, p) and the gradient (p,), which came with the energy."""
        return evaluation.hessian, evaluation.gradient

    def cosines(self, level: _Level, evaluation: _Evaluation, width: float) -> float:
        """Return :func:`caloric.alignment.registration.cosines`."""
        with _working(self.image.device):
            inside = evaluation.weights > 0
            if not evaluation.count:
                return 0.0
            u, v = (
                torch.where(inside, x - (x * inside).sum(1, True) / evaluation.count, 0)
                for x in (evaluation.values, level.values)
            )
            sums = torch.stack([(u * v).sum(0), (u * u).sum(0), (v * v).sum(0)])
            size = tuple(-(-n // level.stride) for n in self.shapes[0])
            across, of_image, of_template = _gaussian(sums.view(3, *size), width).flatten(1)
            found = (across / (of_image * of_template + 1e-9).sqrt())[inside].sort().values
            middle = found[(len(found) - 1) // 2], found[len(found) // 2]
            return float((middle[0] + middle[1]) / 2)

    def noise(self, level: _Level, evaluation: _Evaluation) -> float:
        """Return :func:`caloric.alignment.registration.noise`."""
        with _working(self.image.device):
            residual = evaluation.gain * evaluation.values - level.values
            total = evaluation.weights.sum().clamp_min(1e-12)
            return float((evaluation.weights * (residual**2).mean(0)).sum() / total)


def scene(template: Pixels, image: Pixels, feature: Feature, device: Any) -> Problem:
    """Return :func:`caloric.alignment.registration.scene_fine` on a device."""
    with _working(device):
        small, large = (upload.upload_rows([v], device) for v in (template, image))
        fields_of = _measured(small, feature, registration.light(template.shape))
        return FineScene(fields_of, large, feature)


def on(device: Any) -> Callable[[Pixels, Pixels, Feature], Problem]:
    """Return :func:`scene` for a device."""
    return partial(scene, device=device)
