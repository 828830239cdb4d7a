"""Two views of a brick wall with a known map."""

import numpy as np

import photographs


def views():
    image = photographs.gray("brick", (400, 400))
    change = photographs.similarity(0.9, 20, (5, -8), (200, 200))
    return image, photographs.warp(image, change), change


def correct(a, b, matches, change):
    moved = photographs.apply(change, a.frames.xy[matches[:, 0]])
    return (np.hypot(*(moved - b.frames.xy[matches[:, 1]]).T) < 3).sum()
