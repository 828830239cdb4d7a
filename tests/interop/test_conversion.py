"""What leaves the house, read by the code of those who read it."""

import sqlite3

import cv2
import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.interop import colmap_command, conversion, hdf5, opencv, skimage, text


def views():
    image = photographs.grey("brick", (400, 400))
    change = photographs.similarity(0.9, 20, (5, -8), (200, 200))
    return image, photographs.warp(image, change), change


@pytest.fixture(scope="module")
def pair():
    first, second, change = views()
    return (*caloric.extract([first, second], max_features=600, dtype="uint8"), change)


def right(a, b, matches, change):
    moved = photographs.apply(change, a.frames.xy[matches[:, 0]])
    return (np.hypot(*(moved - b.frames.xy[matches[:, 1]]).T) < 3).sum()


def hloc_nearest(a, b, ratio=None):
    """hloc's NearestNeighbor: descriptors (d, n), compared by dot products."""

    def find(similarity):
        best, index = similarity.topk(2, dim=-1, largest=True)
        distance = 2 * (1 - best)
        keep = torch.ones(index.shape[:-1], dtype=torch.bool)
        if ratio:
            keep &= distance[..., 0] <= ratio**2 * distance[..., 1]
        return torch.where(keep, index[..., 0], index.new_tensor(-1))

    similarity = torch.einsum("dn,dm->nm", torch.from_numpy(a), torch.from_numpy(b))
    forth, back = find(similarity), find(similarity.t())
    loop = torch.gather(back, -1, torch.where(forth > -1, forth, forth.new_tensor(0)))
    mutual = (forth > -1) & (torch.arange(len(forth)) == loop)
    index = torch.nonzero(mutual)[:, 0]
    return torch.stack([index, forth[index]], 1).numpy()


def test_hloc_matches_what_we_write(pair, tmp_path):
    h5py = pytest.importorskip("h5py")
    a, b, change = pair
    hdf5.write(tmp_path / "f.h5", [("a.jpg", a), ("b.jpg", b)])
    with h5py.File(tmp_path / "f.h5") as file:
        values = [file[name]["descriptors"][:] for name in ("a.jpg", "b.jpg")]
    for v in values:
        assert v.dtype == np.float32
        np.testing.assert_allclose(np.linalg.norm(v, axis=0), 1, atol=1e-5)
    found = hloc_nearest(*values, ratio=0.9)
    ours = caloric.match(a, b).indices
    assert right(a, b, found, change) >= 0.9 * right(a, b, ours, change) > 100


def test_scores_of_matches_are_in_hlocs_range(tmp_path):
    h5py = pytest.importorskip("h5py")
    matches, distances = np.array([[0, 1], [2, 0]], np.uint32), np.array([0.0, 1.0], np.float32)
    hdf5.write_matches(tmp_path / "m.h5", [("a/1.jpg", "b.jpg", matches, distances, 3)])
    with h5py.File(tmp_path / "m.h5") as file:
        pair = file["a-1.jpg/b.jpg"]
        assert pair["matches0"][:].tolist() == [1, -1, 0]
        # Similarity 1 and 1/2, as (similarity + 1) / 2.
        np.testing.assert_allclose(pair["matching_scores0"][:], [1, 0, 0.75], atol=1e-3)


def colmap_nearest(a, b, ratio=0.8):
    """COLMAP's brute-force matcher: angles from the dot products of bytes of length 512."""
    dots = a.astype(np.int64) @ b.astype(np.int64).T
    angle = np.arccos(np.minimum(dots / 512**2, 1.0))

    def best(distance):
        order = np.argsort(distance, 1, kind="stable")[:, :2]
        first, second = np.take_along_axis(distance, order, 1).T
        return np.where((first < 0.7) & (first < ratio * second), order[:, 0], -1)

    forth, back = best(angle), best(angle.T)
    rows = np.flatnonzero((forth >= 0) & (back[forth] == np.arange(len(a))))
    return np.stack([rows, forth[rows]], 1)


@pytest.mark.parametrize("name", ["caloric", "caloric-unlearned"])
def test_colmap_matches_our_bytes(name):
    first, second, change = views()
    a, b = caloric.extract([first, second], name, max_features=600, dtype="uint8")
    values = [conversion.sift_bytes(f) for f in (a, b)]
    lengths = np.linalg.norm(values[0].astype(float), axis=1)
    np.testing.assert_allclose(lengths, 512, rtol=0.02)
    found = colmap_nearest(*values)
    assert right(a, b, found, change) > 100
    assert right(a, b, found, change) > 0.9 * len(found)
    with pytest.raises(caloric.InputError, match="128 dimensions"):
        conversion.sift_bytes(caloric.extract(first, "caloric-64", max_features=10))


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the path")
def test_colmaps_own_matcher_reads_our_text(pair, tmp_path):
    first, second, _ = views()
    for name, image, features in (("a", first, pair[0]), ("b", second, pair[1])):
        (tmp_path / "images").mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / "images" / f"{name}.png"), image)
        text.write(tmp_path / f"{name}.png.txt", features)

    place = ("--database_path", tmp_path / "d.db")
    images = ("--image_path", tmp_path / "images")
    colmap_command.call("feature_importer", *place, *images, "--import_path", tmp_path)
    without_gpu = colmap_command.without_gpu("exhaustive_matcher")
    colmap_command.call("exhaustive_matcher", *place, *without_gpu)
    connection = sqlite3.connect(tmp_path / "d.db")
    (rows,) = connection.execute("SELECT rows FROM matches").fetchone()
    connection.close()
    assert rows > 100


