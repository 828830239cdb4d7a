"""Scenes at the last σ on a device: the filters and the warp of :mod:`caloric.alignment.scenes`.

A template of 1,024 x 1,024 pixels is warped, measured and compared some thirty times, one after the
other. Differences from the CPU are those of float32 sums in another order.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from caloric.alignment import scenes, transforms
from caloric.alignment.scenes import FineScene
from caloric.descriptor import fields
from caloric.descriptor.fields import Feature, Filters
from caloric.gpu import cuda_streams, upload
from caloric.types import FloatArray, Pixels


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


def _gaussian(plane: Tensor, sigma: float) -> Tensor:
    """Return plane (h, w) ⋆ k_σ as ``cv2.GaussianBlur`` does, mirrored at the border."""
    margin = (round(8 * sigma + 1) | 1) // 2
    rows, columns = (_mirrored(n, margin, plane.device) for n in plane.shape)
    taps = _taps(sigma, 2 * margin + 1, plane.device)
    down = functional.conv2d(plane[None, None, rows], taps.view(1, 1, -1, 1))
    return functional.conv2d(down[..., columns], taps.view(1, 1, 1, -1))[0, 0]


def _blurred(planes: Tensor, sigma: float) -> Tensor:
    """Return :func:`caloric.descriptor.fields.blurred`: zeros outside."""
    if sigma <= fields.NEGLIGIBLE:
        return planes
    margin = fields.reach(sigma)
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
        return _gaussian(plane, sigma)
    (down, below), (across, beside) = (_coarsely(n, sigma, plane.device) for n in plane.shape)
    return below @ (down @ plane @ across.T) @ beside.T


def _differences(planes: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return ∂/∂x and ∂/∂y of planes (…, h, w) by central differences, 0 at the border."""
    dx, dy = torch.zeros_like(planes), torch.zeros_like(planes)
    torch.sub(planes[..., 2:], planes[..., :-2], out=dx[..., 1:-1])
    torch.sub(planes[..., 2:, :], planes[..., :-2, :], out=dy[..., 1:-1, :])
    return dx * scale, dy * scale


FILTERS = Filters(_gaussian, _smoothed, _blurred, _differences)


@dataclass(frozen=True, eq=False)
class DeviceScene(FineScene):
    """A template, as its fields (c, h, w), and an image (h, w) on a device, for the last σ."""

    @property
    def filters(self) -> Filters:
        """The filters for tensors."""
        return FILTERS

    def _working(self) -> Any:
        return _working(self.image.device)

    def _placed(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self.image.device)

    def _seen(self, transform: FloatArray, size: tuple[int, int]) -> Tensor:
        h, w = size
        image, moved = transforms.covered(self.image, transform, size)
        rows, columns = image.shape
        blur = scenes.antialiasing(transforms.scale(transform))
        if blur:
            image = _gaussian(image, blur)
        # PyTorch's coordinates are -1 to 1 from the first to the last pixel.
        last = np.maximum([[columns - 1], [rows - 1]], 1) / 2
        pixels = np.array([[(w - 1) / 2, 0, (w - 1) / 2], [0, (h - 1) / 2, (h - 1) / 2], [0, 0, 1]])
        unit = moved @ pixels / last - np.array([[0, 0, 1]])
        theta = torch.from_numpy(unit.astype(np.float32))[None].to(image.device, non_blocking=True)
        grid = functional.affine_grid(theta, [1, 1, h, w], align_corners=True)
        return functional.grid_sample(
            image[None, None], grid, mode="bicubic", padding_mode="border", align_corners=True
        )[0, 0]


def scene(template: Pixels, image: Pixels, feature: Feature, device: Any) -> DeviceScene:
    """Return :func:`caloric.alignment.scenes.fine_scene` on a device."""
    with _working(device):
        small, large = (upload.upload_rows([v], device) for v in (template, image))
        around = scenes.illumination_width(template.shape)
        return DeviceScene(feature.measure(small, around, FILTERS), large, feature)


def on(device: Any) -> Callable[[Pixels, Pixels, Feature], FineScene]:
    """Return :func:`scene` for a device."""
    return partial(scene, device=device)
