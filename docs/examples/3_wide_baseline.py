"""
An oblique view
===============

From an oblique viewpoint, 78° from the surface normal, an image is a fifth as wide, and local
features no longer look alike. If the original images yield no reliable geometry, ``match_images``
simulates oblique views (``views="auto"``, the default).
"""

import cv2
import numpy as np

import caloric
from caloric import demo

view = demo.oblique_view()
first, second = view.original, view.changed
pair = caloric.match_images(first, second)
print(pair)
print("simulated views up to a tilt of", pair.level)

# %%
# The same without simulated views, and what OpenCV's SIFT with a ratio test and RANSAC finds:

print("without views:", caloric.match_images(first, second, views=None))

sift, matcher = cv2.SIFT_create(8000), cv2.BFMatcher()
(points_a, a), (points_b, b) = (sift.detectAndCompute(image, None) for image in (first, second))
good = [m for m, n in matcher.knnMatch(a, b, k=2) if m.distance < 0.8 * n.distance]
xy_a = np.float64([points_a[m.queryIdx].pt for m in good])
xy_b = np.float64([points_b[m.trainIdx].pt for m in good])


def correct(p, q):
    """Return the number of matches within 3 pixels of the ground truth."""
    return int((view.errors(p, q) < 3).sum())


print("OpenCV's SIFT:", correct(xy_a, xy_b), "of", len(good), "matches are correct")
print("Caloric:", correct(pair.points_a, pair.points_b), "of", len(pair))

# %%

pair.save("oblique.png")
