"""
Which photographs show the same?
================================

In a folder of thousands not every pair is matched: the images most similar to each are found
first. ``caloric collection run FOLDER -o OUT --pairs retrieval`` does that for files; here are its
steps for arrays. Each image has one vector, the sum of its descriptors about the centers of a
codebook.
"""

import matplotlib.pyplot as plt
import numpy as np
from skimage import data

import caloric
from caloric import synthetic
from caloric.collection import retrieval
from caloric.interop.conversion import unit_descriptors

rng = np.random.default_rng(0)
images = []
for photograph in (data.chelsea(), data.coffee(), data.rocket(), data.astronaut()):
    h, w = photograph.shape[:2]
    for _ in range(3):
        degrees, scale = rng.uniform(-40, 40), rng.uniform(0.7, 1.4)
        motion = synthetic.similarity(scale, -degrees, (0, 0), (w / 2, h / 2))
        images.append(synthetic.warp(photograph, motion))

features = caloric.extract(images, max_features=800)
codebook = retrieval.learn(lambda: iter(features), len(features))
vectors = np.stack([retrieval.vlad(unit_descriptors(f), codebook.centers) for f in features])
similar = vectors @ vectors.T

# %%
# Photographs of the same are in blocks of three. For each, the two most similar others:

np.fill_diagonal(similar, -1)
nearest = np.argsort(-similar, axis=1)[:, :2]
print("right:", int((nearest // 3 == np.arange(12)[:, None] // 3).sum()), "of", nearest.size)

figure, (left, *others) = plt.subplots(1, 5, figsize=(12, 2.9), width_ratios=(1.6, 1, 1, 1, 1))
np.fill_diagonal(similar, np.nan)
shown = left.imshow(similar, cmap="magma")
figure.colorbar(shown)
left.set_xticks([1, 4, 7, 10], ["cat", "coffee", "rocket", "face"], fontsize=8)
left.set_yticks([])
left.set_title("similarity of 12 images")
for axis, index, title in zip(
    others, (4, *nearest[4], 0), ("query", "first", "second", "another"), strict=True
):
    axis.imshow(images[index])
    axis.set_title(title)
    axis.axis("off")
plt.tight_layout()
