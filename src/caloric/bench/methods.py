"""The methods compared: Caloric and other libraries, each with its defaults."""

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
from caloric.descriptor import normalize, recipes
from caloric.descriptor.sampling import SquarePatch
from caloric.frames import Frames
from caloric.image.inputs import read_image
from caloric.image.pixels import as_unit_range
from caloric.runtime import native

KEYPOINTS = 1500
Keypoints = tuple[Any, ...]
Described = tuple[Frames, NDArray[Any]]


@dataclass(frozen=True, eq=False)
class Method:
    """A method that extracts frames and descriptors of an image.

    ``run(image, keypoints)`` describes the given OpenCV keypoints, or ignores them if the method
    ``detects`` its own. ``version`` identifies everything that its results depend on.
    """

    name: str
    version: str
    run: Callable[[NDArray[Any], Keypoints], Described]
    detects: bool = False


def gray(image: NDArray[Any]) -> NDArray[Any]:
    """Return an 8-bit gray image (h, w), converted by OpenCV."""
    if image.dtype != np.uint8:
        image = np.rint(255 * np.clip(as_unit_range(image, "image"), 0, 1)).astype(np.uint8)
    if image.ndim == 3 and image.shape[2] == 4:
        image = image[..., :3]
    return np.asarray(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)) if image.ndim == 3 else image


def read_gray(path: str | Path) -> NDArray[np.uint8]:
    """Return a file as an 8-bit gray image (h, w)."""
    return np.asarray(gray(read_image(path)), np.uint8)


def opencv_keypoints(image: NDArray[Any], count: int = KEYPOINTS) -> Keypoints:
    """Return the strongest keypoints of OpenCV's SIFT detector."""
    keypoints = cv2.SIFT_create().detect(gray(image), None)  # type: ignore[attr-defined]
    strongest = sorted(keypoints, key=lambda k: (-k.response, k.pt, k.size, k.angle))
    return tuple(strongest[:count])


def _code() -> str:
    """Return a hash of Caloric's source: part of the cache key."""
    root = Path(caloric.__file__).parent
    files = sorted([*root.rglob("*.py"), *(root / "data").iterdir()])
    ignored = {
        "bench",
        "cli",
        "collection",
        "demo.py",
        "interop",
        "paper",
        "synthetic.py",
        "view",
        "viz",
    }
    relevant = [f for f in files if not ignored & set(f.relative_to(root).parts)]
    return hashlib.sha256(b"".join(f.read_bytes() for f in relevant)).hexdigest()[:12]


def ours(
    name: str | recipes.Descriptor, label: str, detects: bool = False, **options: Any
) -> Method:
    """Return a Caloric descriptor as a method, with given keypoints or Caloric's detector."""
    recipe = recipes.descriptor(name).fingerprint()

    def run(image: NDArray[Any], keypoints: Keypoints) -> Described:
        if detects:
            features = pipeline.extract(image, name, max_features=KEYPOINTS, **options)
            return features.frames, features.descriptors
        frames = Frames.from_opencv(keypoints)
        return frames, pipeline.describe(image, frames, name, **options)

    version = f"{_code()} {recipe} {options} {detects} {native.about()}"
    return Method(label, version, run, detects)


def _opencv(root: bool) -> Method:
    def run(image: NDArray[Any], keypoints: Keypoints) -> Described:
        if not keypoints:
            return Frames.empty(), np.zeros((0, 128), np.float32)
        values = cv2.SIFT_create().compute(gray(image), keypoints)[1]  # type: ignore[attr-defined]
        values = values.astype(np.float32)
        unit = normalize.root(values) if root else normalize.l2(values)
        return Frames.from_opencv(keypoints), unit

    return Method(f"OpenCV SIFT, {'root' if root else 'L2'}", cv2.__version__, run)


def _kornia(name: str) -> Method:
    """Return a kornia descriptor on patches of half-width 6σ, the scale of a LAF."""

    def run(image: NDArray[Any], keypoints: Keypoints) -> Described:
        import torch
        from kornia import feature

        frames = Frames.from_opencv(keypoints)
        if not keypoints:
            return frames, np.zeros((0, 128 if name == "SIFT" else 238), np.float32)
        laf = torch.from_numpy(frames.to_laf())
        pixels = torch.from_numpy(gray(image).astype(np.float32) / 255)[None, None]
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


def colmap_sift(count: int, threads: int | None = None, **options: bool) -> Any:
    """Return COLMAP's SIFT on the CPU, with its defaults except for the given options."""
    import pycolmap

    pycolmap.logging.minloglevel = 2  # errors only
    settings = pycolmap.FeatureExtractionOptions()
    settings.use_gpu = False
    settings.sift.max_num_features = count
    if threads is not None:
        settings.num_threads = threads
    for option, value in options.items():
        setattr(settings.sift, option, value)
    # pycolmap.Sift is deprecated, but all versions have it.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        return pycolmap.Sift(settings, device=pycolmap.Device.cpu)


def _colmap(label: str, **options: bool) -> Method:
    def run(image: NDArray[Any], keypoints: Keypoints) -> Described:
        rows, values = colmap_sift(KEYPOINTS, **options).extract(np.ascontiguousarray(gray(image)))
        return Frames.from_colmap(np.asarray(rows)), np.asarray(values, np.float32)

    return Method(label, metadata.version("pycolmap"), run, detects=True)


RESAMPLED = "DSP-SIFT by resampling, root"
DEFAULT = "caloric"


def fixed() -> list[Method]:
    """Return the methods for given OpenCV keypoints, the default descriptor first."""
    sift = recipes.descriptor("sift")
    methods = [
        ours(DEFAULT, DEFAULT),
        ours(DEFAULT, "caloric, as uint8", dtype="uint8"),
        *(ours(name, name) for name in recipes.VARIANTS),
        _opencv(root=False),
        _opencv(root=True),
        # With ten domain sizes SIFT's support, 7.5σ, is better than the wider one of `sift`.
        ours(replace(sift, sampling=SquarePatch(32, reach=7.5)), RESAMPLED, domain_sizes=10),
    ]
    if util.find_spec("kornia") is not None:
        methods += [_kornia("SIFT"), _kornia("MKD")]
    kernels = ("sift", "dsp-inner", "dsp-both", "dsp-domain", "heat", "similarity")
    return methods + [ours(name, name) for name in kernels]


def not_installed() -> list[str]:
    """Return the names of compared libraries that are not installed."""
    return [name for name in ("kornia", "pycolmap") if util.find_spec(name) is None]


def pipelines() -> list[Method]:
    """Return the methods that detect their own frames."""
    methods = [
        ours(DEFAULT, DEFAULT, detects=True),
        ours(DEFAULT, "caloric, affine", detects=True, affine=True),
        ours("sift", "our detector, sift", detects=True),
        replace(_opencv(root=True), detects=True),
    ]
    if util.find_spec("pycolmap") is not None:
        methods += [
            _colmap("COLMAP SIFT"),
            _colmap("COLMAP DSP-SIFT", domain_size_pooling=True, estimate_affine_shape=True),
        ]
    return methods
