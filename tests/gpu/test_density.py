import numpy as np
import pytest

import caloric
from caloric.descriptor import density
from caloric.descriptor.recipes import descriptor
from caloric.runtime import native
from torch_device import HERE, photograph


@pytest.mark.parametrize("name", ["caloric", "heat", "sift", "dsp-inner", "distribution-field"])
def test_descriptors_agree_with_the_cpu(name):
    image = photograph()
    frames = caloric.detect(image, max_features=80)
    cpu = caloric.describe(image, frames, name)
    device = caloric.describe(image, frames, name, device=HERE)
    cosines = (cpu * device).sum(1) / np.linalg.norm(cpu, axis=1) / np.linalg.norm(device, axis=1)
    assert cosines.min() >= 0.9999


def test_points_at_the_border_are_treated_as_on_the_cpu():
    """Each frame is far from the origin and has a point 5e-6 pixels inside or outside the image."""
    rng = np.random.default_rng(0)
    image = rng.random((60, 1500), np.float32)
    offsets = density.in_sigmas(descriptor("caloric").sampling).offsets[1].astype(float)
    offsets = offsets[(offsets > 2) & (offsets < 20)]
    sigma = 1.3
    for margin in (5e-6, -5e-6):
        y = 59.5 - sigma * offsets - margin
        x = rng.uniform(1000, 1400, len(y))
        maps = np.zeros((len(y), 2, 3))
        maps[:, 0, 0] = maps[:, 1, 1] = sigma
        maps[:, 0, 2], maps[:, 1, 2] = x, y
        frames = caloric.Frames(maps, np.ones(len(maps), np.float32))
        cpu = caloric.describe(image, frames)
        device = caloric.describe(image, frames, device=HERE)
        assert (cpu * device).sum(1).min() > (1 - 1e-5 if native.core() is not None else 0.9995)
