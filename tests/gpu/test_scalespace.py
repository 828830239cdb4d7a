import numpy as np
import pytest
import torch

from caloric.gpu import scalespace as gpu_scalespace
from caloric.gpu.pyramid import pyramid
from caloric.image import scalespace
from torch_device import photograph


@pytest.mark.parametrize("size", [(61, 90), (9, 200), (3, 5), (1, 1)])
def test_scale_spaces_agree_with_the_cpu(size):
    gray = np.asarray(photograph(size=size[::-1]), np.float32) / 255
    layout = pyramid(*size)
    rows = gpu_scalespace.build(torch.from_numpy(gray)[None], layout)
    space = scalespace.build(gray)
    for octave, expected in zip(layout.octaves, space.octaves, strict=True):
        actual = rows[0, octave.offset :][: octave.count].reshape(expected.pixels.shape).numpy()
        np.testing.assert_allclose(actual, expected.pixels, atol=1e-6)
