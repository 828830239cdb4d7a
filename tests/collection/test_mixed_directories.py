"""Directories as users have them: cameras, orientations, copies, video frames."""

import shutil
from itertools import pairwise

import cv2
import numpy as np
import pytest
from PIL import Image

import photographs
from caloric import collection
from caloric.collection import Matching, Pairing, Workers, matching, pairing, store, summaries
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.options import ExtractOptions
from stores import HERE, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)
_MAKE, _MODEL, _ORIENTATION = 271, 272, 274
SIZE = (400, 300)


def save(path, pixels, model="first", orientation=1):
    exif = Image.Exif()
    exif[_MAKE], exif[_MODEL], exif[_ORIENTATION] = "maker", model, orientation
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, quality=95, exif=exif)


@pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)
def test_cameras_orientations_folders_and_copies(tmp_path):
    directory = tmp_path / "images"
    views = photographs.book(8, SIZE, step=6.0)
    for i in (0, 2, 4):
        save(directory / "first camera" / f"{i}.jpg", views[i])
    save(directory / "portrait" / "1.jpg", np.rot90(views[1]).copy())  # held upright
    save(directory / "portrait" / "3.jpg", np.rot90(views[3]).copy(), orientation=6)
    for i in (5, 6, 7):
        smaller = cv2.resize(views[i], (320, 240), interpolation=cv2.INTER_AREA)
        save(directory / "second" / f"{i}.jpg", smaller, "second")
    shutil.copy(directory / "second" / "6.jpg", directory / "second" / "copy.jpg")
    (directory / ".trash").mkdir()
    shutil.copy(directory / "second" / "6.jpg", directory / ".trash" / "6.jpg")
    (directory / "second" / "broken.jpg").write_bytes(b"\xff\xd8\xff no image")
    result = collection.run(
        directory, tmp_path / "out", ExtractOptions(max_features=400), refine=False,
        workers=Workers(1, device="cpu"),
    )  # fmt: skip
    assert set(result.missing) == {"second/broken.jpg"}
    assert len(result.models) == 1
    images = {image.name: image for image in colmap_model.registered(result.models[0].directory)}
    cameras = colmap_model.cameras(result.models[0].directory)
    sizes = {(c.width, c.height) for c in cameras.values()}
    assert sizes == {SIZE, SIZE[::-1], (320, 240)}
    assert len({image.camera for image in images.values()}) == 3
    # The cameras are on an arc, in the order of their numbers; the copy is at the same position.
    centers = {name.split("/")[1]: image.center for name, image in images.items()}
    spacing = np.linalg.norm(centers["5.jpg"] - centers["4.jpg"])
    assert np.linalg.norm(centers["copy.jpg"] - centers["6.jpg"]) < 0.1 * spacing
    row = np.array([centers[f"{i}.jpg"] for i in range(8)])
    steps = np.diff(row, axis=0)
    assert (steps[:-1] * steps[1:]).sum(1).min() > 0
    lengths = np.linalg.norm(steps, axis=1)
    assert lengths.max() < 1.5 * lengths.min()


def test_neighboring_frames_of_a_video_are_accepted(tmp_path):
    """They have almost no parallax, so that the epipolar geometry is poorly determined."""
    directory, out = tmp_path / "frames", tmp_path / "out"
    for i, view in enumerate(photographs.book(5, SIZE, step=0.5)):
        save(directory / f"frame_{i:03d}.jpg", view)
    extract(directory, out)
    pairs = pairing.pairs(out, Pairing("sequential", overlap=2, nearest=1), HERE)
    matching.match(out, pairs, Matching(), HERE)
    matching.verify(out, Matching(), HERE)
    accepted = {(p.name_a, p.name_b) for p in summaries.summaries(out) if p.is_verified}
    names = [f"frame_{i:03d}.jpg" for i in range(5)]
    assert accepted >= {*pairwise(names), *zip(names, names[2:], strict=False)}
