"""The Triton kernels for gradients agree with the filters of the host."""

import numpy as np
import pytest
import torch

from caloric.matching import refinement_steps as steps


@pytest.fixture(scope="module")
def module(kernels):
    return pytest.importorskip("caloric.gpu.gradient_kernels")


@pytest.mark.parametrize("blur", range(len(steps.BLURS)))
def test_gradients_and_their_adjoints_agree_with_the_host(module, gpu_images, blur):
    rng = np.random.default_rng(0)
    samples = steps.SIDE**2
    patches = rng.standard_normal((70, samples)).astype(np.float32)
    weights = rng.standard_normal((70, 2, 2 * samples)).astype(np.float32)
    expected, actual = steps.filters(steps.BLURS[blur]), module.filters(gpu_images.device)[blur]
    to = gpu_images.device
    gradients = actual.apply(torch.tensor(patches, device=to)).cpu().numpy()
    np.testing.assert_allclose(gradients, expected.apply(patches), atol=1e-6)
    pixels = actual.adjoint(torch.tensor(weights, device=to)).cpu().numpy()
    np.testing.assert_allclose(pixels, expected.adjoint(weights), atol=2e-6)
