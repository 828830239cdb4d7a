"""Paths through sizes and scales of diffusion."""

import numpy as np
import pytest

import caloric
import photographs
from template_problems import error, problem


def test_align_large_templates_by_octaves():
    whole = photographs.gray("astronaut")
    moved = photographs.similarity(1.1, 12, (8, -5), (256, 256))
    image = photographs.warp(whole, moved)
    template = whole[60:440, 100:420]
    truth = moved.copy()
    truth[:, 2] += moved[:, :2] @ (100, 60)
    found = caloric.align(template, image)
    assert found.converged
    assert error(found.transform, truth, 320) < 0.15
    assert len({step.sigma for step in found.path}) < len(found.path)  # σ = 0 at two sizes


def test_align_from_a_given_start_and_with_other_light():
    template, image, truth = problem(degrees=15, scale=1.1, shift=(9, -7))
    darker = 255 * (image / 255) ** 2 * np.linspace(1, 0.5, image.shape[1])
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    found = caloric.align(template, darker.astype(np.uint8), initial=start)
    assert found.converged
    assert error(found.transform, truth) < 0.2
    found = caloric.align(template, darker.astype(np.uint8), initial=[*start, [0, 0, 1]])
    assert error(found.transform, truth) < 0.2


def test_leaving_the_image_is_told():
    template, image, truth = problem()
    cut = image[:, : int(truth[0, 2]) + 40]  # 40 of the template's 96 columns are left
    found = caloric.align(template, cut, initial=truth)
    assert found.inside == pytest.approx(40 / 96, abs=0.1)
    assert not found.converged
    assert "left the image" in found.reason


def test_what_hangs_over_the_edge_is_aligned_by_what_is_in_it():
    template, image, truth = problem(degrees=10)
    cut = int(truth[0, 2]) + 20
    truth[0, 2] -= cut
    found = caloric.align(template, image[:, cut:])
    assert found.converged
    assert 0.5 < found.inside < 0.95
    assert error(found.transform, truth) < 0.3


def test_all_parameters_diffused_align_too():
    template, image, truth = problem(degrees=12, shift=(6, -4))
    start = np.array([[1.0, 0, 60], [0, 1, 120]])
    found = caloric.align(template, image, diffusion="all", initial=start)
    assert found.converged
    assert error(found.transform, truth) < 0.15
