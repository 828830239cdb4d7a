"""PyTorch interface: descriptors as modules, and features that stay on the device.

    from caloric.interop.torch import Descriptor
    kornia.feature.LAFDescriptor(Descriptor("heat"), patch_size=32)

Tables are registered as buffers, so they follow the device and type of the module. Descriptors are
differentiable with respect to pixels and frames; where the image gradient is 0, so is the
derivative.
"""

from typing import Any

import torch
from torch import Tensor, nn

from caloric.descriptor import normalize, whitening
from caloric.descriptor.recipes import Descriptor as Recipe
from caloric.descriptor.recipes import descriptor as recipe_of
from caloric.descriptor.sampling import Sampling, SquarePatch
from caloric.errors import InputError
from caloric.frames import LAF_SCALE, with_scale
from caloric.gpu import cuda_streams, density, graphs, pooling, scalespace
from caloric.gpu.download import DeviceFeatures as DeviceFeatures
from caloric.gpu.pyramid import FrameBlock, Measurement, pyramid
from caloric.gpu.upload import check, check_type, to_gray
from caloric.gpu.upload import ranges as pixel_ranges
from caloric.image.pixels import is_tensor
from caloric.kernels import Kernel
from caloric.options import ExtractOptions


class Descriptor(nn.Module):
    """A descriptor of patches (n, 1, S, S), or of images (b, 1, h, w) at LAFs (b, n, 2, 3).

    ``forward(patches)`` returns (n, d), like kornia's ``SIFTDescriptor``; S is ``patch_size``.
    ``forward(image, lafs)`` returns (b, n, d), the descriptors of ``Frames.from_laf(lafs)``: the
    scale of a LAF is 6σ, as in kornia. Values are expected in [0, 1]. Descriptors that sample
    rings, such as ``caloric``, need the image and do not work on patches.

    A patch is described as it is. The half-width of kornia's patches is 6σ, while
    ``forward(image, lafs)`` and :func:`caloric.describe` use 10σ with square patches. For patches
    of this size, pass ``scale_laf(lafs, 10 / 6)`` to kornia.
    """

    def __init__(
        self, name: str | Recipe | Kernel = "caloric", patch_size: int = 32, **parameters: float
    ) -> None:
        """Build the tables of a descriptor; ``parameters`` change those of its kernel."""
        super().__init__()
        if patch_size < 2:
            raise InputError(f"patch_size must be an integer of at least 2, got {patch_size!r}")
        self.recipe = recipe_of(name, **parameters)
        self.patch_size = patch_size
        sampling = self.recipe.sampling
        self.order = self._register("table", sampling)
        self.patch_order = self.order
        if isinstance(sampling, SquarePatch) and sampling.size != patch_size:
            self.patch_order = self._register("patch_table", SquarePatch(patch_size))
        if self.recipe.whitening is not None:
            matrix = whitening.load(self.recipe.whitening)[:, : self.recipe.dimension]
            self.register_buffer("whitening", torch.tensor(matrix.copy()))

    def _register(self, name: str, sampling: Sampling) -> int:
        recipe = self.recipe
        table = pooling.table(
            recipe.kernel, recipe.layout, sampling, recipe.harmonics, torch.device("cpu"),
            torch.float32,
        )  # fmt: skip
        self.register_buffer(name, table.matrix.clone())  # the cached table is shared
        return table.order

    @property
    def dimension(self) -> int:
        """Return the dimension d of the descriptors."""
        return self.recipe.dimension

    def forward(self, pixels: Tensor, lafs: Tensor | None = None) -> Tensor:
        """Return descriptors (n, d) of patches, or (b, n, d) of the frames of images."""
        if pixels.ndim != 4 or pixels.shape[1] != 1:
            raise InputError(f"pixels: expected shape (n, 1, h, w), got {tuple(pixels.shape)}")
        if not pixels.is_floating_point():
            raise InputError(
                f"pixels: expected floats in [0, 1], got {pixels.dtype}; divide by 255"
            )
        # Half precision is not enough for gradients and norms.
        kind = torch.float64 if pixels.dtype == torch.float64 else torch.float32
        wide = pixels.to(kind)
        raw = self._of_patches(wide) if lafs is None else self._of_frames(wide, lafs)
        if len(raw) == 0:
            result = raw.new_zeros((0, self.dimension))
        else:
            result = normalize.normalize(raw, self.recipe.normalisation)
            if self.recipe.whitening is not None:
                result = normalize.l2(result @ self.whitening.to(kind))
        result = result.to(pixels.dtype)
        return result if lafs is None else result.view(*lafs.shape[:2], self.dimension)

    def _of_patches(self, patches: Tensor) -> Tensor:
        if not isinstance(self.recipe.sampling, SquarePatch):
            raise InputError(
                "this descriptor samples rings around a frame, not patches; pass image and lafs"
            )
        size = patches.shape[-1]
        if patches.shape[-2:] != (self.patch_size, self.patch_size):
            raise InputError(
                f"patches of {tuple(patches.shape[-2:])} pixels; this module expects "
                f"patch_size={self.patch_size}"
            )
        kernel = self.recipe.kernel
        area = SquarePatch(size).pitch ** 2
        flat = patches[:, 0]
        if kernel.feature == "intensity":
            angle = flat.flatten(1) * (2 * torch.pi / kernel.period)
            samples = (torch.full_like(angle, area), angle.cos(), angle.sin())
        else:
            gy, gx = torch.gradient(flat, spacing=SquarePatch(size).pitch, dim=(1, 2))
            length, cos, sin = density.directions(gx.flatten(1), gy.flatten(1))
            samples = (length * area, cos, sin)
        table: Tensor = getattr(self, "patch_table", self.table)
        weights, cos, sin = (density.padded(v) for v in samples)
        return density.harmonics(weights, cos, sin, self.patch_order) @ table.to(weights.dtype)

    def _of_frames(self, image: Tensor, lafs: Tensor) -> Tensor:
        if lafs.ndim != 4 or lafs.shape[2:] != (2, 3) or len(lafs) != len(image):
            raise InputError(
                f"lafs: expected shape ({len(image)}, n, 2, 3), got {tuple(lafs.shape)}"
            )
        b, n = lafs.shape[:2]
        if b * n == 0 or 0 in image.shape:
            return image.new_zeros((b * n, self.table.shape[1]))
        layout = pyramid(*image.shape[2:])
        rows = scalespace.build(image[:, 0], layout)
        recipe = self.recipe
        measurement = Measurement(recipe.sampling, recipe.kernel, recipe.power, self.order)
        block, frames = FrameBlock(0, n), with_scale(lafs.reshape(-1, 2, 3), 1 / LAF_SCALE)
        harmonics = density.measure(rows, layout, frames, block, measurement, rows.dtype)
        return harmonics @ self.table.to(harmonics.dtype)