def test_code_written_for_opencvs_sift():
    first, second, change = views()
    sift = opencv.SIFT_create(600)
    (k1, d1), (k2, d2) = (sift.detectAndCompute(v, None) for v in (first, second))
    assert d1.dtype == np.float32
    assert 0 <= d1.min() <= d1.max() <= 255
    np.testing.assert_allclose(np.linalg.norm(d1, axis=1), 512, rtol=1e-4)
    for values in (
        (d1, d2),
        [np.sqrt(d / (d.sum(1, keepdims=True) + 1e-7)) for d in (d1, d2)],  # RootSIFT
        [d.astype(np.uint8).astype(np.float32) for d in (d1, d2)],
    ):
        assert np.isfinite(values[0]).all()
        flann = cv2.FlannBasedMatcher({"algorithm": 1, "trees": 5}, {"checks": 50})
        good = [m for m, n in flann.knnMatch(*values, k=2) if m.distance < 0.7 * n.distance]
        p = np.array([k1[m.queryIdx].pt for m in good])
        q = np.array([k2[m.trainIdx].pt for m in good])
        assert (np.hypot(*(photographs.apply(change, p) - q).T) < 3).sum() > 100
    signed = opencv.SIFT_create(600, descriptor="caloric").detectAndCompute(first, None)[1]
    assert signed.min() < 0
    small = opencv.SIFT_create(600, descriptorType=cv2.CV_8U).detectAndCompute(first, None)[1]
    assert small.dtype == np.uint8


def test_a_threshold_for_sifts_distances_holds_for_ours():
    first = photographs.grey("camera", (400, 400))
    change = photographs.similarity(0.7, 35, (5, -8), (200, 200))
    second = photographs.warp(first, change)

    def shares(sift):
        """Return which share of the right matches, and of the wrong ones, is nearer than 250."""
        (k1, d1), (k2, d2) = (sift.detectAndCompute(v, None) for v in (first, second))
        matches = cv2.BFMatcher().match(d1, d2)
        p = np.array([k1[m.queryIdx].pt for m in matches])
        q = np.array([k2[m.trainIdx].pt for m in matches])
        good = np.hypot(*(photographs.apply(change, p) - q).T) < 3
        near = np.array([m.distance for m in matches]) < 250
        return near[good].mean(), near[~good].mean()

    theirs, ours = shares(cv2.SIFT_create(600)), shares(opencv.SIFT_create(600))
    assert ours[0] > 0.9
    assert ours[1] < 0.35
    np.testing.assert_allclose(ours, theirs, atol=0.1)


def scikit_images_example(extractor):
    """scikit-image's gallery, "SIFT feature detector": right matches with a ratio and without."""
    data, transform = pytest.importorskip("skimage.data"), pytest.importorskip("skimage.transform")
    from skimage.color import rgb2gray
    from skimage.feature import match_descriptors

    first = rgb2gray(data.astronaut())
    change = transform.AffineTransform(scale=(1.3, 1.1), rotation=0.5, translation=(0, -200))
    found = []
    for image in (first, transform.warp(first, change)):
        extractor.detect_and_extract(image)
        found.append((extractor.keypoints, extractor.descriptors))
    (p, a), (q, b) = found
    counts = []
    for ratio in (0.6, 1.0):
        i, j = match_descriptors(a, b, max_ratio=ratio, cross_check=True).T
        apart = change.inverse(p[i][:, ::-1].astype(float)) - q[j][:, ::-1]
        counts.append((np.hypot(*apart.T) < 3).sum())
    return counts


def test_scikit_images_example_with_our_class():
    from skimage.feature import SIFT

    ours, theirs = scikit_images_example(skimage.SIFT()), scikit_images_example(SIFT())
    assert ours[0] >= theirs[0] > 500
    assert ours[1] >= theirs[1]


