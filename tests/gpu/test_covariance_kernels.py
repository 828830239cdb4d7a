"""The Triton kernels for covariances agree with PyTorch."""

import numpy as np
import torch

from caloric.gpu import descent, refinement
from matched_views import frames_of, matched_views


def test_covariances_agree_with_pytorch(kernels, gpu_images):
    """Also at coarser octaves, where the noise of neighboring samples is less correlated."""
    device, pair = gpu_images.device, matched_views()
    a, b = frames_of(pair)
    octaves = tuple(descent.prepared(v.astype(np.float32) / 255, device) for v in pair[:2])
    for scale in (0.7, 1.0, 3.0):
        frames = [torch.tensor(v, device=device) for v in (a, b)]
        for maps in frames:
            maps[:, :, :2] *= scale
        expected, actual = (f(octaves, *frames) for f in (refinement.refined, kernels.refined))
        good = (expected[:, 15] > 0) & (expected[:, 15] < 0.3)
        assert good.sum() > 50
        for columns in (slice(6, 10), slice(10, 14)):
            one, other = expected[good, columns], actual[good, columns]
            error = (one - other).abs().amax(1) / one.abs().amax(1)
            assert float(error.quantile(0.95)) < 1e-3
