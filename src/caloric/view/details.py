"""Details of a result: the patches of a match, response maps, the path of an alignment."""

from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.alignment import align
from caloric.descriptor import density, engine, recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.errors import InputError
from caloric.image_pair import ImageMatch
from caloric.runtime import progress
from caloric.types import Report
from caloric.view.images import LoadedImage, Pixels, data_url, encoded
from caloric.view.result import frames

PATCH = 48  # side of a displayed patch in pixels
MAPS = 20  # side of a response map in points
REACH = 10.0  # half-width of a displayed patch in σ; covers most of any descriptor
_MAX_SIDE = 1200  # longer side, in pixels, of the image in which a square is located


def patch(gray: NDArray[np.float32], frame: NDArray[np.float64], reach: float) -> NDArray[Any]:
    """Return the patch (48, 48) of an image in the axes of a frame, with half-width ``reach`` σ."""
    side = (np.arange(PATCH) + 0.5) * 2 / PATCH - 1
    u, v = np.meshgrid(reach * side, reach * side)
    x, y = (frame[k, 0] * u + frame[k, 1] * v + frame[k, 2] for k in (0, 1))
    sigma = float(np.sqrt(abs(np.linalg.det(frame[:, :2]))))
    step = 2 * reach * sigma / PATCH
    # Reduce and blur the region before sampling it, against aliasing.
    margin = int(np.ceil(reach * sigma * 1.5)) + 8
    cx, cy = round(float(frame[0, 2])), round(float(frame[1, 2]))
    top, left = max(0, cy - margin), max(0, cx - margin)
    region = gray[top : max(0, cy + margin + 1), left : max(0, cx + margin + 1)]
    if region.size == 0:
        return np.zeros((PATCH, PATCH), np.float32)
    shrink = max(1, int(step))
    if shrink > 1:
        size = tuple(max(1, n // shrink) for n in region.shape[::-1])
        region = np.asarray(cv2.resize(region, size, interpolation=cv2.INTER_AREA), np.float32)
    if step > 1:
        region = np.asarray(cv2.GaussianBlur(region, (0, 0), 0.5 * step / shrink), np.float32)
    u, v = ((w + 0.5) / shrink - 0.5 for w in (x - left, y - top))
    return cv2.remap(
        region, u.astype(np.float32), v.astype(np.float32), cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_CONSTANT,
    )  # fmt: skip


def png(pixels: Pixels) -> str:
    """Return an image as a data URL in PNG format."""
    return data_url(encoded(pixels, ".png"), "png")


def to_uint8(values: NDArray[Any]) -> Pixels:
    """Return values stretched to the full range of 8 bits."""
    low, high = float(values.min()), float(values.max())
    return np.asarray(255 * (values - low) / max(high - low, 1e-9)).astype(np.uint8)


def draw_density(values: NDArray[Any]) -> Pixels:
    """Return an image of the gradient density: magnitude as brightness, direction as hue."""
    measured = density.measure(values[None].astype(np.float32), recipes.descriptor("sift").kernel)
    weight = measured.weights[0].reshape(PATCH, PATCH)
    angle = np.mod(measured.angles[0].reshape(PATCH, PATCH), 2 * np.pi)
    brightness = np.sqrt(weight / max(float(weight.max()), 1e-12))
    hsv = np.stack([angle * (90 / np.pi), np.full_like(angle, 190), 255 * brightness], -1)
    return np.asarray(cv2.cvtColor(hsv.astype(np.uint8), cv2.COLOR_HSV2RGB), np.uint8)


def detail(images: tuple[LoadedImage, LoadedImage], pair: ImageMatch, index: int) -> Report:
    """Return both patches of a match, with their densities and descriptors."""
    if not 0 <= index < len(pair.matches):
        raise InputError(f"match {index} does not exist; there are {len(pair.matches)} matches")
    sides = []
    descriptors = (pair.features_a.descriptors, pair.features_b.descriptors)
    rows = pair.matches.indices[index]
    for image, maps, vectors, row in zip(images, frames(pair), descriptors, rows, strict=True):
        values = patch(image.gray, maps[index], REACH)
        sides.append({
            "patch": png(to_uint8(values)), "density": png(draw_density(values)),
            "descriptor": np.asarray(vectors[row], float).round(5).tolist(),
        })  # fmt: skip
    return {"a": sides[0], "b": sides[1]}


def responses(image: LoadedImage, x: float, y: float, sigma: float) -> Report:
    """Return the response maps h(β, ·) of SIFT and heat around a point, in eight directions."""
    w, h = image.size
    if not (0 <= x < w and 0 <= y < h and 0 < sigma < max(w, h)):
        raise InputError("the point is outside the image")
    frame = np.array([[sigma, 0, x], [0, sigma, y]])
    reach = SquarePatch(PATCH).half_width
    values = patch(image.gray, frame, reach)
    small = cv2.resize(values, (MAPS, MAPS), interpolation=cv2.INTER_AREA)
    angles = np.arange(8) * np.pi / 4
    maps = {}
    for name in ("sift", "heat"):
        progress.report(f"{name} kernel")
        response = engine.response_map(small, name, beta=angles)
        peak = max(float(response.max()), 1e-12)
        maps[name] = [
            png(cv2.applyColorMap((255 * np.clip(part / peak, 0, 1)).astype(np.uint8),
                                  cv2.COLORMAP_INFERNO)[..., ::-1])
            for part in response
        ]  # fmt: skip
    return {"patch": png(to_uint8(values)), "angles": np.degrees(angles).tolist(), "maps": maps}


def _resized(gray: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    small = cv2.resize(gray, None, fx=scale, fy=scale, interpolation=cv2.INTER_AREA)
    return np.asarray(small, np.float32)


def aligned(images: tuple[LoadedImage, LoadedImage], x: float, y: float, size: int) -> Report:
    """Align a square of the first image with the second; return the steps over σ."""
    a, b = images
    w, h = a.size
    size = int(np.clip(size, 32, min(256, w, h)))
    left = int(np.clip(round(x) - size // 2, 0, w - size))
    top = int(np.clip(round(y) - size // 2, 0, h - size))
    template, image = a.gray[top : top + size, left : left + size], b.gray
    scale = min(1.0, _MAX_SIDE / max(b.size))
    if scale < 1:
        image, template = (_resized(pixels, scale) for pixels in (image, template))
    alignment = align.align(template, image)
    side = size - 1
    corners = np.array([[0, 0], [side, 0], [side, side], [0, side]], float)
    # The pixel center p moves to (p + 0.5) s - 0.5 when an image is resized by s.
    resized = np.column_stack([(corners + 0.5) * scale - 0.5, np.ones(4)])
    steps = [
        {"sigma": float(step.sigma) / scale, "energy": float(step.cost),
         "corners": ((resized @ step.point.T + 0.5) / scale - 0.5).round(2).tolist()}
        for step in alignment.path
    ]  # fmt: skip
    return {
        "template": [left, top, size], "steps": steps, "converged": alignment.converged,
        "confidence": alignment.confidence, "reason": alignment.reason,
    }  # fmt: skip
