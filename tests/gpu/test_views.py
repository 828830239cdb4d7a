"""Features of simulated views on a device."""

import numpy as np
import pytest

import caloric
import photographs
from torch_device import HERE

SIZE = (300, 400)


@pytest.mark.slow
def test_features_of_views_agree_with_the_cpu():
    image = photographs.gray("brick", SIZE[::-1])
    cpu = caloric.extract(image, views=2, max_features=400)
    device = caloric.extract(image, views=2, max_features=400, device=HERE)
    assert device.views == 2
    assert abs(len(cpu) - len(device)) <= 0.01 * len(cpu)
    expected = cpu.frames.maps.reshape(-1, 6)
    errors = np.array([np.abs(expected - m.ravel()).max(1).min() for m in device.frames.maps])
    assert (errors < 0.01).mean() > 0.98
    mask = np.zeros(SIZE, bool)
    mask[100:] = True
    masked = caloric.extract(image, views=2, max_features=400, mask=mask, device=HERE)
    assert len(masked) > 100
    assert masked.frames.xy[:, 1].min() > 99
