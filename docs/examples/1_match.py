"""
Match two images and draw the matches
=====================================

The second image is a rotated, smaller, darker and blurred view of the first. ``match_images``
accepts arrays or file names. Its result contains the matched points and the geometry, and can be
drawn.
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
print(pair.geometry.reason)

# %%
# The matched points are two arrays (m, 2), one row per match:

points_first, points_second = pair.points_a, pair.points_b
print(points_first[:3].round(2))
print(points_second[:3].round(2))

# %%
# Compare with the known transformation. The points are accurate to a fraction of a pixel because
# ``match_images`` refines them.

truth = points_first @ motion[:, :2].T + motion[:, 2]
print("median error:", np.median(np.linalg.norm(truth - points_second, axis=1)).round(3), "pixels")

# %%
# ``save()`` writes a drawing of the matches, and ``show()`` opens it in a viewer. A notebook
# displays it if ``pair`` is the last line of a cell. Colors show the residuals of the estimated
# geometry.

pair.save("matches.png")
