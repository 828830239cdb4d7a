"""
Align one image with another
============================

``align`` needs no features. It compares the template with the whole image at a wide diffusion,
where the energy has few minima, and follows the best of them while the diffusion shrinks to
nothing. That is Algorithm 1 of the theory.
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

found = caloric.align(template, image)
print(found)
print("largest error of an entry:", np.abs(found.transform - truth).max().round(4))

# %%
# Its steps in the image, the template on the middle of the image for comparison ("before"), and the
# energy at each :math:`\sigma`:

start = np.array([[1.0, 0, 126], [0, 1, 146]])
steps = [(step.sigma, step.point, step.cost) for step in found.path]
viz.draw_alignment(template, image, start, steps, f"confidence {found.confidence:.2f}").save(
    "path.png"
)

# %%
# An alignment that is not believed says so. The same template is not in another photograph:

print(caloric.align(template, data.coffee()))
