"""
Refine matches of OpenCV or of a neural network
===============================================

``refine`` moves the second point of each match until the gradients around both points agree, and
estimates its covariance. It accepts points, frames or OpenCV keypoints from any detector.
"""

import cv2
import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric
from caloric import synthetic

first = cv2.cvtColor(data.chelsea(), cv2.COLOR_RGB2GRAY)
motion = synthetic.similarity(0.9, -15, (0, 0), (225, 150))
second = synthetic.warp(first, motion, border=0)
second = np.clip(second + np.random.default_rng(0).normal(0, 3, second.shape), 0, 255).astype(
    np.uint8
)

sift, matcher = cv2.SIFT_create(1000), cv2.BFMatcher(crossCheck=True)
(points_a, a), (points_b, b) = (sift.detectAndCompute(image, None) for image in (first, second))
matches = matcher.match(a, b)
keypoints_a = [points_a[m.queryIdx] for m in matches]
keypoints_b = [points_b[m.trainIdx] for m in matches]

refined = caloric.refine(first, second, keypoints_a, keypoints_b)
print(refined.moved.sum(), "of", len(matches), "matches refined")

# %%
# Errors of the correct matches (below 3 pixels) before and after refinement:

xy_a, xy_b = (np.float64([k.pt for k in points]) for points in (keypoints_a, keypoints_b))
truth = xy_a @ motion[:, :2].T + motion[:, 2]
before, after = (np.linalg.norm(truth - q, axis=1) for q in (xy_b, refined.xy))
is_correct = before < 3
print("median error before:", np.median(before[is_correct]).round(3), "pixels")
print("median error after: ", np.median(after[is_correct]).round(3), "pixels")

bins = np.geomspace(0.005, 3, 50)
plt.figure(figsize=(8, 3.4))
plt.hist(before[is_correct], bins, alpha=0.6, label="OpenCV SIFT")
plt.hist(after[is_correct], bins, alpha=0.6, label="refined by Caloric")
plt.xscale("log")
plt.xlabel("error of a match, in pixels")
plt.ylabel("matches")
plt.legend()
plt.tight_layout()
