"""Write one file of golden vectors: the results that every implementation must reproduce.

``python tests/golden/make.py NAME`` or ``make golden KERNEL=NAME`` writes the vectors of one
descriptor, or of "geometry", "pipeline", "refine" or "views". Existing files are overwritten only
on request, because users have stored such vectors. tests/test_golden.py compares.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

import caloric
import photographs
import two_view_scenes
from caloric.kernels import KERNELS
from caloric.matching import estimation, models
from paths import GOLDEN, ROOT

DEFAULTS = ("caloric", "caloric-64", "caloric-unlearned")
FEATURES = 400
MOVED = photographs.similarity(0.9, 12.0, (5.0, -3.0), (256.0, 256.0))
CORNER, SIDE = (190, 140), 128  # of the template: column and row
VIEWS = {"max_features": 60, "views": 2}


def patches() -> np.ndarray:
    """Three 16 x 16 uint8 patches: an edge with a corner, a blob, and noise."""
    y, x = np.mgrid[-1:1:16j, -1:1:16j]
    corner = ((x > -0.2) & (y > 0.1)) * 0.8 + 0.1
    blob = np.exp(-((x - 0.2) ** 2 + 2 * (y + 0.1) ** 2) / 0.3)
    noise = np.random.default_rng(0).random((16, 16))
    return np.rint(255 * np.array([corner, blob, noise])).astype(np.uint8)


def image() -> np.ndarray:
    """A photograph (512, 512) of scikit-image."""
    return photographs.gray("camera")


def template() -> np.ndarray:
    """A part of the photograph, to be located in the second image."""
    x, y = CORNER
    return image()[y : y + SIDE, x : x + SIDE]


def frames() -> caloric.Frames:
    """Frames of all kinds: circular, sheared, rotated, mirrored, at the border and outside."""
    rng = np.random.default_rng(0)
    count = 80
    maps = rng.integers(-64, 65, (count, 2, 3)) / 16
    maps[:, 0, 0] += 5.0
    maps[:, 1, 1] += 5.0 * rng.choice([-1, 1], count)
    maps[:, :, :2] *= 2.0 ** rng.integers(-1, 3, count)[:, None, None]
    maps[:, :, 2] = rng.integers(-20, 532, (count, 2)) + rng.integers(0, 16, (count, 2)) / 16
    return caloric.Frames(maps, np.zeros(count))


def descriptors(name: str) -> dict[str, np.ndarray]:
    """Descriptors of patches for a kernel, and of frames for the default and its variants."""
    if name in KERNELS:
        return {"patches": patches(), "descriptors": caloric.describe_patches(patches(), name)}
    return {"descriptors": caloric.describe(image(), frames(), name)}


def pipeline() -> dict[str, np.ndarray]:
    """The results of every stage from pixels to geometry."""
    a, b = image(), photographs.warp(image(), MOVED)
    features = [caloric.extract(each, max_features=FEATURES) for each in (a, b)]
    matches = caloric.match(*features)
    return {
        "image_b": b,  # stored, because warps by OpenCV differ between processors
        "found_maps": features[0].frames.maps,
        "found_scores": features[0].frames.scores,
        "points_a": features[0].frames.xy[matches.indices[:, 0]],
        "points_b": features[1].frames.xy[matches.indices[:, 1]],
        "distances": matches.distances,
        "homography": caloric.verify(*features, matches).matrix,
        "affine_maps": caloric.detect(a, max_features=FEATURES, affine=True).maps,
        "alignment": caloric.align(template(), b).transform,
    }


def refine() -> dict[str, np.ndarray]:
    """Refined frames of matches that are exact, up to a pixel off, incorrect, or textureless."""
    a, b = image(), np.load(path("pipeline"))["image_b"]
    rng = np.random.default_rng(0)
    detected = caloric.detect(a, max_features=160).maps.copy()
    detected[150:, :, 2] = rng.uniform((60, 20), (200, 60), (10, 2))  # the sky
    exact = MOVED[:, :2] @ detected + np.pad(MOVED[:, 2:], ((0, 0), (2, 0)))
    offsets = rng.uniform(-1, 1, (160, 2))
    offsets[:20] = 0
    offsets[140:150] *= 40
    moved = exact.copy()
    moved[:, :, 2] += offsets
    refined = caloric.refine(a, b, detected, moved)
    return {
        "maps_a": detected,
        "maps_b": moved,
        "maps": refined.maps,
        "moved": refined.moved,
        "covariances": refined.covariances,
        "total_covariances": refined.total_covariances,
    }


def views() -> dict[str, np.ndarray]:
    """Features of the photograph and of its simulated views."""
    features = caloric.extract(image(), **VIEWS)
    return {"maps": features.frames.maps, "descriptors": features.descriptors}


def geometry() -> dict[str, np.ndarray]:
    """Models of matched frames with noise and outliers, and their residuals and noise."""
    result = {}
    for number, model in enumerate(two_view_scenes.MODELS):
        rng = np.random.default_rng(number)
        frames, _ = two_view_scenes.scene(model, rng, 150, noise=0.2)
        a, b = two_view_scenes.with_outliers(frames, 50, rng)
        result |= {f"{model}_a": a, f"{model}_b": b}
        result |= {f"{model}_{k}": v for k, v in estimated(model, a, b).items()}
    return result


def estimated(model: str, a: np.ndarray, b: np.ndarray) -> dict[str, np.ndarray]:
    """Return the residuals, the noise, the likelihood and the covariance of an estimate."""
    p, q = (np.ascontiguousarray(maps[:, :, 2]) for maps in (a, b))
    cameras = two_view_scenes.cameras(model)
    matches = estimation.Correspondences(p, q, model, two_view_scenes.SIZE, cameras, None, (a, b))
    estimated_model = estimation.estimate(matches)
    return {
        "residuals": matches.residuals(estimated_model.matrix),
        "noise": np.array(
            [estimated_model.noise.sigma, estimated_model.noise.share, estimated_model.likelihood]
        ),
        "errors": models.errors(
            (p, q), model, estimated_model.matrix, estimated_model.covariance, cameras
        ),
    }


OTHERS = {"geometry": geometry, "pipeline": pipeline, "refine": refine, "views": views}
NAMES = (*KERNELS, *DEFAULTS, *OTHERS)


def path(name: str) -> Path:
    """Return the file of golden vectors called ``name``."""
    return GOLDEN / f"{name}.npz" if name in OTHERS else GOLDEN / "descriptors" / f"{name}.npz"


def write(name: str, overwrite: bool = False) -> str:
    """Write one file and return what to do next; raise FileExistsError if it exists."""
    file = path(name)
    relative = file.relative_to(ROOT)
    if file.exists() and not overwrite:
        raise FileExistsError(
            f"{relative} exists. To overwrite it: make golden KERNEL={name} OVERWRITE=1"
        )
    np.savez_compressed(file, **(OTHERS[name]() if name in OTHERS else descriptors(name)))
    return f"wrote {relative}: commit it, and add a line to CHANGELOG.md"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Write one file of golden vectors.")
    parser.add_argument("name", choices=NAMES, metavar="NAME", help=", ".join(NAMES))
    parser.add_argument("--overwrite", action="store_true", help="replace an existing file")
    options = parser.parse_args()
    try:
        print(write(options.name, options.overwrite))
    except FileExistsError as error:
        sys.exit(str(error))
