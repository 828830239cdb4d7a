"""
Find images of the same scene
=============================

With thousands of images it is too slow to match all pairs. Instead, match each image only with
the most similar ones. ``caloric collection run FOLDER -o OUT --pairs retrieval`` does this for
files; this example shows the steps for arrays. Each image is represented by a VLAD vector: the
sums of the residuals of its descriptors from the centers of a codebook.
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
similarity = vectors @ vectors.T

# %%
# Images 0 to 2 show the first scene, 3 to 5 the second, and so on. For each image, find the two
# most similar others:

np.fill_diagonal(similarity, -1)
nearest = np.argsort(-similarity, axis=1)[:, :2]
is_correct = nearest // 3 == np.arange(12)[:, None] // 3
print("correct:", int(is_correct.sum()), "of", nearest.size)

figure, (left, *others) = plt.subplots(1, 5, figsize=(12, 3.2), width_ratios=(1.8, 1, 1, 1, 1))
np.fill_diagonal(similarity, np.nan)
heatmap = left.imshow(similarity, cmap="magma")
figure.colorbar(heatmap)
left.set_xticks([])
left.set_yticks([1, 4, 7, 10], ["cat", "coffee", "rocket", "astronaut"])
left.set_title("similarity of 12 images")
for axis, index, title in zip(
    others, (4, *nearest[4], 0), ("query", "most similar", "second", "another scene"), strict=True
):
    axis.imshow(images[index])
    axis.set_title(title)
    axis.axis("off")
plt.tight_layout()
