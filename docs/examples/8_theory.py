"""
The theory in three plots
=========================

The theory treats matching as the minimization of an energy, which has many local minima.
Diffusion removes them. A descriptor is the diffused gradient-orientation density of a patch.
"""

import cv2
import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric
from caloric.descriptor import recipes
from caloric.paper import figures
from caloric.theory import toy

# %%
# Continuation (Algorithm 1 of the paper): an energy of two parameters at four widths of
# diffusion, and the path of its minimum. The widest diffusion leaves a single minimum. Following
# it leads to the global minimum of the original energy.

figures.diffused_landscapes("landscapes.png", toy.solve())

# %%
# Kernels: the weight that a descriptor entry gives to the gradients of the patch. SIFT's kernel
# has the same width everywhere. The exact kernels for similarities and for affine maps (*heat*)
# are wider far from the center, because a rotation or a change of scale moves distant points
# farther.

figure, axes = plt.subplots(2, 4, figsize=(10, 5))
along = np.linspace(-1, 1, 121)
y = np.stack(np.meshgrid(along, along), -1).reshape(-1, 2)
for row, x in zip(axes, ((0.15, 0.05), (0.6, -0.35)), strict=True):
    for axis, name in zip(row, ("sift", "dsp-inner", "similarity", "heat"), strict=True):
        kernel = recipes.descriptor(name).kernel
        angles = 0.6 + np.linspace(-1.5, 1.5, 41)
        weight = np.max([kernel.evaluate(np.array(0.6), np.array(x), phi, y) for phi in angles], 0)
        axis.imshow(weight.reshape(121, 121), cmap="inferno", extent=(-1, 1, 1, -1))
        axis.plot(*x, "+", color="white")
        axis.set_title(
            f"{name}, {'near the center' if x[0] < 0.5 else 'near the border'}", fontsize=9
        )
        axis.axis("off")
plt.tight_layout()

# %%
# Response maps: :math:`h(\beta, x)` at all positions :math:`x` of a patch, for four directions
# :math:`\beta`. The patch shows the eye of a cat.

eye = cv2.cvtColor(data.chelsea()[83:147, 158:222], cv2.COLOR_RGB2GRAY)
patch = cv2.resize(eye, (18, 18), interpolation=cv2.INTER_AREA)
figure, axes = plt.subplots(2, 5, figsize=(11, 5.2))
for row, name in zip(axes, ("sift", "heat"), strict=True):
    maps = caloric.response_map(patch, name, beta=np.arange(4) * np.pi / 2)
    row[0].imshow(eye, cmap="gray")
    row[0].set_title(f"patch, {name}")
    for axis, response, arrow in zip(row[1:], maps, "→↓←↑", strict=True):
        axis.imshow(response, cmap="inferno")
        axis.set_title(arrow)
for axis in axes.ravel():
    axis.axis("off")
plt.tight_layout()