def test_the_class_has_all_that_scikit_images_has():
    from inspect import signature

    from skimage.feature import SIFT

    theirs, ours = SIFT(), skimage.SIFT()
    known = signature(skimage.SIFT).parameters
    for name, parameter in signature(SIFT).parameters.items():
        assert known[name].default == pytest.approx(parameter.default)
    image = photographs.grey("camera", (120, 120)) / 255.0
    for extractor in (theirs, ours):
        extractor.detect_and_extract(image)
    for name in [*vars(theirs), *dir(theirs)]:
        if not name.startswith("_"):
            assert hasattr(ours, name), name
    assert ours.descriptors.dtype == theirs.descriptors.dtype == np.uint8
    # Theirs has as many octaves as fit into the image.
    levels = theirs.scalespace_sigmas
    np.testing.assert_allclose(ours.scalespace_sigmas[: len(levels)], levels)
    few = skimage.SIFT(n_octaves=1)
    few.detect_and_extract(image)
    assert few.octaves.max() == 0
    assert len(few.descriptors) == len(few.keypoints) < len(ours.keypoints)
    larger = skimage.SIFT(lambda_descr=9)
    larger.detect_and_extract(image)
    assert (larger.descriptors != ours.descriptors).any()
    for wrong, message in (
        ({"n_hist": 2}, "is always"),
        ({"lambda_descr": 9, "descriptor": "caloric"}, "is always"),
        ({"lambda_descr": -1}, "positive"),
        ({"n_octaves": 0}, "from 1"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            skimage.SIFT(**wrong)
    assert ours.keypoints.dtype == theirs.keypoints.dtype
    assert np.abs(ours.orientations).max() <= np.pi


def test_keypoints_are_in_the_axes_that_hloc_opens(tmp_path):
    """A photograph that lies on its side in its file."""
    h5py = pytest.importorskip("h5py")
    first, _, _ = views()
    upright = first[:300]
    about = Image.Exif()
    about[274] = 6
    path = tmp_path / "lying.png"
    Image.fromarray(np.rot90(upright)).save(path, exif=about)
    arguments = ["extract", str(path), "-o", str(tmp_path / "f.h5"), "--max-features", "50"]
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    stored = cv2.imread(str(path), cv2.IMREAD_GRAYSCALE | cv2.IMREAD_IGNORE_ORIENTATION)
    direct = caloric.extract(stored, max_features=50)
    with h5py.File(tmp_path / "f.h5") as file:
        group = file["lying.png"]
        assert group["image_size"][:].tolist() == [300, 400]
        keypoints = group["keypoints"][:]
    nearest = np.linalg.norm(keypoints[:, None] - direct.frames.xy, axis=2).min(1)
    assert np.median(nearest) < 0.01


def test_options_of_the_opencv_face_are_written_and_read(tmp_path):
    sift = opencv.SIFT_create(123, contrastThreshold=0.03, upright=True)
    sift.save(tmp_path / "sift.yml")
    other = opencv.SIFT.create()
    other.read(tmp_path / "sift.yml")
    assert other == sift
    other.clear()
    other.setSigma(1.6)
    other.setNOctaveLayers(3)
    with pytest.raises(caloric.InputError, match="always"):
        other.setSigma(1.2)
    with pytest.raises(caloric.InputError, match="cannot be read"):
        other.read(tmp_path / "none.yml")


def test_features_are_saved_under_their_own_ending(pair, tmp_path):
    with pytest.raises(caloric.InputError, match=r"f\.h5: features are saved as \.npz"):
        pair[0].save(tmp_path / "f.h5")
    assert not (tmp_path / "f.h5").exists()


def test_no_command_writes_over_its_input(tmp_path):
    first, second, _ = views()
    a, b = tmp_path / "a.png", tmp_path / "b.png"
    cv2.imwrite(str(a), first)
    cv2.imwrite(str(b), second)
    link = tmp_path / "link.png"
    link.symlink_to(a)
    before = a.read_bytes()
    for arguments in (
        ["match", a, b, "-o", a],
        ["match", a, b, "-o", link],
        ["match", a, b, "-o", tmp_path / "." / "b.png"],
        ["match", a, b, "--json", b],
        ["align", b, a, "-o", a],
        ["find", a, b, "-o", b],
        ["bench", "speed", a, "--json", a],
        ["bench", "pairs", "--data", tmp_path, "--json", b],
    ):
        result = CliRunner().invoke(cli.app, [str(x) for x in arguments])
        assert "would be overwritten" in str(result.exception)
    assert a.read_bytes() == before
    disguised = tmp_path / "a.npz"
    disguised.write_bytes(before)
    (tmp_path / "folder").mkdir()
    inside = tmp_path / "folder" / "a.png.npz"
    inside.write_bytes(before)
    for arguments in (
        ["extract", disguised, "-o", disguised],
        ["extract", a, inside, "-o", tmp_path / "folder"],
    ):
        result = CliRunner().invoke(cli.app, [str(x) for x in arguments])
        assert "would be overwritten" in str(result.exception)
    assert disguised.read_bytes() == inside.read_bytes() == before
    one = str(tmp_path / "x.png")
    result = CliRunner().invoke(cli.app, ["match", str(a), str(b), "-o", one, "--json", one])
    assert "two results" in str(result.exception)


def test_a_pair_without_geometry_is_told_by_the_exit_code(tmp_path):
    rng = np.random.default_rng(0)
    for name in "ab":
        noise = cv2.GaussianBlur(rng.integers(0, 255, (120, 120), np.uint8), (0, 0), 3)
        cv2.imwrite(str(tmp_path / f"{name}.png"), np.full_like(noise, 128))
    result = CliRunner().invoke(cli.app, ["match", *(str(tmp_path / f"{n}.png") for n in "ab")])
    assert result.exit_code == 1
    assert "0 inliers" in result.output
