"""Measurement of densities in the pyramids of a batch."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from caloric.descriptor.engine import mean_over_sizes
from caloric.descriptor.recipes import Descriptor
from caloric.descriptor.sampling import Sampling
from caloric.detector import affine_shape
from caloric.gpu import backend, density, pooling
from caloric.gpu.caches import cached
from caloric.gpu.pooling import Table
from caloric.gpu.pyramid import FrameBlock, Measurement, Pyramid
from caloric.kernels import Kernel
from caloric.theory.gaussians import gaussian_2d

_BYTES = 1 << 31  # of harmonics per block


@cached
def _window(device: Any) -> Tensor:
    sampling = affine_shape.SAMPLING
    window = gaussian_2d(sampling.points(), affine_shape.WINDOW)
    padding = (0, density.points(sampling, 1.0, device, torch.float32).padded - len(window))
    return torch.nn.functional.pad(torch.tensor(window, device=device).float(), padding)


@dataclass(frozen=True, eq=False)
class Reader:
    """The pyramids ``rows`` (b, total) of a batch, with ``per_image`` frames per image.

    ``sizes`` (b, 2) are those of the images, if they are not as large as their layout.
    """

    rows: Tensor
    pyramid: Pyramid
    per_image: int
    sizes: Tensor | None = None

    def harmonics(self, maps: Tensor, measurement: Measurement, start: int, dtype: Any) -> Tensor:
        """Return harmonics (n, (2·order + 1) p) of frames (n, 2, 3), from index ``start`` on."""
        block = FrameBlock(start, self.per_image)
        measure = backend.of(maps.device).harmonics
        return measure(self.rows, self.pyramid, maps, block, measurement, dtype, self.sizes)

    def pooled(
        self, maps: Tensor, sampling: Sampling, kernel: Kernel, power: float, table: Table
    ) -> Tensor:
        """Return raw descriptors (n, entries) of frames (n, 2, 3)."""
        dtype = table.matrix.dtype
        measurement = Measurement(sampling, kernel, power, table.order)
        width = table.matrix.shape[0] * table.matrix.element_size()
        block = max(1, _BYTES // width)
        parts = [
            pooling.pool(self.harmonics(part, measurement, start, dtype), table)
            for start, part in zip(range(0, len(maps), block), maps.split(block), strict=True)
        ]
        return torch.cat(parts) if len(parts) != 1 else parts[0]

    def described(
        self, maps: Tensor, recipe: Descriptor, sizes: tuple[float, ...], dtype: Any
    ) -> Tensor:
        """Return descriptors (n, d) of frames (n, 2, 3); ``dtype`` is the type of the product."""
        table = pooling.table(
            recipe.kernel, recipe.layout, recipe.sampling, recipe.harmonics, maps.device, dtype
        )

        def at(size: float) -> Tensor:
            scaled = maps if size == 1 else torch.cat([maps[..., :2] * size, maps[..., 2:]], -1)
            return self.pooled(scaled, recipe.sampling, recipe.kernel, recipe.power, table)

        return pooling.finish(mean_over_sizes(at, sizes), recipe)

    def second_moments(self, maps: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the second moments xx, xy and yy (n,): :func:`affine_shape.second_moments`."""
        sampling = affine_shape.SAMPLING
        window = _window(maps.device)
        measurement = Measurement(sampling, affine_shape.ANY, 1.0, 1)
        harmonics = self.harmonics(maps, measurement, 0, torch.float32)
        # The weight of a point is its area times the gradient magnitude; all areas are equal.
        weights, cos, sin = harmonics.view(len(maps), 3, len(window)).unbind(1)
        xx, xy, yy = affine_shape.moments(window, weights, cos, sin)
        return xx.double(), xy.double(), yy.double()
