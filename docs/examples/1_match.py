"""
Match two photographs and draw the matches
==========================================

The two are a photograph and the same one turned, smaller, darker and blurred. ``match_images``
takes arrays or files; what it returns has the matched points, the geometry, and a picture.
"""

import cv2
import numpy as np
from skimage import data

import caloric

first = data.chelsea()
turn = cv2.getRotationMatrix2D((225, 150), 40, 0.8)
second = cv2.GaussianBlur(
    cv2.warpAffine(first, turn, (451, 330), borderValue=(90, 90, 90)), (0, 0), 1
)
second = (0.7 * second).astype(np.uint8)

pair = caloric.match_images(first, second)
print(pair)

# %%
# The matched points are two arrays, one row per match:

points_first, points_second = pair.points_a, pair.points_b
print(points_first[:3].round(2))
print(points_second[:3].round(2))

# %%
# How far are they from where the rotation puts them? They are refined to a fraction of a pixel:

truth = points_first @ turn[:, :2].T + turn[:, 2]
print("median error:", np.median(np.linalg.norm(truth - points_second, axis=1)).round(3), "pixels")

# %%
# The picture; ``show()`` opens it, and notebooks show it by themselves. Colours are the error under
# the homography that was found.

pair.save("matches.png")
