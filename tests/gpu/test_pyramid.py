"""The layout of the scale spaces of a batch."""

import numpy as np
import pytest

from caloric.gpu.pyramid import LAYERS, pyramid
from caloric.image import scalespace
from torch_device import photograph


@pytest.mark.parametrize("size", [(61, 90), (9, 200), (3, 5), (1, 1)])
def test_octaves_and_levels_are_those_of_the_cpu(size):
    plan = pyramid(*size)
    space = scalespace.build(np.asarray(photograph(size=size[::-1]), np.float32) / 255)
    assert len(plan.octaves) == len(space.octaves)
    for octave, expected in zip(plan.octaves, space.octaves, strict=True):
        assert (LAYERS, octave.height, octave.width) == expected.pixels.shape
        assert (octave.step, octave.origin) == (expected.step, expected.origin)
    ladder = space.ladder()
    assert [o.step for _, o in plan.levels] == [level.step for level in ladder.levels]


def test_octaves_follow_each_other_without_gaps():
    plan = pyramid(61, 90)
    assert len(plan.octaves) > 2
    end = 0
    for octave in plan.octaves:
        assert octave.offset == end
        end += octave.count
    assert plan.total == end
    offsets = [offset for offset, _ in plan.levels]
    assert offsets == sorted(set(offsets))
    last, octave = plan.levels[-1]
    assert last + octave.height * octave.width == end
