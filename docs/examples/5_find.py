"""
Find out which template is in an image
======================================

``find_template`` searches an image for several templates and aligns the best of them.
"""

import cv2
import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric

scene = data.rocket()
templates = {
    "coffee": data.coffee()[100:220, 150:290],
    "rocket": cv2.resize(
        scene[60:260, 270:370], None, fx=0.8, fy=0.8, interpolation=cv2.INTER_AREA
    ),
    "cat": data.chelsea()[60:180, 120:260],
}
result = caloric.find_template(scene, list(templates.values()))
name = list(templates)[result.template]
print(name, result.alignment)

truth = np.array([[1.25, 0, 270.125], [0, 1.25, 60.125]])  # crop offset and scale of the template
error = np.abs(result.alignment.transform - truth)[:, 2].max()
print("error of the translation:", error.round(2), "pixels")
assert error < 1

# %%

figure, axes = plt.subplots(1, 4, figsize=(12, 3.6), width_ratios=(1, 1, 1, 2.2))
for axis, (label, template), score in zip(axes, templates.items(), result.scores, strict=False):
    axis.imshow(template)
    axis.set_title(f"{label}: score {score:.2f}")
    axis.axis("off")
h, w = templates[name].shape[:2]
corners = np.array([[0, 0], [w, 0], [w, h], [0, h], [0, 0]])
outline = corners @ result.alignment.transform[:, :2].T + result.alignment.transform[:, 2]
axes[-1].imshow(scene)
axes[-1].plot(*outline.T, color="tab:green", linewidth=3)
axes[-1].set_title(f"{name}, confidence {result.alignment.confidence:.2f}")
axes[-1].axis("off")
plt.tight_layout()
