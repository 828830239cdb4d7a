"""The extractors that ``caloric bench pairs`` compares."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.bench import contenders
from caloric.interop import hdf5


@pytest.mark.parametrize("make", [contenders.opencv, lambda n: contenders.ours("caloric", n)])
def test_the_number_of_features_is_limited_and_flat_images_have_none(make):
    contender = make(100)
    extracted = contender.extract(photographs.gray("camera", (200, 200)), "")
    assert 50 < len(extracted.frames) <= 101  # OpenCV keeps both orientations of the last one
    assert extracted.descriptors.shape == (len(extracted.frames), 128)
    empty = contender.extract(np.full((64, 64), 90, np.uint8), "")
    assert len(empty.frames) == len(empty.descriptors) == 0


def test_features_are_read_from_a_file_strongest_first(tmp_path):
    features = caloric.extract(photographs.gray("camera", (200, 200)), max_features=80)
    hdf5.write(tmp_path / "peer.h5", {"a.png": features}.items())
    contender = contenders.from_file(tmp_path / "peer.h5")
    assert contender.name == "peer"
    extracted = contender.extract(None, "a.png")
    assert len(extracted.frames) == len(features)
    assert (np.diff(extracted.frames.scores) <= 0).all()
    with pytest.raises(caloric.InputError, match=r"no image 'b\.png'"):
        contender.extract(None, "b.png")
