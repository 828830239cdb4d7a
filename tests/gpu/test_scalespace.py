import numpy as np
import pytest
import torch

from caloric.gpu import scalespace as gpu_scalespace
from caloric.gpu.pyramid import pyramid
from caloric.image import scalespace
from torch_device import photograph


@pytest.mark.parametrize("size", [(61, 90), (9, 200), (3, 5), (1, 1)])
def test_pyramids_are_those_of_the_cpu(size):
    grey = np.asarray(photograph(size=size), np.float32) / 255
    plan = pyramid(*size)
    rows = gpu_scalespace.build(torch.from_numpy(grey)[None], plan)
    space = scalespace.build(grey)
    assert len(plan.octaves) == len(space.octaves)
    for octave, own in zip(plan.octaves, space.octaves, strict=True):
        found = rows[0, octave.offset :][: octave.count].reshape(own.pixels.shape).numpy()
        np.testing.assert_allclose(found, own.pixels, atol=1e-6)
        assert (octave.step, octave.origin) == (own.step, own.origin)
    ladder = space.ladder()
    assert [o.step for _, o in plan.levels] == [level.step for level in ladder.levels]
