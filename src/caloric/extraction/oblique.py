"""The features of simulated oblique views of an image, in the coordinates of the image."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.extraction import tiled
from caloric.extraction.tiled import Allowed
from caloric.features import Features
from caloric.frames import Frames
from caloric.gpu import devices
from caloric.image import views as simulated
from caloric.image.pixels import Source
from caloric.image.views import View
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import FloatArray


def begin(
    image: Any, mask: Any, options: ExtractOptions, tilts: Sequence[int], device: str, memory: int
) -> Callable[[], Features]:
    """Start extracting the features of views with these tilts; tilt 1 is the image itself.

    Call the result to get the features. A device computes them in the meantime, the CPU during that
    call.
    """
    target = devices.resolve(device)
    pending = None if target is None else _begin_on_device(target, image, mask, options, tilts)

    def features() -> Features:
        parts, remaining = ([], tilts) if pending is None else pending()
        if remaining:
            others = _on_cpu(image, mask, options, remaining, memory)
            # The image itself comes first.
            parts = others + parts if 1 in remaining else parts + others
        return joined(parts)

    return features


@threads.single_threaded_blas
def _on_cpu(
    image: Any, mask: Any, options: ExtractOptions, tilts: Sequence[int], memory: int
) -> list[Features]:
    pixels = tiled.checked_source(image, options.recipe.kernel)
    if 0 in pixels.size:
        return [options.empty(pixels.size)]
    allowed = tiled.allowed_by(mask, pixels.size)
    parts = []
    if 1 in tilts:
        frames, values = tiled.find(pixels, allowed, options, memory)
        parts.append(options.features(frames, values, pixels.size))
    factor = simulated.reduction(pixels.size)
    small = simulated.reduced(pixels, factor)
    views = [view for tilt in tilts if tilt > 1 for view in simulated.views_of(small.size, tilt)]
    if not views:
        return parts or [options.empty(pixels.size)]
    # All views read the reduced image, so it is computed once; in strips, because the image may not
    # fit into memory.
    h, w = small.size
    gray = np.concatenate(
        [small.read(slice(r.start, r.stop), slice(0, w)) for r in threads.strips(h)]
    )
    small = Source(small.size, lambda rows, columns: gray[rows, columns])
    share = memory // min(threads.count(), len(views))

    def of_view(view: View) -> Features:
        to_image = simulated.to_full_size(view.to_image(small.size), factor)
        visible = _visible(to_image, pixels.size, allowed)
        rendered, view_options = simulated.render(small, view), options.for_tilt(view.tilt)
        frames, values = tiled.find(rendered, visible, view_options, share)
        return options.features(frames.moved(to_image), values, pixels.size)

    return parts + threads.each(of_view, views)


def _visible(to_image: FloatArray, size: tuple[int, int], allowed: Allowed | None) -> Allowed:
    """Return a function that tests which positions of a view are inside the image.

    ``to_image`` (2, 3) maps the view to the image.
    """

    def visible(xy: FloatArray) -> NDArray[np.bool_]:
        xy = xy @ to_image[:, :2].T + to_image[:, 2]
        inside = simulated.inside(xy, size)
        return inside if allowed is None else inside & allowed(xy)

    return visible


def _begin_on_device(
    device: Any, image: Any, mask: Any, options: ExtractOptions, tilts: Sequence[int]
) -> Callable[[], tuple[list[Features], list[int]]]:
    """Start extracting the features of the views of an image on a device.

    Call the result to get the features, and the tilts of views that do not fit into its memory.
    """
    from caloric.gpu import upload
    from caloric.gpu import views as on_device

    prepared = upload.prepared(image)
    size = upload.Kind.of(prepared).size
    checked = tiled.checked_mask(mask, size)
    if 0 in size:
        return lambda: ([options.empty(size)], [])
    uploaded = on_device.uploaded(prepared, checked, options.recipe.kernel, device)
    if uploaded is None:
        return lambda: ([], list(tilts))
    factor = simulated.reduction(size)
    pending = []
    for tilt in tilts:
        by = 1 if tilt == 1 else factor
        views = simulated.views_of((size[0] // by, size[1] // by), tilt)
        if views:
            pending.append(
                (tilt, on_device.begin(uploaded, by, views, options.for_tilt(tilt), device))
            )

    def features() -> tuple[list[Features], list[int]]:
        parts, remaining = [], []
        for tilt, running in pending:
            part = None if running is None else running.features(size)
            if part is None:
                remaining.append(tilt)
            else:
                parts.append(part)
        return parts or ([] if remaining else [options.empty(size)]), remaining

    return features


def joined(parts: Sequence[Features]) -> Features:
    """Return the features of several views of one image.

    All features of the first part are kept; of the others, one of those with similar position and
    shape.
    """
    maps = np.concatenate([part.frames.maps for part in parts])
    scores = np.concatenate([part.scores for part in parts])
    rows = simulated.distinct(maps, len(parts[0]))
    descriptors = np.empty((len(rows), parts[0].descriptors.shape[1]), parts[0].descriptors.dtype)
    starts = np.cumsum([0, *map(len, parts)])
    cuts = np.searchsorted(rows, starts)

    def copy(task: tuple[int, range]) -> None:
        number, strip = task
        chosen = rows[strip.start : strip.stop] - starts[number]
        target = descriptors[strip.start : strip.stop]
        np.take(parts[number].descriptors, chosen, axis=0, out=target, mode="clip")

    strips = [
        (number, range(cuts[number] + strip.start, cuts[number] + strip.stop))
        for number in range(len(parts))
        for strip in threads.strips(int(cuts[number + 1] - cuts[number]), 2048)
    ]
    threads.each(copy, strips)
    views = max(part.views for part in parts)
    frames = Frames.unchecked(maps[rows], scores[rows])
    return replace(parts[0], frames=frames, descriptors=descriptors, views=views)
