"""Refinement of matches on a device: see :mod:`caloric.matching.refinement`.

Results differ from those of the CPU only by the order of float32 sums.
"""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from caloric.gpu import backend, cuda_streams, devices, upload
from caloric.gpu.refinement import (
    MAPS,
    SHIFTS,
    STATISTICS,
    TOTAL_SHIFTS,
    Octaves,
    level_tables,
)
from caloric.matching import refinement, refinement_steps
from caloric.matching.refinement import Outcome
from caloric.types import ArrayOrTensor

_BATCH = 1 << 15  # matches refined at once, at most


def prepared(image: Any, device: Any) -> Octaves:
    """Return the octaves of a grayscale image (h, w) in float32, an array or a tensor."""
    if isinstance(image, Octaves):
        return image
    with torch.no_grad(), cuda_streams.using(device):
        level = upload.as_tensor(image, device)
        levels, halved = [level], backend.of(device).halved
        while min(level.shape) >= refinement.SMALLEST:
            level = halved(level)
            levels.append(level)
        shapes = tuple((v.shape[0], v.shape[1]) for v in levels)
        pixels = torch.cat([v.reshape(-1) for v in levels])
        noise = refinement_steps.noise_level(levels[0])
        tables = level_tables(shapes, pixels.device)
        return Octaves(noise=noise, shape=shapes[0], pixels=pixels, **tables)


def descend(image_a: Any, image_b: Any, a: ArrayOrTensor, b: ArrayOrTensor, device: Any) -> Outcome:
    """Return the result of :func:`caloric.matching.refinement.descend`.

    The images are float32 arrays (h, w) or :func:`prepared`. Frames (m, 2, 3) may be tensors; then
    the result has tensors.
    """

    def on_device() -> Outcome:
        with torch.no_grad(), cuda_streams.using(device):
            images = prepared(image_a, device), prepared(image_b, device)
            first, second = (upload.as_tensor(v, device) for v in (a, b))
            refined = backend.of(device).refined
            parts = [
                refined(images, first[i : i + _BATCH], second[i : i + _BATCH])
                for i in range(0, len(first), _BATCH)
            ]
            return _unpacked(torch.cat(parts), like=a)

    result = devices.unless_out_of_memory(on_device, f"refining {len(a)} matches")
    if result is None:
        return _on_host(image_a, image_b, a, b)
    return result


def _unpacked(packed: Tensor, like: ArrayOrTensor) -> Outcome:
    values = packed.cpu().numpy() if isinstance(like, np.ndarray) else packed
    return Outcome(
        values[:, MAPS].reshape(-1, 2, 3), values[:, SHIFTS].reshape(-1, 2, 2),
        values[:, TOTAL_SHIFTS].reshape(-1, 2, 2), values[:, STATISTICS],
    )  # fmt: skip


def _on_host(image_a: Any, image_b: Any, a: ArrayOrTensor, b: ArrayOrTensor) -> Outcome:
    images, frames = (
        [np.asarray(_array(v)) for v in pair] for pair in ((image_a, image_b), (a, b))
    )
    end = refinement.descend(images[0], images[1], frames[0], frames[1])
    if isinstance(a, np.ndarray):
        return end
    return Outcome(*(upload.as_tensor(v, a.device) for v in vars(end).values()))


def _array(values: Any) -> Any:
    values = values.image() if isinstance(values, Octaves) else values
    return values.cpu().numpy() if isinstance(values, torch.Tensor) else values
