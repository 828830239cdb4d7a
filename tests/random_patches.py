"""Random patches, and the direct sum that their descriptors must equal."""

import numpy as np

from caloric.descriptor import density, pooling
from caloric.descriptor.sampling import SquarePatch


def smooth_patches(count=4, size=32, seed=0):
    """Random patches with structure at all scales, values in [0, 1]."""
    rng = np.random.default_rng(seed)
    frequency = np.hypot(*np.meshgrid(np.fft.fftfreq(size), np.fft.fftfreq(size)))
    spectrum = np.fft.fft2(rng.standard_normal((count, size, size))) / (frequency + 0.03) ** 1.5
    patches = np.fft.ifft2(spectrum).real
    low, high = patches.min((1, 2), keepdims=True), patches.max((1, 2), keepdims=True)
    return (patches - low) / (high - low)


def direct(patches, recipe):
    """The sum over pixels with the pointwise kernel, without a table."""
    bins, positions = recipe.layout.bins(recipe.kernel), recipe.layout.positions()
    points = SquarePatch(patches.shape[1]).points()
    return np.array(
        [
            pooling.direct_sum(
                recipe.kernel, bins, positions, density.measure(p[None], recipe.kernel), points
            ).ravel()
            for p in patches
        ]
    )


def relative(got, expected):
    return np.linalg.norm(got - expected, axis=1) / np.linalg.norm(expected, axis=1)
