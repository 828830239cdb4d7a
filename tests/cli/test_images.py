"""``caloric match`` and ``caloric extract``."""

import json

import cv2
import h5py
import numpy as np
import pytest

import caloric
from broken import broken_files
from caloric.interop.conversion import sift_like


def test_invalid_choices_list_the_valid_ones(command, pair):
    code, _, err = command("match", *pair, "--descriptor", "heet")
    assert code == 2
    assert "did you mean 'heat'?" in err
    code, _, err = command("match", *pair, "--model", "homografy")
    assert "'homography', 'fundamental', 'affine'" in " ".join(err.split())
    assert "did you mean" not in command("match", *pair, "--model", "zzz")[2]


def test_match_prints_json_and_nothing_else(pair, command):
    code, out, _ = command("match", *pair, "--json", "-", "--max-features", 600)
    assert code == 0
    report = json.loads(out)
    assert list(report) == [
        "image_a", "image_b", "descriptor", "features", "columns", "origins", "matches", "model",
        "matrix", "inliers", "alternative", "sigma", "threshold", "confidence", "reason", "level",
        "refined",
    ]  # fmt: skip
    assert report["descriptor"] == "caloric"
    assert report["model"] == "homography"
    assert report["reason"].startswith("homography: the scene is planar")
    assert report["features"] == [600, 600]
    assert all(len(row) == 7 for row in report["matches"])
    assert sum(row[5] for row in report["matches"]) == report["inliers"] > 150
    again = command("match", *pair, "--json", "-", "--max-features", 600)[1]
    assert again == out


def test_match_writes_a_figure_and_a_page(pair, tmp_path, command):
    figure, page = tmp_path / "m.png", tmp_path / "m.html"
    code, out, _ = command(
        "match", *pair, "-o", figure, "--html", page,
        "--descriptor", "heat", "--model", "affine", "--max-features", 500,
    )  # fmt: skip
    assert code == 0
    assert "inliers of an affine map" in out
    assert cv2.imread(str(figure)).shape[1] == 1032
    text = page.read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in text
    assert "http" not in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.html", "m.png"]


def test_broken_images_print_one_line_and_exit_with_status_2(pair, tmp_path, command):
    for name, message in broken_files(tmp_path).items():
        code, out, err = command("match", tmp_path / name, pair[0], "--json", "-")
        assert code == 2
        assert out == ""
        assert message in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--descriptor", "surf"), "unknown descriptor 'surf'; choose from caloric, sift"),
        (("--model", "plane"), "'plane' is not one of 'auto', 'homography'"),
        (("--max-features", "-3"), "max_features must be 0 or more"),
        (("--ratio", "7"), "ratio must be above 0"),
        (("-o", "figure.xyz"), "cannot write matches as '.xyz'"),
        (("-o", "nowhere/figure.png"), "the directory nowhere does not exist"),
        (("--html", "."), "is a directory; specify a file"),
        (("--seed", str(2**40)), "seed must be"),
        (("--threshold", "nan"), "threshold must be a positive number"),
        (("--detector", "fast"), "'fast' is not one of 'dog', 'opencv'"),
    ],
)
def test_invalid_options_of_match(pair, option, message, command):
    code, _, err = command("match", *pair, *option)
    assert code == 2
    assert message in err


def test_extract_writes_each_kind_of_output(pair, tmp_path, command):
    one = tmp_path / "one.npz"
    assert command("extract", pair[0], "-o", one, "--max-features", 50)[0] == 0
    features = caloric.Features.load(one)
    assert len(features) == 50
    directory = tmp_path / "directory"
    assert command("extract", *pair, "-o", directory, "--max-features", 50)[0] == 0
    assert sorted(p.name for p in directory.iterdir()) == ["one é.png.npz", "two.jpg.npz"]
    store = tmp_path / "all.h5"
    assert command("extract", *pair, "-o", store, "--max-features", 50)[0] == 0
    with h5py.File(store) as file:
        group = file["one é.png"]
        np.testing.assert_allclose(group["keypoints"], features.frames.xy, rtol=1e-6)
        np.testing.assert_array_equal(group["descriptors"][()].T, sift_like(features))
        np.testing.assert_allclose(group["oris"], np.degrees(features.frames.angle), rtol=1e-5)
    text = tmp_path / "text"
    assert command("extract", pair[1], "-o", text, "--to", "text", "--max-features", 50)[0] == 0
    assert [p.name for p in text.iterdir()] == ["two.jpg.txt"]
    assert (text / "two.jpg.txt").read_text().startswith("50 128\n")
    code, _, err = command("extract", pair[1], "-o", tmp_path / "x", "--to", "txt")
    assert code == 2
    assert "did you mean 'text'" in err
    code, _, err = command("extract", *pair, "-o", one)
    assert code == 2
    assert "contains one image" in err


