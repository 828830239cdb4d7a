"""Refinement of matches on a device: see :mod:`caloric.matching.refinement`.

Results differ from those of the CPU only by the order of float32 sums.
"""

from collections.abc import Sequence
from math import prod
from typing import Any

import torch
from torch import Tensor

from caloric.gpu import backend, cuda_streams, devices, graphs, upload
from caloric.gpu.refinement import (
    MAPS,
    SHIFTS,
    STATISTICS,
    TOTAL_SHIFTS,
    Octaves,
    level_tables,
)
from caloric.gpu.upload import Kind
from caloric.image import inputs
from caloric.image.pixels import is_tensor
from caloric.matching import refinement, refinement_steps
from caloric.matching.refinement import Outcome
from caloric.types import FloatArray, Windows

_BATCH = 1 << 15  # matches refined at once, at most
# Sizes to which matches are padded for recorded graphs, each of which holds memory for them and for
# two images. For more matches, recording saves no time.
_RECORDED = 256, 512, 1024, 2048, 4096, 8192


def prepared(image: Any, device: Any) -> Octaves:
    """Return the octaves of an image, an array or a tensor."""
    with torch.no_grad(), cuda_streams.using(device):
        image = upload.prepared(image)
        layout, shape = Kind.of(image).layout, Kind.of(image).size

        def build(pixels: Tensor) -> tuple[Tensor, Tensor]:
            levels, halved = [upload.to_gray(pixels, layout)[0]], backend.of(device).halved
            for _ in _shapes(shape)[1:]:
                levels.append(halved(levels[-1]))
            joined = torch.cat([level.reshape(-1) for level in levels])
            return joined, refinement_steps.noise_level(levels[0])

        raw = upload.on_device(image, device)
        # The next image may overwrite the result.
        key = ("octaves", layout) if prod(shape) <= graphs.PIXELS else None
        pixels, noise = (v.clone() for v in graphs.recorded(build, key, raw))
        return _with_tables(pixels, noise, shape)


def prepared_images(
    images: Sequence[Any], names: Sequence[str], device: Any
) -> list[Octaves] | None:
    """Return the octaves of images of any form; errors start with their names.

    The result is None if the memory of the device runs out, or if an image has hardly any pixels.
    """
    opened = []
    for image, name in zip(images, names, strict=True):
        with inputs.naming(name):
            opened.append(upload.prepared(_opened(image)))
    if any(min(Kind.of(image).size) < 2 for image in opened):
        return None

    def work() -> list[Octaves]:
        octaves = []
        for image, name in zip(opened, names, strict=True):
            with inputs.naming(name):
                octaves.append(prepared(image, device))
        return octaves

    return devices.unless_out_of_memory(work, "refining matches")


def _opened(image: Any) -> Any:
    return image if is_tensor(image) or isinstance(image, Windows) else inputs.read_image(image)


def _shapes(shape: tuple[int, int]) -> tuple[tuple[int, int], ...]:
    """Return the sizes (h, w) of all octaves of an image."""
    shapes = [shape]
    while min(shapes[-1]) >= refinement.SMALLEST:
        h, w = shapes[-1]
        shapes.append(((h + 1) // 2, (w + 1) // 2))
    return tuple(shapes)


def descend(image_a: Any, image_b: Any, a: FloatArray, b: FloatArray, device: Any) -> Outcome:
    """Return the result of :func:`caloric.matching.refinement.descend` for frames (m, 2, 3).

    The images are grayscale arrays (h, w) or :func:`prepared`.
    """

    def on_device() -> Outcome:
        with torch.no_grad(), cuda_streams.using(device):
            images = _octaves(image_a, device), _octaves(image_b, device)
            # The next batch may overwrite the result, so that it is copied first.
            parts = [
                _refined(images, a[i : i + _BATCH], b[i : i + _BATCH]).clone()
                for i in range(0, len(a), _BATCH)
            ]
            return _unpacked(cuda_streams.download(torch.cat(parts)).wait().numpy())

    result = devices.unless_out_of_memory(on_device, f"refining {len(a)} matches")
    if result is None:
        return _on_host(image_a, image_b, a, b)
    return result


def _refined(images: tuple[Octaves, Octaves], a: FloatArray, b: FloatArray) -> Tensor:
    """Return the outcomes of frames (m, 2, 3), by a recorded graph unless there are many."""
    first, second = images
    device, shapes = first.pixels.device, (first.shape, second.shape)

    def work(*inputs: Tensor) -> Tensor:
        # The tables are those of the cache, which are released together with recorded graphs.
        first, second = (
            _with_tables(*image) for image in zip(inputs[:2], inputs[2:4], shapes, strict=True)
        )
        return backend.of(device).refined((first, second), *inputs[4])

    size = graphs.padded_size(len(a), _RECORDED, max(map(prod, shapes)))
    frames = upload.upload_frames((a, b), size, device)
    key = None if size is None else ("refined", *shapes)
    inputs = first.pixels, second.pixels, first.noise, second.noise, frames
    outcomes: Tensor = graphs.recorded(work, key, *inputs)
    return outcomes[: len(a)]


def _with_tables(pixels: Tensor, noise: Tensor, shape: tuple[int, int]) -> Octaves:
    tables = level_tables(_shapes(shape), pixels.device)
    return Octaves(noise=noise, shape=shape, pixels=pixels, **tables)


def _octaves(image: Any, device: Any) -> Octaves:
    return image if isinstance(image, Octaves) else prepared(image, device)


def _unpacked(values: FloatArray) -> Outcome:
    return Outcome(
        values[:, MAPS].reshape(-1, 2, 3), values[:, SHIFTS].reshape(-1, 2, 2),
        values[:, TOTAL_SHIFTS].reshape(-1, 2, 2), values[:, STATISTICS],
    )  # fmt: skip


def _on_host(image_a: Any, image_b: Any, a: FloatArray, b: FloatArray) -> Outcome:
    images = [
        image.image().cpu().numpy() if isinstance(image, Octaves) else image
        for image in (image_a, image_b)
    ]
    return refinement.descend(images[0], images[1], a, b)
