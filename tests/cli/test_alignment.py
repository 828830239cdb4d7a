"""The commands align and find, and the refinement of match."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import photographs
from caloric import cli
from template_problems import SIZE, error, photograph, problem


@pytest.fixture
def files(tmp_path):
    template, image, truth = problem(degrees=20, shift=(6, 3))
    for name, pixels in (
        ("t", template),
        ("i", image),
        ("o", photograph("coffee")[80:176, 150:246]),
    ):
        cv2.imwrite(str(tmp_path / f"{name}.png"), pixels)
    return tmp_path, truth


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_align_writes_json_and_an_image(files):
    directory, truth = files
    result = run(
        "align", directory / "t.png", directory / "i.png", "-o", directory / "a.png", "--json", "-"
    )
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert error(np.array(report["transform"]), truth) < 0.15
    assert report["converged"]
    assert report["path"][-1]["sigma"] == 0
    assert np.shape(report["covariance"]) == (6, 6)
    assert min(cv2.imread(str(directory / "a.png")).shape[:2]) > 400
    numbers = ",".join(f"{v:.2f}" for v in truth.ravel())
    result = run("align", directory / "t.png", directory / "i.png", "--initial", numbers)
    assert result.exit_code == 0
    assert "converged" in result.stdout
    result = run("align", directory / "o.png", directory / "i.png", "--json", directory / "a.json")
    assert result.exit_code == 1
    assert not json.loads((directory / "a.json").read_text())["converged"]
    result = run("align", directory / "t.png", directory / "i.png", "--initial", "1,2")
    assert result.exit_code != 0


def test_align_fails_on_a_flat_template(files):
    directory, _ = files
    cv2.imwrite(str(directory / "flat.png"), np.full((40, 40), 7, np.uint8))
    result = run(
        "align",
        directory / "flat.png",
        directory / "i.png",
        "--json",
        "-",
        "-o",
        directory / "p.png",
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["energy"] is None
    assert (directory / "p.png").exists()


def test_find_reports_every_template(files):
    directory, truth = files
    names = [directory / "o.png", directory / "t.png"]
    result = run("find", directory / "i.png", *names, "-o", directory / "f.png", "--json", "-")
    assert result.exit_code == 0
    report = json.loads(result.stdout)
    assert report["template"] == str(directory / "t.png")
    assert report["index"] == 1
    assert [one["template"] for one in report["scores"]] == [str(n) for n in names]
    assert report["scores"][1]["score"] > report["scores"][0]["score"]
    assert error(np.array(report["transform"]), truth) < 0.3
    listed = run(
        "find", directory / "i.png", *names, directory / "missing.png", directory / "i.png"
    )
    assert listed.exit_code == 0
    rows = [line for line in listed.stdout.splitlines() if line.startswith("│")]
    assert len(rows) == 4
    assert ["yes" in row for row in rows] == [True, True, False, False]
    assert "no such file" in listed.stdout
    assert run("find", directory / "i.png", directory / "o.png").exit_code == 1
    cv2.imwrite(str(directory / "n.png"), 255 - cv2.imread(str(directory / "i.png")))
    assert run("find", directory / "n.png", *names, "--inverted").exit_code == 0
    cv2.imwrite(str(directory / "tiny.png"), np.zeros((5, 5), np.uint8))
    result = run("find", directory / "i.png", directory / "tiny.png")
    assert result.exit_code != 0
    assert "tiny.png" in str(result.exception)


def test_refined_matches_are_more_precise(files):
    directory, _ = files
    cv2.imwrite(str(directory / "j.png"), photograph())
    moved = photographs.similarity(1, 20, (6, 3), (60 + (SIZE - 1) / 2, 120 + (SIZE - 1) / 2))
    errors = []
    for refine in (["--no-refine"], []):
        result = run("match", directory / "j.png", directory / "i.png", *refine, "--json", "-")
        assert result.exit_code == 0
        report = json.loads(result.stdout)
        matrix = np.array(report["matrix"])
        # A single homography varies with the random samples; the matches below do not.
        assert error(matrix[:2] / matrix[2, 2], moved, 300) < 0.5
        rows = np.array([row for row in report["matches"] if row[5]], float)
        expected = photographs.apply(moved, rows[:, :2])
        errors.append(np.median(np.hypot(*(expected - rows[:, 2:4]).T)))
    assert errors[1] < 0.7 * errors[0]


def test_json_has_no_infinities(tmp_path):
    """A ramp has no features, so the detector gives no candidates and the energy is infinite."""
    ramp = np.tile(np.linspace(0, 255, 64).astype(np.uint8), (64, 1))
    cv2.imwrite(str(tmp_path / "ramp.png"), ramp)
    cv2.imwrite(str(tmp_path / "image.png"), photographs.gray("camera", (160, 160)))
    names = [str(tmp_path / name) for name in ("ramp.png", "image.png", "out.json", "out.png")]
    arguments = ["align", *names[:2], "--method", "single", "--json", names[2], "-o", names[3]]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 1
    report = json.loads((tmp_path / "out.json").read_text(), parse_constant=pytest.fail)
    assert report["path"][0]["energy"] is None
    assert (tmp_path / "out.png").exists()
