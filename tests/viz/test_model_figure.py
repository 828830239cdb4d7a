"""The figure of a model."""

import numpy as np

from caloric.viz import model_figure


def test_points_and_cameras_are_in_the_figure():
    random = np.random.default_rng(0)
    xyz = random.uniform(-1, 1, (2000, 3)) * (4, 1, 1)
    colors = np.full((2000, 3), (10, 200, 30), np.uint8)
    rotations = np.repeat(np.eye(3)[None], 3, 0)
    centers = np.array([[-2.0, 0, -4], [0, 0, -4], [2, 0, -4]])
    figure = model_figure.draw(xyz, colors, rotations, centers, (180, 320))
    assert figure.shape == (180, 320, 4)
    green = (figure[..., :3] == (10, 200, 30)).all(-1)
    assert green.sum() > 1000
    assert (figure[..., 0] > 200).sum() > 20  # the cameras
    rows, columns = np.nonzero(figure[..., 3])
    assert np.ptp(columns) / 320 > 0.5 or np.ptp(rows) / 180 > 0.5  # it fills the figure
    np.testing.assert_allclose(model_figure.up(rotations), (0, -1, 0))


def test_a_model_of_one_point_is_drawn():
    one = np.zeros((1, 3))
    colors = np.full((1, 3), 255, np.uint8)
    assert model_figure.draw(one, colors, np.eye(3)[None], one + 1).any()
