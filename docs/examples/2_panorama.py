"""
Stitch a panorama from two images
=================================

Two images of a scene overlap; the second one is rotated and brighter. The homography between them
maps both to a common canvas.
"""

import cv2
import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric

scene = data.coffee()
left = scene[:, :380]
change = np.array([[0.95, -0.09, -150.0], [0.10, 0.98, -20.0], [1.5e-4, -5e-5, 1.0]])
right = cv2.warpPerspective(scene, change, (400, 380), borderMode=cv2.BORDER_REFLECT)
right = np.clip(1.25 * right.astype(float), 0, 255).astype(np.uint8)

pair = caloric.match_images(left, right, model="homography")
print(pair)

# %%
# The homography maps the left image to the right image, so its inverse maps the right image to
# the canvas of the left. The exposure of the right image is corrected by the ratio of the
# brightness in the overlap. Each image is weighted by the distance from its border, which hides
# the seam.

size = (640, 420)
right_to_left = np.linalg.inv(pair.geometry.matrix)


def warp_to_canvas(image, matrix):
    """Return the warped image, and the weight of each of its pixels."""
    h, w = image.shape[:2]
    inside = np.zeros((h, w), np.float32)
    inside[1:-1, 1:-1] = 1
    weight = cv2.distanceTransform(inside.astype(np.uint8), cv2.DIST_L2, 5)
    warped = cv2.warpPerspective(image.astype(np.float32), matrix, size)
    return warped, cv2.warpPerspective(weight, matrix, size)[..., None]


pixels_left, weight_left = warp_to_canvas(left, np.eye(3))
pixels_right, weight_right = warp_to_canvas(right, right_to_left)
overlap = (weight_left > 5) & (weight_right > 5)
pixels_right *= (pixels_left * overlap).sum() / (pixels_right * overlap).sum()
total = np.maximum(weight_left + weight_right, 1e-6)
panorama = (weight_left * pixels_left + weight_right * pixels_right) / total

figure, axes = plt.subplots(1, 3, figsize=(12, 3.4), width_ratios=(1, 1, 1.6))
for axis, image, title in zip(
    axes,
    (left, right, panorama),
    ("left", "right", f"panorama from {len(pair)} matches"),
    strict=True,
):
    axis.imshow(np.clip(image, 0, 255).astype(np.uint8))
    axis.set_title(title)
    axis.axis("off")
plt.tight_layout()
