import numpy as np
import pytest

from caloric.descriptor.sampling import Foveated, SquarePatch

SAMPLINGS = [SquarePatch(16), SquarePatch(5, reach=6.0), Foveated(), Foveated(reach=12.0, finest=1)]


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_each_point_has_an_area_and_a_smoothing(sampling):
    points = sampling.points()
    assert points.shape == (len(sampling.areas()), 2) == (len(sampling.smoothing()), 2)
    assert (sampling.areas() > 0).all()
    assert (sampling.smoothing() > 0).all()
    ratios = np.linalg.norm(points, axis=1) / sampling.smoothing()
    assert sampling.farthest() == pytest.approx(ratios.max())


@pytest.mark.parametrize("sampling", SAMPLINGS, ids=repr)
def test_points_have_the_symmetries_of_the_square(sampling):
    points = {tuple(p) for p in sampling.points().round(9) + 0.0}
    for symmetry in ([[0, -1], [1, 0]], [[1, 0], [0, -1]]):
        assert {tuple(p) for p in (sampling.points() @ symmetry).round(9) + 0.0} == points


def test_areas_add_up_to_the_patch_or_the_disk():
    assert SquarePatch(16).areas().sum() == pytest.approx(4)
    even = Foveated(reach=10.0, finest=0.5, growth=0.0, start=0.25)
    assert even.areas().sum() == pytest.approx(np.pi * 10**2)


def test_the_smoothing_of_foveated_points_is_their_spacing():
    fovea = Foveated(reach=12.0, finest=1.0)
    radius = np.linalg.norm(fovea.points(), axis=1)
    np.testing.assert_allclose(fovea.smoothing(), np.maximum(1.0, 0.15 * radius))
