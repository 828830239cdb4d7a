"""Propagation of verified matches on a device: see :mod:`caloric.matching.propagation`.

The device refines and describes frames; the host predicts them.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from caloric.gpu import backend, batches, cuda_streams, descent, devices, graphs, pipeline, upload
from caloric.gpu.pyramid import pyramid
from caloric.gpu.refinement import Octaves
from caloric.matching import propagation, refinement
from caloric.matching.propagation import Checks, Propagated, Side
from caloric.matching.refinement import Refined
from caloric.options import ExtractOptions
from caloric.types import FloatArray

_RECORDED = 256, 1024, 4096  # sizes to which frames are padded for recorded graphs


def propagate(
    sides: tuple[Side, Side],
    inliers: tuple[FloatArray, FloatArray],
    checks: Checks,
    images: tuple[Octaves, Octaves],
    options: ExtractOptions,
    device: Any,
) -> tuple[Propagated, Propagated] | None:
    """Return new matches; None if the images do not fit into device memory.

    ``inliers`` are the positions (m, 2) of verified matches in both images.
    """
    if not all(batches.is_addressable(*image.shape, device) for image in images):
        return None
    descend = partial(descent.descend, device=device)

    def refine(i: int, frames: FloatArray, predicted: FloatArray) -> Refined:
        return refinement.refine(images[i], images[1 - i], frames, predicted, descend)

    def describe(i: int, maps: FloatArray) -> Callable[[], NDArray[np.generic]]:
        layout = pyramid(*images[i].shape)

        def work(pixels: Tensor, frames: Tensor) -> Tensor:
            rows = backend.of(device).build(pixels, layout, None)
            return pipeline.describe_in(rows, layout, frames, options)

        with torch.no_grad(), cuda_streams.using(device):
            pixels = images[i].image()[None]
            size = graphs.padded_size(len(maps), _RECORDED, pixels.numel())
            key = None if size is None else ("describe", layout, options)
            frames = upload.upload_frames([maps], size, device)[0]
            values: Tensor = graphs.recorded(work, key, pixels, frames)
            pending = cuda_streams.download(values[: len(maps)])
        return lambda: pending.wait().numpy()

    def work() -> tuple[Propagated, Propagated]:
        return propagation.propagate(sides, inliers, refine, describe, checks)

    return devices.unless_out_of_memory(work, "propagating matches")
