"""The Triton kernel for densities agrees with PyTorch."""

import numpy as np
import pytest
import torch

from caloric.descriptor.recipes import descriptor
from caloric.gpu import density
from caloric.gpu.pyramid import FrameBlock, Measurement, pyramid


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("name", "power"),
    [("caloric", 0.7), ("caloric", 0.5), ("heat", 1.0), ("distribution-field", 1.0)],
)
def test_densities_agree_with_pytorch(kernels, gpu_rows, name, power, kind):
    layout, recipe = pyramid(200, 231), descriptor(name)
    rng = np.random.default_rng(0)
    maps = np.zeros((60, 2, 3))
    maps[:, :, :2] = rng.normal(0, 0.4, (60, 2, 2)) + 2 * np.eye(2)
    maps[:, 0, 2], maps[:, 1, 2] = rng.uniform(-5, 236, 60), rng.uniform(-5, 205, 60)
    frames = torch.tensor(maps, device=gpu_rows.device)
    measurement = Measurement(recipe.sampling, recipe.kernel, power, 6)
    arguments = (gpu_rows, layout, frames, FrameBlock(0, 20), measurement)
    expected = density.measure(*arguments, torch.float32)
    actual = kernels.harmonics(*arguments, kind).float()
    error = float((actual - expected).norm() / expected.norm())
    assert error < (1e-4 if kind == torch.float32 else 2e-3)
