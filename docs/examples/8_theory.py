"""
The theory in three figures
===========================

Matching is the minimization of an energy that has many local minima. Diffusion removes them, and
the descriptor is what remains to be stored: the density of gradients, diffused by a kernel.
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
# Continuation (Algorithm 1 of the paper): an energy over two parameters at four widths of
# diffusion, and the path of its minimum. The only minimum of the widest leads to the global one of
# the energy itself, past the local one.

figures.diffused_landscapes("landscapes.png", toy.solve())

# %%
# The kernels: which weight an entry of the descriptor gives to gradients around it. SIFT's weight
# is the same everywhere; the exact ones for similarities and for affine maps (*heat*) grow with the
# distance from the center, because there a rotation or a scaling moves more.

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
        axis.set_title(f"{name}, {'in the middle' if x[0] < 0.5 else 'far out'}", fontsize=9)
        axis.axis("off")
plt.tight_layout()

# %%
# The descriptor of a patch as a map for each direction of gradients: :math:`h(\beta, x)` at all
# places :math:`x` of a patch, here the eye of a cat, for four directions :math:`\beta`.

eye = cv2.cvtColor(data.chelsea()[83:147, 158:222], cv2.COLOR_RGB2GRAY)
patch = cv2.resize(eye, (18, 18), interpolation=cv2.INTER_AREA)
figure, axes = plt.subplots(2, 5, figsize=(11, 5.2))
for row, name in zip(axes, ("sift", "heat"), strict=True):
    maps = caloric.response_map(patch, name, beta=np.arange(4) * np.pi / 2)
    row[0].imshow(eye, cmap="gray")
    row[0].set_title(f"patch, {name}")
    for axis, found, arrow in zip(row[1:], maps, "→↓←↑", strict=True):
        axis.imshow(found, cmap="inferno")
        axis.set_title(arrow)
for axis in axes.ravel():
    axis.axis("off")
plt.tight_layout()
