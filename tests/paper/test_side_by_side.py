"""The problem on which the three algorithms of the paper are run."""

import numpy as np
import pytest

from caloric.descriptor.sampling import SquarePatch
from caloric.paper import side_by_side
from caloric.paper.letters import render
from caloric.paper.side_by_side import POSE, TEMPLATES, TRUTH, Similarity


def test_the_error_of_a_similarity():
    other = Similarity(POSE.alpha + 2 * np.pi - np.radians(3), POSE.s + np.log(1.1), (0.55, 0.2))
    assert POSE.error(other) == pytest.approx((3, 0.1, 0.5))
    assert np.linalg.det(POSE.matrix) == pytest.approx(1.2**2)


def test_the_scene_shows_the_template_at_its_pose():
    points = 0.5 * SquarePatch(32).points()
    mapped = points @ POSE.matrix.T + np.array(POSE.b)
    expected = render(TEMPLATES[TRUTH], size=64)[16:48, 16:48]
    np.testing.assert_allclose(side_by_side.scene(mapped).reshape(32, 32), expected, atol=1e-6)


def test_one_candidate_is_near_the_truth():
    frames = side_by_side.candidates()
    assert len(set(frames)) == 12
    errors = [POSE.error(frame)[0] for frame in frames]
    assert np.flatnonzero(np.array(errors) < 15).tolist() == [
        frames.index(side_by_side.NEAREST_CANDIDATE)
    ]
    assert frames == side_by_side.candidates()


def test_each_template_is_most_similar_to_itself():
    """Densities have the same norm, so that the template with more ink does not win."""
    patches = {letter: render(letter, size=side_by_side.SIZE) for letter in TEMPLATES}
    densities = [side_by_side.density_of(p, side_by_side.TEMPLATE_POINTS) for p in patches.values()]
    sigma = side_by_side.SIGMAS[-1]
    identity = np.array([1.0, 0, 0, 0])
    energies = np.array([
        [side_by_side.alignment.similarity(a, b, identity, sigma).energy for b in densities]
        for a in densities
    ])  # fmt: skip
    assert (energies.argmin(1) == np.arange(len(TEMPLATES))).all()
    np.testing.assert_allclose(np.diag(energies), energies[0, 0], rtol=0.02)
