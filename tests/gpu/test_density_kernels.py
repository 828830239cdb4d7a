"""Densities around frames by Triton kernels, compared with PyTorch."""

import numpy as np
import pytest
import torch

from caloric.descriptor.recipes import descriptor
from caloric.gpu import density
from caloric.gpu.pyramid import Measurement, Owners, pyramid


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("name", "power"),
    [("caloric", 0.7), ("caloric", 0.5), ("heat", 1.0), ("distribution-field", 1.0)],
)
def test_densities_are_those_of_pytorch(kernels, gpu_rows, name, power, kind):
    layout, recipe = pyramid(200, 231), descriptor(name)
    rng = np.random.default_rng(0)
    maps = np.zeros((60, 2, 3))
    maps[:, :, :2] = rng.normal(0, 0.4, (60, 2, 2)) + 2 * np.eye(2)
    maps[:, 0, 2], maps[:, 1, 2] = rng.uniform(-5, 236, 60), rng.uniform(-5, 205, 60)
    frames = torch.tensor(maps, device=gpu_rows.device)
    what = Measurement(recipe.sampling, recipe.kernel, power, 6)
    arguments = (gpu_rows, layout, frames, Owners(0, 20), what)
    plain = density.measured(*arguments, torch.float32)
    found = kernels.harmonics(*arguments, kind).float()
    assert float((found - plain).norm() / plain.norm()) < (1e-4 if kind == torch.float32 else 2e-3)
