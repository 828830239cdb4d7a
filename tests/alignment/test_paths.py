"""Paths through image sizes and σ."""

import numpy as np
import pytest

import caloric
import photographs
from template_problems import error, problem


def test_large_templates_are_aligned_at_several_sizes():
    whole = photographs.gray("astronaut")
    moved = photographs.similarity(1.1, 12, (8, -5), (256, 256))
    image = photographs.warp(whole, moved)
    template = whole[60:440, 100:420]
    truth = moved.copy()
    truth[:, 2] += moved[:, :2] @ (100, 60)
    result = caloric.align(template, image)
    assert result.converged
    assert error(result.transform, truth, 320) < 0.15
    assert len({step.sigma for step in result.path}) < len(result.path)  # σ = 0 at two sizes


def test_align_from_a_given_start_under_changed_illumination():
    template, image, truth = problem(degrees=15, scale=1.1, shift=(9, -7))
    darker = 255 * (image / 255) ** 2 * np.linspace(1, 0.5, image.shape[1])
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    result = caloric.align(template, darker.astype(np.uint8), initial=start)
    assert result.converged
    assert error(result.transform, truth) < 0.2
    result = caloric.align(template, darker.astype(np.uint8), initial=[*start, [0, 0, 1]])
    assert error(result.transform, truth) < 0.2


def test_leaving_the_image_is_reported():
    template, image, truth = problem()
    cut = image[:, : int(truth[0, 2]) + 40]  # 40 of the template's 96 columns remain
    result = caloric.align(template, cut, initial=truth)
    assert result.inside == pytest.approx(40 / 96, abs=0.1)
    assert not result.converged
    assert "left the image" in result.reason


def test_a_partly_visible_template_is_aligned():
    template, image, truth = problem(degrees=10)
    cut = int(truth[0, 2]) + 20
    truth[0, 2] -= cut
    result = caloric.align(template, image[:, cut:])
    assert result.converged
    assert 0.5 < result.inside < 0.95
    assert error(result.transform, truth) < 0.3


def test_align_with_all_parameters_diffused():
    template, image, truth = problem(degrees=12, shift=(6, -4))
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    result = caloric.align(template, image, diffusion="all", initial=start)
    assert result.converged
    assert error(result.transform, truth) < 0.15