def extract(
    images: Tensor,
    descriptor: str | Recipe | Kernel = "caloric",
    *,
    max_features: int = 2000,
    affine: bool = False,
    upright: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return LAFs (b, n, 2, 3), strengths (b, n) and descriptors (b, n, d) on the images' device.

    The images are (b, 1 | 3, h, w), uint8 or in [0, 1]; n is ``max_features``. The scale of a LAF
    is 6σ, as in kornia. Features are in the order of :func:`caloric.detect` and padded with a
    strength of 0. Gradients are not tracked; for these use :class:`Descriptor`.
    """
    if not is_tensor(images) or images.ndim != 4 or images.shape[1] not in (1, 3):
        raise InputError("images: expected a tensor (b, 1, h, w) or (b, 3, h, w)")
    options = ExtractOptions(
        descriptor=descriptor, max_features=max_features, affine=affine, upright=upright
    )
    if 0 in images.shape:
        d = options.recipe.dimension
        shapes = ((2, 3), (), (d,))
        return tuple(
            torch.zeros((len(images), max_features, *shape), device=images.device)
            for shape in shapes
        )
    check_type(images)
    stream = torch.cuda.current_stream(images.device) if images.is_cuda else None
    with torch.no_grad(), cuda_streams.using(images.device):
        gray = to_gray(images, "tensors")
        for ranges in pixel_ranges(images, gray, "tensors", options.recipe.kernel).cpu().numpy():
            check(ranges, options.recipe.kernel)
        batch: Any = graphs.run(gray, options, None)
        parts = (with_scale(batch.maps.float(), LAF_SCALE), batch.strengths, batch.descriptors)
        results = tuple(_padded(part, max_features) for part in parts)
    if stream is not None:
        for result in results:
            result.record_stream(stream)
    return results


def _padded(values: Tensor, count: int) -> Tensor:
    """Return values (b, n, ...) padded with zeros to (b, count, ...)."""
    padded = values.new_zeros((len(values), count, *values.shape[2:]))
    padded[:, : values.shape[1]] = values
    return padded
