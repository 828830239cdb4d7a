"""The Triton kernels for refinement agree with PyTorch."""

import numpy as np
import torch

from caloric.gpu import descent, refinement
from matched_views import frames_of, matched_views


def test_outcomes_agree_with_pytorch(kernels, gpu_images):
    device, pair = gpu_images.device, matched_views()
    a, b = (maps.copy() for maps in frames_of(pair))
    b[::9, :, 2] += 300  # outside the image
    a[::11, :, :2] *= 8  # from a coarser octave
    octaves = tuple(descent.prepared(v.astype(np.float32) / 255, device) for v in pair[:2])
    frames = [torch.tensor(v, device=device) for v in (a, b)]
    expected, actual = (f(octaves, *frames).cpu() for f in (refinement.refined, kernels.refined))
    # The cost of a flat patch is 1, the limit of what is plausible.
    plausible, also = ((v[:, 15] > 0) & (v[:, 15] < 0.9) for v in (expected, actual))
    assert (plausible == also).double().mean() > 0.99
    plausible &= also
    assert plausible.sum() > 200
    error = (actual - expected)[plausible].abs()
    assert float(error[:, :6].quantile(0.98)) < 1e-3
    relative = error[:, 6:] / expected[plausible, 6:].abs().amax(1, keepdim=True)
    assert float(relative.quantile(0.98)) < 1e-3
