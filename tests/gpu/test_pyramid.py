"""The memory layout of the scale spaces of a batch."""

import numpy as np
import pytest

from caloric.gpu.pyramid import LAYERS, pyramid
from caloric.image import scalespace
from torch_device import photograph


@pytest.mark.parametrize("size", [(61, 90), (9, 200), (3, 5), (1, 1)])
def test_octaves_and_levels_agree_with_the_cpu(size):
    layout = pyramid(*size)
    space = scalespace.build(np.asarray(photograph(size=size[::-1]), np.float32) / 255)
    assert len(layout.octaves) == len(space.octaves)
    for octave, expected in zip(layout.octaves, space.octaves, strict=True):
        assert (LAYERS, octave.height, octave.width) == expected.pixels.shape
        assert (octave.step, octave.origin) == (expected.step, expected.origin)
    ladder = space.ladder()
    assert [o.step for _, o in layout.levels] == [level.step for level in ladder.levels]


def test_octaves_are_contiguous():
    layout = pyramid(61, 90)
    assert len(layout.octaves) > 2
    end = 0
    for octave in layout.octaves:
        assert octave.offset == end
        end += octave.count
    assert layout.total == end
    offsets = [offset for offset, _ in layout.levels]
    assert offsets == sorted(set(offsets))
    last, octave = layout.levels[-1]
    assert last + octave.height * octave.width == end
