"""The command line, and what importing the package costs."""

import doctest
import json
import re
import subprocess
import sys

import cv2
import h5py
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from broken import broken_files
from caloric import cli, pipeline
from caloric.alignment import align, templates
from caloric.descriptor import engine
from caloric.image import reading
from paths import README


def test_info():
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 0
    assert f"caloric {caloric.__version__}" in result.stdout
    assert "heat" in result.stdout


def test_help_fits_one_screen():
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    assert "paper" in result.stdout
    assert len(result.stdout.splitlines()) < 40


@pytest.mark.parametrize("arguments", [["frobnicate"], ["paper"], ["paper", "--colour", "x"]])
def test_bad_usage_is_exit_code_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def test_optional_libraries_are_not_imported():
    """Neither the library nor `caloric info` needs matplotlib."""
    code = (
        "import sys, caloric, caloric.cli; "
        "print([m for m in ('matplotlib', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_python_of_the_readme_and_the_first_steps_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    scope: dict[str, object] = {}
    for page, count in ((README, 2), (README.parent / "docs" / "start.md", 6)):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        assert len(blocks) == count
        exec("\n".join(blocks), scope)
        assert len(scope["pair"].points_a) > 300
    assert scope["geometry"].inliers.sum() > 300
    assert (tmp_path / "matches.png").stat().st_size > 1000
    assert (tmp_path / "of_my_own.png").stat().st_size > 1000
    assert scope["descriptors"].shape == (100, 128)
    assert scope["maps"].shape == (8, 32, 32)


@pytest.mark.slow
def test_the_python_of_the_recipes_runs_and_is_better():
    """Inliers of the same OpenCV script, before its one line changed and after."""
    pytest.importorskip("kornia")
    text = (README.parent / "docs/recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 6
    scope: dict[str, object] = {}
    exec("\n".join(blocks), scope)
    assert scope["after"] > scope["before"] > 100
    assert scope["described"].shape == (1, 2, 128)
    assert len(scope["matches"]) > 200


def test_what_was_meant_is_suggested(monkeypatch, capsys, pair):
    code, _, err = run(monkeypatch, capsys, "match", *pair, "--descriptor", "heet")
    assert code == 2
    assert "did you mean 'heat'?" in err
    code, _, err = run(monkeypatch, capsys, "match", *pair, "--model", "homografy")
    assert "'homography', 'affine', 'fundamental'" in " ".join(err.split())
    assert "did you mean" not in run(monkeypatch, capsys, "match", *pair, "--model", "zzz")[2]


@pytest.mark.slow
def test_a_users_file_is_clean_under_mypy_strict(tmp_path):
    """As an installed, typed package."""
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(
        "import numpy as np\n"
        "import caloric\n\n"
        "image = np.zeros((40, 50), np.uint8)\n"
        "a: caloric.Features = caloric.extract(image, max_features=10)\n"
        "both: list[caloric.Features] = caloric.extract([image, image])\n"
        "matches: caloric.Matches = caloric.match(a, a, ratio=0.8)\n"
        "geometry: caloric.Geometry = caloric.verify(a, a, matches, model='affine')\n"
        "pair: caloric.ImageMatch = caloric.match_images(image, 'b.jpg')\n"
        "found: caloric.Alignment = caloric.align(image, image)\n"
        "text: str = caloric.cite('heat')\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", str(file)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    file.write_text("import caloric\ncaloric.cite(3)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", str(file)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert "incompatible type" in done.stdout


def test_citations_are_of_the_papers_a_descriptor_comes_from():
    assert caloric.cite("heat").count("@") == 1
    for name, who in (("sift", "Lowe"), ("dsp-inner", "Dong"), ("distribution-field", "Sevilla")):
        assert who in caloric.cite(name)
        assert "Mobahi" in caloric.cite(name)
    with pytest.raises(caloric.InputError, match="magic"):
        caloric.cite("magic")


def test_docstrings_that_are_examples():
    for module in (caloric, pipeline, engine, align, templates, reading):
        result = doctest.testmod(module)
        assert result.attempted > 0, module
        assert result.failed == 0, module


def test_version_is_said_once():
    text = (README.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {caloric.__version__}" in text


def run(monkeypatch, capsys, *arguments):
    """The command as a user runs it: exit code, standard output, standard error."""
    monkeypatch.setattr("sys.argv", ["caloric", *map(str, arguments)])
    with pytest.raises(SystemExit) as stop:
        cli.main()
    captured = capsys.readouterr()
    return stop.value.code or 0, captured.out, captured.err


@pytest.fixture(scope="module")
def pair(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pair")
    image = photographs.grey("camera")
    view = photographs.similarity(1.2, 20, (5, 5), (255, 255))
    paths = folder / "one é.png", folder / "two.jpg"
    for path, pixels in zip(paths, (image, photographs.warp(image, view)), strict=True):
        path.write_bytes(cv2.imencode(path.suffix, pixels)[1].tobytes())
    return paths


def test_match_prints_json_and_nothing_else(pair, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "match", *pair, "--json", "-", "--max-features", 600)
    assert code == 0
    report = json.loads(out)
    assert list(report) == [
        "image_a", "image_b", "descriptor", "features", "columns", "matches", "model", "matrix",
        "inliers", "confidence", "level", "refined",
    ]  # fmt: skip
    assert report["descriptor"] == "caloric"
    assert report["features"] == [600, 600]
    assert all(len(row) == 6 for row in report["matches"])
    assert sum(row[5] for row in report["matches"]) == report["inliers"] > 150
    again = run(monkeypatch, capsys, "match", *pair, "--json", "-", "--max-features", 600)[1]
    assert again == out


def test_match_writes_a_picture_and_a_page(pair, tmp_path, monkeypatch, capsys):
    picture, page = tmp_path / "m.png", tmp_path / "m.html"
    code, out, _ = run(
        monkeypatch, capsys, "match", *pair, "-o", picture, "--html", page,
        "--descriptor", "heat", "--model", "affine", "--max-features", 500,
    )  # fmt: skip
    assert code == 0
    assert "inliers of an affine map" in out
    assert cv2.imread(str(picture)).shape[1] == 1032
    text = page.read_text(encoding="utf-8")
    assert "data:image/jpeg;base64," in text
    assert "http" not in text
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.html", "m.png"]


def test_broken_images_are_one_line_and_exit_code_2(pair, tmp_path, monkeypatch, capsys):
    for name, message in broken_files(tmp_path).items():
        code, out, err = run(monkeypatch, capsys, "match", tmp_path / name, pair[0], "--json", "-")
        assert code == 2
        assert out == ""
        assert message in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("option", "message"),
    [
        (("--descriptor", "surf"), "unknown descriptor 'surf'; known are caloric, sift"),
        (("--model", "plane"), "'plane' is not one of 'homography'"),
        (("--max-features", "-3"), "max_features must be 0 or more"),
        (("--ratio", "7"), "ratio must be above 0"),
        (("-o", "picture.xyz"), "cannot write images as '.xyz'"),
        (("-o", "nowhere/picture.png"), "the folder nowhere does not exist"),
        (("--html", "."), "a folder; name a file in it"),
        (("--seed", str(2**40)), "seed must be a whole number"),
        (("--threshold", "nan"), "threshold must be a positive number"),
        (("--detector", "fast"), "'fast' is not one of 'dog', 'opencv'"),
    ],
)
def test_bad_options_of_match(pair, option, message, monkeypatch, capsys):
    code, _, err = run(monkeypatch, capsys, "match", *pair, *option)
    assert code == 2
    assert message in err


def test_extract_into_each_kind_of_output(pair, tmp_path, monkeypatch, capsys):
    one = tmp_path / "one.npz"
    assert run(monkeypatch, capsys, "extract", pair[0], "-o", one, "--max-features", 50)[0] == 0
    features = caloric.Features.load(one)
    assert len(features) == 50
    folder = tmp_path / "folder"
    assert run(monkeypatch, capsys, "extract", *pair, "-o", folder, "--max-features", 50)[0] == 0
    assert sorted(p.name for p in folder.iterdir()) == ["one é.png.npz", "two.jpg.npz"]
    store = tmp_path / "all.h5"
    assert run(monkeypatch, capsys, "extract", *pair, "-o", store, "--max-features", 50)[0] == 0
    with h5py.File(store) as file:
        group = file["one é.png"]
        np.testing.assert_allclose(group["keypoints"], features.frames.xy, rtol=1e-6)
        np.testing.assert_array_equal(group["descriptors"][()].T, features.descriptors)
        np.testing.assert_allclose(group["oris"], np.degrees(features.frames.angle), rtol=1e-5)
    several = run(monkeypatch, capsys, "extract", *pair, "-o", one)
    assert several[0] == 2
    assert "holds one image" in several[2]


def test_one_bad_image_does_not_end_the_run(pair, tmp_path, monkeypatch, capsys):
    broken_files(tmp_path)
    out = tmp_path / "out"
    code, _, err = run(
        monkeypatch, capsys, "extract", pair[0], tmp_path / "truncated.jpg", pair[1], "-o", out
    )
    assert code == 1
    assert "skipped: " in err
    assert len(list(out.iterdir())) == 2
    store = tmp_path / "kept.h5"
    store.write_bytes(b"what was there")
    code, _, err = run(monkeypatch, capsys, "extract", tmp_path / "text.png", "-o", store)
    assert code == 2
    assert "nothing was written" in err
    assert store.read_bytes() == b"what was there"
    code, _, err = run(monkeypatch, capsys, "extract", pair[0], "-o", tmp_path / "x.unknown")
    assert code == 2
    assert "file or a directory" in err


@pytest.mark.slow
def test_demo_shows_the_difference(tmp_path, monkeypatch, capsys):
    code, out, _ = run(monkeypatch, capsys, "demo", tmp_path / "out")
    assert code == 0
    right = {line.split()[0]: int(line.split()[1]) for line in out.splitlines()[:2]}
    assert right["caloric"] > right["sift"] > 0
    assert cv2.imread(str(tmp_path / "out" / "demo.png")).std() > 20
    oblique = re.search(r"SIFT: (\d+) of \d+ matches correct; Caloric: (\d+) of", out)
    assert int(oblique[1]) < 10 < 100 < int(oblique[2])
    page = (tmp_path / "out" / "index.html").read_text("utf-8")
    assert page.count("<img") == 3
    assert str(tmp_path / "out" / "index.html") in out


def test_version_option(monkeypatch, capsys):
    assert run(monkeypatch, capsys, "--version")[1].strip() == f"caloric {caloric.__version__}"


@pytest.mark.parametrize("shape", [(64, 64), (1, 1), (3, 10_000)])
def test_images_without_texture_match_nothing(shape, tmp_path, monkeypatch, capsys):
    path = tmp_path / "flat.png"
    cv2.imwrite(str(path), np.full(shape, 100, np.uint8))
    picture = tmp_path / "out.png"
    code, out, _ = run(
        monkeypatch, capsys, "match", path, path, "--json", "-", "-o", picture, "--html",
        tmp_path / "out.html",
    )  # fmt: skip
    assert code == 1
    report = json.loads(out)
    assert (report["features"], report["matches"], report["inliers"]) == ([0, 0], [], 0)
    assert report["matrix"] is None
    assert picture.exists()


def test_errors_name_the_image(pair, tmp_path, monkeypatch, capsys):
    bad = tmp_path / "nan.tiff"
    bad.write_bytes(cv2.imencode(".tiff", np.full((9, 9), np.nan, np.float32))[1].tobytes())
    for command in ("match", "extract"):
        out = ("--json", "-") if command == "match" else ("-o", tmp_path / "f.h5")
        code, _, err = run(monkeypatch, capsys, command, pair[0], bad, *out)
        assert code in (1, 2)
        assert "nan.tiff: image: NaN" in err


def test_names_that_are_not_utf8(pair, tmp_path, monkeypatch, capsys):
    odd = tmp_path / "x\udcff.png"
    odd.write_bytes(pair[0].read_bytes())
    code, _, err = run(monkeypatch, capsys, "extract", odd, "-o", tmp_path / "f.h5")
    assert code == 2
    assert "not UTF-8" in err


def test_options_of_extract_are_checked_before_the_work(pair, tmp_path, monkeypatch, capsys):
    out = tmp_path / "f.h5"
    code, _, err = run(monkeypatch, capsys, "extract", *pair, "-o", out, "--detector", "foo")
    assert code == 2
    assert err.startswith("caloric: Invalid value for '--detector': 'foo' is not one of 'dog'")
    assert err.count("\n") == 1
