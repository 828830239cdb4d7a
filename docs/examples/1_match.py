"""
Match two photographs and draw the matches
==========================================

The two images are a photograph and a rotated, smaller, darker and blurred view of it.
``match_images`` takes arrays or files; its result has the matched points, the geometry, and a
picture.
"""

import cv2
import numpy as np
from skimage import data

import caloric
from caloric import synthetic

first = data.chelsea()
motion = synthetic.similarity(0.8, -40, (0, 0), (225, 150))
second = synthetic.warp(first, motion, (451, 330), border=(90, 90, 90))
second = (0.7 * cv2.GaussianBlur(second, (0, 0), 1)).astype(np.uint8)

pair = caloric.match_images(first, second)
print(pair)

# %%
# The matched points are two arrays, one row per match:

points_first, points_second = pair.points_a, pair.points_b
print(points_first[:3].round(2))
print(points_second[:3].round(2))

# %%
# Their error with respect to the known motion: they are refined to a fraction of a pixel.

truth = points_first @ motion[:, :2].T + motion[:, 2]
print("median error:", np.median(np.linalg.norm(truth - points_second, axis=1)).round(3), "pixels")

# %%
# ``show()`` opens the picture, and notebooks display it. Colors are errors with respect to the
# estimated homography.

pair.save("matches.png")
