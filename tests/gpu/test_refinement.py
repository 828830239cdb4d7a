"""The octaves of an image on a device are those of the CPU."""

import numpy as np

from caloric.gpu import descent, refinement
from caloric.matching import refinement as on_cpu
from torch_device import DEVICE, photograph


def test_octaves_agree_with_the_cpu():
    image = photograph(size=(301, 260)).astype(np.float32) / 255
    expected, actual = on_cpu.prepared(image), descent.prepared(image, DEVICE)
    np.testing.assert_array_equal(actual.image().cpu().numpy(), image)
    starts = [*actual.starts.tolist(), len(actual.pixels)]
    assert len(starts) == len(expected.levels) + 1
    for i, level in enumerate(expected.levels):
        flat = actual.pixels[starts[i] : starts[i + 1]].cpu().numpy()
        np.testing.assert_allclose(flat, level.reshape(-1), atol=1e-6)


def test_the_filter_of_the_octaves_preserves_the_mean():
    assert float(refinement.taps(DEVICE).sum()) == 1
