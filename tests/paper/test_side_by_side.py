"""The three algorithms of the paper on one problem, without running them to the end."""

import numpy as np
import pytest

from caloric.descriptor.sampling import SquarePatch
from caloric.paper import side_by_side
from caloric.paper.letters import render
from caloric.paper.side_by_side import TEMPLATES, TRUTH, WHERE, Similarity


def test_errors_of_similarities():
    other = Similarity(WHERE.alpha + 2 * np.pi - np.radians(3), WHERE.s + np.log(1.1), (0.55, 0.2))
    assert WHERE.error(other) == pytest.approx((3, 0.1, 0.5))
    assert np.linalg.det(WHERE.matrix) == pytest.approx(1.2**2)


def test_the_scene_shows_the_template_at_its_similarity():
    points = 0.5 * SquarePatch(32).points()
    mapped = points @ WHERE.matrix.T + np.array(WHERE.b)
    expected = render(TEMPLATES[TRUTH], size=64)[16:48, 16:48]
    np.testing.assert_allclose(side_by_side.scene(mapped).reshape(32, 32), expected, atol=1e-6)


def test_candidates_hold_one_near_the_truth():
    frames = side_by_side.candidates()
    assert len(set(frames)) == 12
    errors = [WHERE.error(frame)[0] for frame in frames]
    assert np.flatnonzero(np.array(errors) < 15).tolist() == [frames.index(side_by_side.NEAREST)]
    assert frames == side_by_side.candidates()


def test_each_template_is_most_similar_to_itself():
    """Densities have the same norm, so that the template with more ink does not win."""
    patches = {letter: render(letter, size=side_by_side.SIZE) for letter in TEMPLATES}
    densities = [side_by_side.density_of(p, side_by_side.TEMPLATE_POINTS) for p in patches.values()]
    sigma = side_by_side.SIGMAS[-1]
    unmoved = np.array([1.0, 0, 0, 0])
    energies = np.array([
        [side_by_side.alignment.similarity(a, b, unmoved, sigma).energy for b in densities]
        for a in densities
    ])  # fmt: skip
    assert (energies.argmin(1) == np.arange(len(TEMPLATES))).all()
    np.testing.assert_allclose(np.diag(energies), energies[0, 0], rtol=0.02)
