"""Templates cut from photographs of scikit-image, and images with a known transform."""

import numpy as np

import photographs

SIZE = 96


def photograph(name="astronaut", size=(360, 360)):
    return photographs.gray(name, size)


def problem(
    scale=1.0, degrees=0.0, shift=(0.0, 0.0), shear=0.0, corner=(120, 60), name="astronaut"
):
    """Return a template, an image, and the 2 x 3 map from template to image pixels."""
    whole = photograph(name)
    y, x = corner
    template = whole[y : y + SIZE, x : x + SIZE]
    center = np.array([x, y]) + (SIZE - 1) / 2
    moved = photographs.similarity(scale, degrees, shift, center)
    moved[:, :2] = moved[:, :2] @ np.array([[1, shear], [0, 1]])
    moved[:, 2] = center + shift - moved[:, :2] @ center
    image = photographs.warp(whole, moved)
    truth = moved.copy()
    truth[:, 2] += moved[:, :2] @ (x, y)
    return template, image, truth


def error(estimate, truth, size=SIZE):
    """Return the largest error at the corners of the template, in pixels."""
    corners = np.array([[0, 0], [size, 0], [0, size], [size, size]], float)
    return np.linalg.norm(
        photographs.apply(estimate, corners) - photographs.apply(truth, corners), axis=1
    ).max()


def unit(image):
    return np.asarray(image, np.float32) / 255