def test_unusable_images_are_skipped(pair, tmp_path, command):
    broken_files(tmp_path)
    out = tmp_path / "out"
    code, _, err = command("extract", pair[0], tmp_path / "truncated.jpg", pair[1], "-o", out)
    assert code == 1
    assert "skipped: " in err
    assert len(list(out.iterdir())) == 2
    store = tmp_path / "kept.h5"
    store.write_bytes(b"old contents")
    code, _, err = command("extract", tmp_path / "text.png", "-o", store)
    assert code == 2
    assert "nothing written" in err
    assert store.read_bytes() == b"old contents"
    code, _, err = command("extract", pair[0], "-o", tmp_path / "x.unknown")
    assert code == 2
    assert "file, or a directory" in err


@pytest.mark.parametrize("shape", [(64, 64), (1, 1), (3, 10_000)])
def test_images_without_texture_have_no_matches(shape, tmp_path, command):
    path = tmp_path / "flat.png"
    cv2.imwrite(str(path), np.full(shape, 100, np.uint8))
    figure = tmp_path / "out.png"
    code, out, _ = command(
        "match", path, path, "--json", "-", "-o", figure, "--html",
        tmp_path / "out.html",
    )  # fmt: skip
    assert code == 1
    report = json.loads(out)
    assert (report["features"], report["matches"], report["inliers"]) == ([0, 0], [], 0)
    assert report["matrix"] is None
    assert figure.exists()


def test_errors_name_the_image(pair, tmp_path, command):
    bad = tmp_path / "nan.tiff"
    bad.write_bytes(cv2.imencode(".tiff", np.full((9, 9), np.nan, np.float32))[1].tobytes())
    for name in ("match", "extract"):
        out = ("--json", "-") if name == "match" else ("-o", tmp_path / "f.h5")
        code, _, err = command(name, pair[0], bad, *out)
        assert code in (1, 2)
        assert "nan.tiff: NaN" in err


def test_file_names_that_are_not_utf8_are_errors(pair, tmp_path, command):
    odd = tmp_path / "x\udcff.png"
    odd.write_bytes(pair[0].read_bytes())
    code, _, err = command("extract", odd, "-o", tmp_path / "f.h5")
    assert code == 2
    assert "not valid UTF-8" in err


def test_extract_checks_its_options_first(pair, tmp_path, command):
    out = tmp_path / "f.h5"
    code, _, err = command("extract", *pair, "-o", out, "--detector", "foo")
    assert code == 2
    assert err.startswith("caloric: Invalid value for '--detector': 'foo' is not one of 'dog'")
    assert err.count("\n") == 1


def test_an_image_without_texture_is_reported_without_views(command, pair, tmp_path):
    flat = tmp_path / "flat.png"
    cv2.imwrite(str(flat), np.full((60, 80), 40, np.uint8))
    code, out, err = command("match", flat, pair[0])
    assert code == 1
    assert f"{flat}: no features found (the image has no texture)\n" in err
    assert err.count("flat.png") <= 2  # "matching ..." is printed after a second
    assert "tilt" not in out


def test_white_level(command, pair, tmp_path):
    deep = tmp_path / "deep.tif"
    cv2.imwrite(str(deep), cv2.imread(str(pair[0]), 0).astype(np.uint16) * 16)
    _, _, err = command("extract", deep, "-o", tmp_path / "a.h5")
    assert f"{deep}: only" in err
    assert "--white-level" in err
    before = int(err.split(" features")[0].rsplit(" ", 1)[1])
    code, _, err = command("extract", deep, "-o", tmp_path / "b.h5", "--white-level", 4080)
    assert code == 0
    assert int(err.split(" features")[0].rsplit(" ", 1)[1]) > before
    assert command("match", deep, pair[0], "--white-level", 0)[0] == 2
    assert "white level must be" in command("match", deep, pair[0], "--white-level", 0)[2]
    code, _, _ = command("align", deep, deep, "--white-level", 4080, "--initial", "1,0,0,0,1,0")
    assert code == 0


@pytest.mark.parametrize("path", ["https://example.org/a.jpg", "-"])
def test_urls_and_standard_input_are_clear_errors(command, pair, path, tmp_path):
    for call in (
        ("match", path, pair[0]),
        ("align", path, pair[0]),
        ("extract", path, "-o", tmp_path / "x.h5"),
        ("view", path),
    ):
        code, _, err = command(*call)
        assert code == 2
        assert f"{path}: " in err
        assert "not supported" in err


def test_a_file_is_not_a_directory(command, pair, tmp_path):
    code, _, err = command("collection", "run", pair[0], "-o", tmp_path / "out")
    assert code == 2
    assert f"{pair[0]}: not a directory" in " ".join(err.split())
