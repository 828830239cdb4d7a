"""Propagation of verified matches on a device: see :mod:`caloric.matching.propagation`."""

from dataclasses import fields, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from caloric.features import Features, offset_of
from caloric.gpu import (
    backend,
    batches,
    cuda_streams,
    descent,
    devices,
    graphs,
    pipeline,
    points,
    upload,
)
from caloric.gpu.pyramid import pyramid
from caloric.gpu.upload import Kind
from caloric.matching import propagation, refinement
from caloric.matching.propagation import Allowed, Checks, Propagated, Side
from caloric.matching.refinement import Refined
from caloric.options import ExtractOptions
from caloric.types import FloatArray


def propagate(
    features: tuple[Features, Features],
    inliers: tuple[FloatArray, FloatArray],
    checks: Checks,
    images: tuple[Any, Any],
    options: ExtractOptions,
    device: Any,
) -> tuple[Propagated, Propagated] | None:
    """Return new matches as arrays; None if the images do not fit into device memory.

    ``inliers`` are the positions (m, 2) of verified matches in both images.
    """
    pixels = [upload.prepared(image) for image in images]
    if not all(batches.addressable(*Kind.of(image).size, device) for image in pixels):
        return None

    def work() -> tuple[Propagated, Propagated]:
        with torch.no_grad(), cuda_streams.using(device):
            gray = [upload.on_device(image, options.recipe.kernel, device) for image in pixels]
            octaves = [descent.prepared(image, device) for image in gray]
            descend = partial(descent.descend, device=device)

            def refine(i: int, frames: Tensor, predicted: Tensor) -> Refined:
                return refinement.refine(octaves[i], octaves[1 - i], frames, predicted, descend)

            def describe(i: int, maps: Tensor) -> Tensor:
                if len(maps) == 0:
                    return maps.new_zeros((0, options.recipe.dimension), dtype=torch.float32)
                layout = pyramid(*features[i].image_size)

                def build(images: Tensor) -> Tensor:
                    return backend.of(device).build(images, layout, None)

                # The pyramid of the next image may overwrite this one.
                rows = graphs.recorded(build, (layout,), gray[i][None])
                return _decoded(features[i], pipeline.describe_in(rows, layout, maps, options))

            p, q = (upload.as_tensor(v, device) for v in inliers)
            a, b = (_side(f, device) for f in features)
            both = propagation.propagate(
                (a, b), (p, q), refine, describe, _on_device(checks), points.ON_DEVICE
            )
            return _on_host(both[0]), _on_host(both[1])

    return devices.unless_out_of_memory(work, "propagating matches")


def _decoded(features: Features, descriptors: Tensor) -> Tensor:
    return descriptors.float() - offset_of(features.encoding)


def _side(features: Features, device: Any) -> Side:
    maps, descriptors = (
        upload.as_tensor(v, device) for v in (features.frames.maps, features.descriptors)
    )
    return Side(maps, _decoded(features, descriptors), features.image_size)


def _on_device(checks: Checks) -> Checks:
    """Return checks of tensors; the host reads the masks."""

    def on_device(check: Allowed | None) -> Allowed | None:
        if check is None:
            return None
        return lambda xy: upload.as_tensor(check(xy.cpu().numpy()), xy.device)

    a, b = checks.allowed
    return replace(checks, allowed=(on_device(a), on_device(b)))


def _on_host(new: Propagated) -> Propagated:
    return Propagated(*(getattr(new, field.name).cpu().numpy() for field in fields(new)))
