"""
Align a template with an image
==============================

``align`` does not use features. It minimizes an energy over the transform. At a wide diffusion
the energy has few minima; ``align`` finds the best of them and follows it while the diffusion
decreases to zero (Algorithm 1 of the paper).
"""

import cv2
import numpy as np
from skimage import data

import caloric
from caloric import viz

image = data.astronaut()
truth = np.array([[0.8, 0.25, 120.0], [-0.2, 0.9, 60.0]])
template = cv2.warpAffine(image, truth, (260, 220), flags=cv2.WARP_INVERSE_MAP | cv2.INTER_LINEAR)
template = (0.8 * template + 20).astype(np.uint8)

result = caloric.align(template, image)
print(result)
print("largest error of an entry:", np.abs(result.transform - truth).max().round(4))

# %%
# The figure shows the steps of the continuation in the image, the template at the center of the
# image for comparison ("before"), and the energy at each :math:`\sigma`:

start = np.array([[1.0, 0, 126], [0, 1, 146]])
steps = [(step.sigma, step.point, step.cost) for step in result.path]
viz.draw_alignment(template, image, start, steps, f"confidence {result.confidence:.2f}").save(
    "path.png"
)

# %%
# ``converged`` is False if the result is not reliable. Here the template is not in the image:

print(caloric.align(template, data.coffee()))
