"""
A wall seen from aside
======================

Seen from 78 degrees aside, a picture is a fifth as wide as it was. Local features no longer look
alike. ``match_images`` then simulates views from aside, where the photographs themselves give no
geometry that is believed (``views="auto"``, the default).
"""

import cv2
import numpy as np

import caloric
from caloric import demo

aside = demo.from_aside()
first, second = aside.original, aside.changed
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


def right(p, q):
    """How many matches are within 3 pixels of the truth."""
    truth = np.c_[p, np.ones(len(p))] @ aside.homography.T
    return int((np.linalg.norm(truth[:, :2] / truth[:, 2:] - q, axis=1) < 3).sum())


print("OpenCV's SIFT:", right(xy_a, xy_b), "of", len(good), "matches are right")
print("Caloric:", right(pair.points_a, pair.points_b), "of", len(pair))

# %%

pair.save("aside.png")
