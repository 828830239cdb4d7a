"""Files in hloc's format, read as in hloc."""

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import caloric
from brick import correct, views
from caloric import cli
from caloric.interop import exporters, hdf5
from caloric.interop.exporters import Request
from caloric.matching.two_views import TwoViews


def hloc_nearest(a, b, ratio=None, distance=None):
    """Match descriptors (d, n) by dot products, as hloc's NearestNeighbor does."""

    def find(similarity):
        best, index = similarity.topk(2, dim=-1, largest=True)
        squared = 2 * (1 - best)
        keep = torch.ones(index.shape[:-1], dtype=torch.bool)
        if ratio:
            keep &= squared[..., 0] <= ratio**2 * squared[..., 1]
        if distance:
            keep &= squared[..., 0] <= distance**2
        return torch.where(keep, index[..., 0], index.new_tensor(-1))

    similarity = torch.einsum("dn,dm->nm", torch.from_numpy(a), torch.from_numpy(b))
    forth, back = find(similarity), find(similarity.t())
    loop = torch.gather(back, -1, torch.where(forth > -1, forth, forth.new_tensor(0)))
    mutual = (forth > -1) & (torch.arange(len(forth)) == loop)
    index = torch.nonzero(mutual)[:, 0]
    return torch.stack([index, forth[index]], 1).numpy()


def test_hlocs_matcher_matches_written_features(pair, tmp_path):
    h5py = pytest.importorskip("h5py")
    a, b, change = pair
    hdf5.write(tmp_path / "f.h5", [("a.jpg", a), ("b.jpg", b)])
    with h5py.File(tmp_path / "f.h5") as file:
        values = [file[name]["descriptors"][:] for name in ("a.jpg", "b.jpg")]
    for v in values:
        assert v.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, atol=1e-5)
    theirs = hloc_nearest(*values, ratio=0.8)
    ours = caloric.match(a, b).indices
    assert correct(a, b, theirs, change) >= 0.8 * correct(a, b, ours, change) > 100
    # NN-superpoint: distances of at most 0.7 instead of a ratio.
    near = hloc_nearest(*values, distance=0.7)
    assert correct(a, b, near, change) >= correct(a, b, theirs, change)
    assert correct(a, b, near, change) >= 0.9 * correct(a, b, hloc_nearest(*values), change)


def test_the_file_says_that_descriptors_are_not_whitened(pair, tmp_path):
    h5py = pytest.importorskip("h5py")
    a, _, _ = pair
    hdf5.write(tmp_path / "f.h5", [("a.jpg", a)])
    with h5py.File(tmp_path / "f.h5") as file:
        stored = file["a.jpg"]["descriptors"]
        assert stored.attrs["descriptor"] == f"{a.descriptor}, SIFT-like"
        assert stored[:].min() >= 0


def features(count):
    frames = caloric.Frames.from_xysa(*np.ones((3, count)), 0.0)
    return caloric.Features(frames, np.eye(count, 8, dtype=np.float32), (9, 9), "mine", "")


def test_match_scores_are_in_hlocs_range(tmp_path):
    h5py = pytest.importorskip("h5py")
    matches, distances = np.array([[0, 1], [2, 0]], np.uint32), np.array([0.0, 1.0], np.float32)
    a, b = (features(count) for count in (3, 2))
    pair = TwoViews("a/1.jpg", "b.jpg", matches, distances, np.arange(2), np.eye(3), "homography")
    request = Request(tmp_path / "f.h5", pairs=True)
    images = [("a/1.jpg", a), ("b.jpg", b)]
    assert exporters.write(hdf5.Hloc(request), images, [pair])[1] == tmp_path / "matches.h5"
    with h5py.File(tmp_path / "matches.h5") as file:
        pair = file["a-1.jpg/b.jpg"]
        assert pair["matches0"][:].tolist() == [1, -1, 0]
        # (similarity + 1) / 2 for similarities of 1 and 1/2.
        np.testing.assert_allclose(pair["matching_scores0"][:], [1, 0, 0.75], atol=1e-3)


def test_keypoints_ignore_the_exif_orientation(tmp_path):
    """hloc opens images without their EXIF orientation."""
    h5py = pytest.importorskip("h5py")
    first, _, _ = views()
    upright = first[:300]
    exif = Image.Exif()
    exif[274] = 6
    path = tmp_path / "rotated.png"
    Image.fromarray(np.rot90(upright)).save(path, exif=exif)
    arguments = ["extract", str(path), "-o", str(tmp_path / "f.h5"), "--max-features", "50"]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    stored = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    direct = caloric.extract(stored, max_features=50)
    with h5py.File(tmp_path / "f.h5") as file:
        group = file["rotated.png"]
        assert group["image_size"][:].tolist() == [300, 400]
        keypoints = group["keypoints"][:]
    nearest = np.linalg.norm(keypoints[:, None] - direct.frames.xy, axis=2).min(1)
    assert np.median(nearest) < 0.01
