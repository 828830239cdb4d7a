"""
Match an oblique view
=====================

From an oblique viewpoint, 78° from the surface normal, an image appears at a fifth of its width,
and local features look different. If the original images yield no reliable geometry,
``match_images`` simulates oblique views (``views="auto"``, the default).
"""

import cv2
import numpy as np

import caloric
from caloric import demo

view = demo.oblique_view()
first, second = view.original, view.changed
pair = caloric.match_images(first, second, model="homography")  # the scene is planar
print(pair)
print("simulated views up to a tilt of", pair.level)

# %%
# For comparison: the same without simulated views, and OpenCV's SIFT with a ratio test.

without = caloric.match_images(first, second, model="homography", views=None)
print("without views:", without)

sift, matcher = cv2.SIFT_create(8000), cv2.BFMatcher()
(points_a, a), (points_b, b) = (sift.detectAndCompute(image, None) for image in (first, second))
good = [m for m, n in matcher.knnMatch(a, b, k=2) if m.distance < 0.8 * n.distance]
xy_a = np.float64([points_a[m.queryIdx].pt for m in good])
xy_b = np.float64([points_b[m.trainIdx].pt for m in good])


def count_correct(p, q):
    """Return the number of matches within 3 pixels of the ground truth."""
    return int((view.errors(p, q) < 3).sum())


print("OpenCV's SIFT:", count_correct(xy_a, xy_b), "of", len(good), "matches are correct")
print(
    "Caloric:", count_correct(pair.points_a, pair.points_b), "of", len(pair), "matches are correct"
)

# %%

pair.save("oblique.png")
