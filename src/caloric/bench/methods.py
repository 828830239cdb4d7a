"""What is compared: our descriptors and other people's, with their own defaults or as labelled."""

import hashlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import metadata, util
from pathlib import Path
from typing import Any

import cv2
import numpy as np
from numpy.typing import NDArray

import caloric
from caloric import pipeline
from caloric.descriptor import normalise, recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.frames import Frames
from caloric.image.pixels import as_unit_range
from caloric.image.reading import read_image
from caloric.runtime import native

KEYPOINTS = 1500
Keypoints = tuple[Any, ...]
Found = tuple[Frames, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Method:
    """A way to get frames and descriptors of an image.

    ``run(image, keypoints)`` describes the given OpenCV keypoints, or ignores them if the method
    ``detects`` its own. ``version`` names everything that its numbers depend on.
    """

    name: str
    version: str
    run: Callable[[NDArray[Any], Keypoints], Found]
    detects: bool = False


def grey(image: NDArray[Any]) -> NDArray[Any]:
    """Grey of 8 bits, as OpenCV's own users would make it."""
    if image.dtype != np.uint8:
        image = np.rint(255 * np.clip(as_unit_range(image, "image"), 0, 1)).astype(np.uint8)
    if image.ndim == 3 and image.shape[2] == 4:
        image = image[..., :3]
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)) if image.ndim == 3 else image


def read_grey(path: str | Path) -> NDArray[np.uint8]:
    """A file, in that grey."""
    return np.asarray(grey(read_image(path)), np.uint8)


def opencv_keypoints(image: NDArray[Any], count: int = KEYPOINTS) -> Keypoints:
    """The strongest of OpenCV's SIFT detector."""
    found = cv2.SIFT_create().detect(grey(image), None)  # type: ignore[attr-defined]
    order = sorted(found, key=lambda k: (-k.response, k.pt, k.size, k.angle))
    return tuple(order[:count])


def _code() -> str:
    """A fingerprint of our own source: what was computed by other code is computed again."""
    root = Path(caloric.__file__).parent
    files = sorted([*root.rglob("*.py"), *(root / "data").iterdir()])
    others = {"bench", "paper", "interop", "cli.py", "demo.py", "viz.py", "page.py"}
    own = [f for f in files if not others & set(f.relative_to(root).parts)]
    return hashlib.sha256(b"".join(f.read_bytes() for f in own)).hexdigest()[:12]


def ours(
    name: str | recipes.Descriptor, label: str, detects: bool = False, **options: Any
) -> Method:
    """One of our descriptors, at given keypoints or at those of our own detector."""
    recipe = recipes.descriptor(name).fingerprint()

    def run(image: NDArray[Any], keypoints: Keypoints) -> Found:
        if detects:
            found = pipeline.extract(image, name, max_features=KEYPOINTS, **options)
            return found.frames, found.descriptors
        frames = Frames.from_opencv(keypoints)
        return frames, pipeline.describe(image, frames, name, **options)

    version = f"{_code()} {recipe} {options} {detects} {native.about()}"
    return Method(label, version, run, detects)


def _opencv(root: bool) -> Method:
    def run(image: NDArray[Any], keypoints: Keypoints) -> Found:
        if not keypoints:
            return Frames.empty(), np.zeros((0, 128), np.float32)
        values = cv2.SIFT_create().compute(grey(image), keypoints)[1]  # type: ignore[attr-defined]
        values = values.astype(np.float32)
        unit = normalise.root(values) if root else normalise.l2(values)
        return Frames.from_opencv(keypoints), unit

    return Method(f"OpenCV SIFT, {'root' if root else 'L2'}", cv2.__version__, run)


def _kornia(name: str) -> Method:
    """kornia's descriptors of patches, cut as its own SIFTFeature does: half-width 6σ."""

    def run(image: NDArray[Any], keypoints: Keypoints) -> Found:
        import torch
        from kornia import feature

        frames = Frames.from_opencv(keypoints)
        if not keypoints:
            return frames, np.zeros((0, 128 if name == "SIFT" else 238), np.float32)
        laf = torch.from_numpy(frames.to_laf().copy())
        laf[..., :2] *= 6.0
        pixels = torch.from_numpy(grey(image).astype(np.float32) / 255)[None, None]
        size = 41 if name == "SIFT" else 32
        module = (
            feature.SIFTDescriptor(size, rootsift=True)
            if name == "SIFT"
            else feature.MKDDescriptor(size, "concat", whitening=None, output_dims=238)
        )
        with torch.inference_mode():
            patches = feature.extract_patches_from_pyramid(pixels, laf, PS=size)[0]
            values = module(patches).numpy()
        return frames, np.asarray(values, np.float32)

    label = "kornia SIFT, root" if name == "SIFT" else "kornia MKD, 238-d, not whitened"
    return Method(label, metadata.version("kornia"), run)


def colmap_sift(options: Any) -> Any:
    """COLMAP's SIFT on the CPU, by the name that all its versions know."""
    import pycolmap

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pycolmap.Sift(options, device=pycolmap.Device.cpu)


def _colmap(label: str, **options: bool) -> Method:
    """COLMAP's own pipeline on the CPU, with its defaults but for the number of features."""

    def run(image: NDArray[Any], keypoints: Keypoints) -> Found:
        import pycolmap

        pycolmap.logging.minloglevel = 2  # errors alone
        settings = pycolmap.FeatureExtractionOptions()
        settings.use_gpu = False
        settings.sift.max_num_features = KEYPOINTS
        for option, value in options.items():
            setattr(settings.sift, option, value)
        sift = colmap_sift(settings)
        rows, values = sift.extract(np.ascontiguousarray(grey(image)))
        return Frames.from_colmap(np.asarray(rows)), np.asarray(values, np.float32)

    return Method(label, metadata.version("pycolmap"), run, detects=True)


RESAMPLED = "DSP-SIFT by resampling, root"
DEFAULT = "caloric"


def fixed() -> list[Method]:
    """Descriptors at the same OpenCV keypoints; the default first, then peers, then kernels."""
    sift = recipes.descriptor("sift")
    found = [
        ours(DEFAULT, DEFAULT),
        ours(DEFAULT, "caloric, as uint8", dtype="uint8"),
        *(ours(name, name) for name in recipes.VARIANTS),
        _opencv(root=False),
        _opencv(root=True),
        # SIFT's own support, 7.5 σ: over ten sizes it does better than the wider one of `sift`.
        ours(replace(sift, sampling=SquarePatch(32, reach=7.5)), RESAMPLED, domain_sizes=10),
    ]
    if util.find_spec("kornia") is not None:
        found += [_kornia("SIFT"), _kornia("MKD")]
    kernels = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity")
    return found + [ours(name, name) for name in kernels]


def absent() -> list[str]:
    """Peers that are not installed, and so not in the run."""
    return [name for name in ("kornia", "pycolmap") if util.find_spec(name) is None]


def pipelines() -> list[Method]:
    """Detectors with their own descriptors."""
    found = [
        ours(DEFAULT, DEFAULT, detects=True),
        ours(DEFAULT, "caloric, affine", detects=True, affine=True),
        ours("sift", "our detector, sift", detects=True),
        replace(_opencv(root=True), detects=True),
    ]
    if util.find_spec("pycolmap") is not None:
        found += [
            _colmap("COLMAP SIFT"),
            _colmap("COLMAP DSP-SIFT", domain_size_pooling=True, estimate_affine_shape=True),
        ]
    return found
