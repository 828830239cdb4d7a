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


def test_the_figure_looks_in_the_direction_of_the_cameras():
    xyz = np.random.default_rng(0).uniform(-1, 1, (500, 3)) * (1, 1, 5)
    colors = np.where(xyz[:, :1] < 0, [[255, 0, 0]], [[0, 0, 255]]).astype(np.uint8)
    rotations, centers = np.repeat(np.eye(3)[None], 2, 0), np.array([[-0.5, 0, -9], [0.5, 0, -9]])
    figure = model_figure.draw(xyz, colors, rotations, centers, (180, 320))
    columns = [np.nonzero((figure[..., :3] == color).all(-1) & (figure[..., 3] > 0))[1]
               for color in ((255, 0, 0), (0, 0, 255))]  # fmt: skip
    assert columns[0].max() <= columns[1].min() + 1


def test_cameras_that_are_close_to_each_other_are_small():
    centers = np.arange(9.0)[:, None] * (1, 0, 0)
    assert model_figure.camera_depth(centers, 0.5) == 0.5
    assert model_figure.camera_depth(centers, 2) == 1
    assert model_figure.camera_depth(centers, 30) == 10
    assert model_figure.camera_depth(centers[:1], 2) == 2
