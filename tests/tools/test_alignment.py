"""``python -m tools align``."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
from template_problems import photograph, unit
from tools.__main__ import app as tools_app
from tools.alignment import benchmark
from tools.alignment import cases as align_cases
from tools.pages import alignment as align_page


def test_cases_are_reproducible_and_agree_with_their_ground_truth():
    photos = [unit(photograph(name, (400, 400))) for name in ("astronaut", "coffee", "camera")]
    for kind in align_cases.KINDS:
        case = align_cases.make(photos, kind, 0.5, 1)
        again = align_cases.make(photos, kind, 0.5, 1)
        np.testing.assert_array_equal(case.image, again.image)
        assert case.error(case.truth) == 0
        # Warped back by the ground truth, the image resembles the template.
        flags = cv2.INTER_LINEAR | cv2.WARP_INVERSE_MAP
        warped = cv2.warpAffine(case.image, case.truth, (128, 128), flags=flags)
        assert np.corrcoef(warped.ravel(), case.template.ravel())[0, 1] > 0.8
    with pytest.raises(caloric.InputError, match="textured"):
        align_cases.make([np.full((400, 400), 0.5, np.float32)] * 2, "all", 0.5, 0)


def run_tools(*arguments):
    return CliRunner().invoke(tools_app, [str(a) for a in arguments])


@pytest.mark.slow
def test_sections_are_merged_and_the_page_shows_them(tmp_path):
    for name in ("astronaut", "coffee", "camera", "rocket"):
        cv2.imwrite(str(tmp_path / f"{name}.png"), photograph(name, (420, 420)))
    json_path = tmp_path / "a.json"
    options = ["--data", tmp_path, "--cases", 1, "--json", json_path]
    result = run_tools("align", *options, "--only", "cells,hard")
    assert result.exit_code == 0, result.output
    result = run_tools("align", *options, "--only", "settings")
    assert result.exit_code == 0, result.output
    report = json.loads(json_path.read_text())
    assert set(report) == {"cells", "hard", "settings"}
    assert report["cells"]["share"]["caloric"]["translation"]["0.25"] >= 0.5
    page = align_page.page(report)
    assert "## Occlusion" in page
    assert "## Refined matches" not in page
    assert run_tools("align", *options, "--only", "speed").exit_code != 0
    assert run_tools("align", "--data", tmp_path / "none").exit_code != 0


def test_a_template_problem_has_fifty_candidates():
    names = ("astronaut", "coffee", "camera", "rocket")
    photos = align_cases.Photographs(
        [unit(photograph(name, (420, 420))) for name in names], [*names]
    )
    case, candidates, expected = benchmark.template_problem(photos, 0)
    assert len(candidates) == 50
    np.testing.assert_array_equal(candidates[expected], case.template)
    equal = [np.mean(candidate == case.template) for candidate in candidates]
    assert sum(0.4 < share < 0.95 for share in equal) == 20
    # Without rotation and scaling, which the coarse search includes, cross-correlation is exact.
    image = case.image.copy()
    image[100:228, 90:218] = case.template
    index, position = benchmark.correlation(image, [candidates[expected - 1], candidates[expected]])
    assert index == 1
    np.testing.assert_allclose(position, [90 + 63.5, 100 + 63.5], atol=0.6)
