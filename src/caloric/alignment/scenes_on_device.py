"""Scenes for the fine σ on a device: the filters and the warp of :mod:`caloric.alignment.scenes`.

Results differ from those of the CPU only by the order of float32 sums.
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
    # TF32 would round the inputs of convolutions to 10 bits.
    exact = torch.backends.cudnn.flags(enabled=True, allow_tf32=False)
    with torch.no_grad(), cuda_streams.using(device), exact:
        yield


@lru_cache(maxsize=64)  # bounded: the antialiasing blur differs for every transform
def _taps(sigma: float, count: int, device: Any) -> Tensor:
    return torch.tensor(cv2.getGaussianKernel(count, sigma)[:, 0].astype(np.float32), device=device)


@lru_cache(maxsize=64)
def _mirrored(count: int, margin: int, device: Any) -> Tensor:
    """Return the indices of ``count`` samples with a mirrored margin, as in OpenCV."""
    return torch.tensor(np.pad(np.arange(count), margin, mode="reflect"), device=device)


def _gaussian(plane: Tensor, sigma: float) -> Tensor:
    """Return plane (h, w) ⋆ k_σ like ``cv2.GaussianBlur``, mirrored at the border."""
    margin = (round(8 * sigma + 1) | 1) // 2
    rows, columns = (_mirrored(n, margin, plane.device) for n in plane.shape)
    taps = _taps(sigma, 2 * margin + 1, plane.device)
    down = functional.conv2d(plane[None, None, rows], taps.view(1, 1, -1, 1))
    return functional.conv2d(down[..., columns], taps.view(1, 1, 1, -1))[0, 0]


def _blurred(planes: Tensor, sigma: float) -> Tensor:
    """Return the same as :func:`caloric.descriptor.fields.blurred`, with zeros outside."""
    if sigma <= fields.NEGLIGIBLE:
        return planes
    margin = fields.reach(sigma)
    taps = _taps(sigma, 2 * margin + 1, planes.device)
    down = functional.conv2d(planes[:, None], taps.view(1, 1, -1, 1), padding=(margin, 0))
    return functional.conv2d(down, taps.view(1, 1, 1, -1), padding=(0, margin))[:, 0]


@lru_cache(maxsize=64)
def _coarse_blur(count: int, sigma: float, device: Any) -> tuple[Tensor, Tensor]:
    """Return matrices that blur on a coarse grid (few, count) and interpolate back (count, few)."""
    few = fields.coarse(count, sigma)
    narrow = sigma * few / count
    down = cv2.resize(np.eye(count, dtype=np.float32), (count, few), interpolation=cv2.INTER_AREA)
    taps = cv2.getGaussianKernel(round(8 * narrow + 1) | 1, narrow)
    down = cv2.sepFilter2D(down.reshape(few, count), -1, np.ones(1), taps)
    back = cv2.resize(np.eye(few, dtype=np.float32), (few, count), interpolation=cv2.INTER_LINEAR)
    both = (down.reshape(few, count), back.reshape(count, few))
    return tuple(torch.tensor(v, device=device) for v in both)


def _smoothed(plane: Tensor, sigma: float) -> Tensor:
    """Return plane (h, w) ⋆ k_σ; wide blurs use a coarse grid, as on the CPU."""
    if tuple(fields.coarse(n, sigma) for n in plane.shape) == tuple(plane.shape):
        return _gaussian(plane, sigma)
    (down, back_down), (across, back_across) = (
        _coarse_blur(n, sigma, plane.device) for n in plane.shape
    )
    return back_down @ (down @ plane @ across.T) @ back_across.T


def _differences(planes: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Return ∂/∂x and ∂/∂y of planes (…, h, w) by central differences, 0 at the border."""
    dx, dy = torch.zeros_like(planes), torch.zeros_like(planes)
    torch.sub(planes[..., 2:], planes[..., :-2], out=dx[..., 1:-1])
    torch.sub(planes[..., 2:, :], planes[..., :-2, :], out=dy[..., 1:-1, :])
    return dx * scale, dy * scale


FILTERS = Filters(_gaussian, _smoothed, _blurred, _differences)


@dataclass(frozen=True, eq=False)
class DeviceScene(FineScene):
    """The fields (c, h, w) of a template and an image (h, w) as tensors, for the fine σ."""

    @property
    def filters(self) -> Filters:
        """The filters for tensors."""
        return FILTERS

    def _working(self) -> Any:
        return _working(self.image.device)

    def _to_device(self, values: Any) -> Tensor:
        return torch.from_numpy(values).to(self.image.device)

    def _warped_image(self, transform: FloatArray, size: tuple[int, int]) -> Tensor:
        h, w = size
        image, moved = transforms.covered(self.image, transform, size)
        rows, columns = image.shape
        blur = scenes.antialiasing(transforms.scale(transform))
        if blur:
            image = _gaussian(image, blur)
        # PyTorch's coordinates run from -1 at the first pixel to 1 at the last.
        last = np.maximum([[columns - 1], [rows - 1]], 1) / 2
        pixels = np.array([[(w - 1) / 2, 0, (w - 1) / 2], [0, (h - 1) / 2, (h - 1) / 2], [0, 0, 1]])
        unit = moved @ pixels / last - np.array([[0, 0, 1]])
        theta = torch.from_numpy(unit.astype(np.float32))[None].to(image.device, non_blocking=True)
        grid = functional.affine_grid(theta, [1, 1, h, w], align_corners=True)
        return functional.grid_sample(
            image[None, None], grid, mode="bicubic", padding_mode="border", align_corners=True
        )[0, 0]


def scene(template: Pixels, image: Pixels, feature: Feature, device: Any) -> DeviceScene:
    """Return the same as :func:`caloric.alignment.scenes.fine_scene`, on a device."""
    with _working(device):
        small, large = (upload.upload_rows([v], device) for v in (template, image))
        width = scenes.illumination_width(template.shape)
        return DeviceScene(feature.measure(small, width, FILTERS), large, feature)


def for_device(device: Any) -> Callable[[Pixels, Pixels, Feature], FineScene]:
    """Return :func:`scene` bound to a device."""
    return partial(scene, device=device)
