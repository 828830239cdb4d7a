"""
A panorama from two photographs
===============================

Two overlapping photographs of one scene, the second turned and brighter: their homography puts both
into one picture.
"""

import cv2
import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric

scene = data.coffee()
left = scene[:, :380]
tilt = np.array([[0.95, -0.09, -150.0], [0.10, 0.98, -20.0], [1.5e-4, -5e-5, 1.0]])
right = cv2.warpPerspective(scene, tilt, (400, 380), borderMode=cv2.BORDER_REFLECT)
right = np.clip(1.25 * right.astype(float), 0, 255).astype(np.uint8)

pair = caloric.match_images(left, right)
print(pair)

# %%
# The geometry maps the left photograph to the right one; its inverse puts the right one beside the
# left. A blend that weighs each photograph by the distance from its border hides the seam, and the
# ratio of their sums where they overlap corrects the exposure.

size = (640, 420)
back = np.linalg.inv(pair.geometry.matrix)


def placed(image, matrix):
    """The image on the canvas, and its weight there."""
    h, w = image.shape[:2]
    inside = np.zeros((h, w), np.float32)
    inside[1:-1, 1:-1] = 1
    weight = cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, 5)
    warped = cv2.warpPerspective(image.astype(np.float32), matrix, size)
    return warped, cv2.warpPerspective(weight, matrix, size)[..., None]


pixels_left, weight_left = placed(left, np.eye(3))
pixels_right, weight_right = placed(right, back)
both = (weight_left > 5) & (weight_right > 5)
pixels_right *= (pixels_left * both).sum() / (pixels_right * both).sum()
total = np.maximum(weight_left + weight_right, 1e-6)
panorama = (weight_left * pixels_left + weight_right * pixels_right) / total

figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), width_ratios=(1, 1, 1.6))
for axis, picture, title in zip(
    axes,
    (left, right, panorama),
    ("left", "right", f"together, by {len(pair)} matches"),
    strict=True,
):
    axis.imshow(np.clip(picture, 0, 255).astype(np.uint8))
    axis.set_title(title)
    axis.axis("off")
plt.tight_layout()
