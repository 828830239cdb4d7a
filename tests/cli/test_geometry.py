"""``caloric verify``."""

import json

import cv2
import h5py
import numpy as np
import pytest

from caloric.errors import InputError
from caloric.interop import points


@pytest.fixture(scope="module")
def matched():
    """Return matched points of a similarity, with noise and 10 outliers."""
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 300, (60, 2))
    b = a @ np.array([[0.9, 0.2], [-0.2, 0.9]]) + 60 + rng.normal(0, 0.3, a.shape)
    b[:10] = rng.uniform(0, 300, (10, 2))
    return a, b


def write(path, a, b, names=("points_a", "points_b")):
    if path.suffix == ".npz":
        np.savez(path, **dict(zip(names, (a, b), strict=True)))
    elif path.suffix == ".h5":
        with h5py.File(path, "w") as file:
            for name, values in zip(names, (a, b), strict=True):
                file[name] = values
    else:
        header = ",".join(("x_a", "y_a", "x_b", "y_b")) if names else ""
        rows = np.concatenate([a, b], 1)
        np.savetxt(path, rows, delimiter=",", header=header, comments="")
    return path


@pytest.mark.parametrize(
    ("name", "names"),
    [
        ("m.npz", ("points_a", "points_b")),
        ("m.npz", ("mkpts0", "mkpts1")),
        ("m.h5", ("keypoints0", "keypoints1")),
        ("m.csv", ("header",)),
        ("m.csv", ()),
    ],
)
def test_files(name, names, matched, tmp_path):
    read = points.read(write(tmp_path / name, *matched, names))
    np.testing.assert_allclose(read, matched)


def test_the_result_as_text(command, matched, tmp_path):
    path = write(tmp_path / "m.npz", *matched)
    code, out, _ = command("verify", path, "--size-a", "300x300", "--size-b", "400x400")
    assert code == 0
    lines = dict(line.split(": ", 1) for line in out.splitlines())
    assert lines["model"] == "homography"
    assert lines["inliers"] in ("49 of 60 matches", "50 of 60 matches")
    assert float(lines["confidence"]) > 0.9
    assert lines["reason"].startswith("homography: the scene is planar")
    assert lines["expected error over the overlap"].startswith("median 0.")


def test_the_result_as_json(command, matched, tmp_path):
    path = write(tmp_path / "m.csv", *matched)
    for side in "ab":
        cv2.imwrite(str(tmp_path / f"{side}.png"), np.zeros((400, 400), np.uint8))
    images = tmp_path / "a.png", tmp_path / "b.png"
    code, out, _ = command("verify", path, "--images", *images, "--json", "-")
    assert code == 0
    report = json.loads(out)
    assert list(report) == [
        "model", "matrix", "inliers", "sigma", "threshold", "alternative", "inlier", "confidence",
        "reason", "error", "matches",
    ]  # fmt: skip
    assert sum(report["inlier"]) == report["inliers"] >= 49
    assert 0 < report["error"]["median"] <= report["error"]["maximum"] < 2
    code, out, _ = command("verify", path, "--model", "fundamental")
    assert "expected error at the inliers" in out


def test_unrelated_points_exit_with_status_1(command, tmp_path):
    rng = np.random.default_rng(0)
    path = write(tmp_path / "m.npz", *rng.uniform(0, 300, (2, 60, 2)))
    code, out, _ = command("verify", path, "--json", "-")
    assert code == 1
    report = json.loads(out)
    assert report["matrix"] is None
    assert report["confidence"] < 0.5
    assert report["reason"]
    code, out, _ = command("verify", write(tmp_path / "few.npz", np.eye(2), np.eye(2)))
    assert code == 1
    assert "too few" in out
    assert "expected error" not in out


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"a": np.zeros((4, 2))}, "contains a; expected two arrays"),
        ({"points_a": np.zeros((4, 3)), "points_b": np.zeros((4, 3))}, r"of shape \(4, 3\)"),
        ({"points_a": np.zeros((4, 2)), "points_b": np.zeros((5, 2))}, "have 4 and 5 rows"),
        ({"points_a": np.zeros((4, 2)), "points_b": np.full((4, 2), np.nan)}, "contain NaN"),
        ({"points_a": np.array([["x", "y"]]), "points_b": np.zeros((1, 2))}, "array of numbers"),
        ({"points_a": np.array([None, 1]), "points_b": np.zeros((1, 2))}, "Python objects"),
    ],
)  # fmt: skip
def test_invalid_arrays(content, message, tmp_path):
    np.savez(tmp_path / "m.npz", **content)
    with pytest.raises(InputError, match=message):
        points.read(tmp_path / "m.npz")


def test_invalid_files(tmp_path):
    for name, text, message in (
        ("m.csv", "1,2,3\n", "expected 4 columns"),
        ("m.csv", "1,2,3,4\n1,2,x,4\n", "cannot be read as .csv"),
        ("m.npz", "no archive", "cannot be read as .npz"),
        ("m.h5", "no HDF5", "cannot be read as .h5"),
        ("m.txt", "", "use .npz, .h5"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(InputError, match=message):
            points.read(tmp_path / name)
    with pytest.raises(InputError, match="no such file"):
        points.read(tmp_path / "missing.csv")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--size-a", "300x300"), "needed together"),
        (("--size-a", "300", "--size-b", "1x1"), "WIDTHxHEIGHT"),
        (("--size-a", "3x3", "--size-b", "3x3", "--images", "a.png", "b.png"), "pass either"),
        (("--images", "a.png", "b.png"), "a.png"),
        (("--threshold", "0"), "threshold must be"),
        (("--json", "nowhere/x.json"), "does not exist"),
    ],
)
def test_invalid_options(options, message, command, matched, tmp_path):
    code, out, err = command("verify", write(tmp_path / "m.npz", *matched), *options)
    assert code == 2
    assert out == ""
    assert message in err


def test_the_matches_are_not_overwritten(command, matched, tmp_path):
    path = write(tmp_path / "m.csv", *matched)
    assert command("verify", path, "--json", path)[0] == 2
    np.testing.assert_allclose(points.read(path), matched)


def test_the_error_map(command, matched, tmp_path):
    path, image, out = write(tmp_path / "m.csv", *matched), tmp_path / "a.png", tmp_path / "e.png"
    cv2.imwrite(str(image), np.zeros((400, 400), np.uint8))
    arguments = ("verify", path, "--model", "homography", "--error-map", out)
    code, _, err = command(*arguments)
    assert code == 2
    assert "--images" in err
    code, _, _ = command(*arguments, "--images", image, image)
    assert code == 0
    assert cv2.imread(str(out)).shape[1] > 400
