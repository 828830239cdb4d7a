from itertools import product

import numpy as np
import pytest

import caloric
from caloric.interop import torch as interop
from torch_device import HERE, photograph


def test_features_that_stay_on_a_device_are_the_same_and_match():
    images = [photograph(size=(150, 160)), photograph("coffee", (150, 160))]
    downloaded = caloric.extract(images, max_features=80, device=HERE)
    staying = caloric.extract(
        [*images, np.zeros((0, 5))], max_features=80, device=HERE, on_device=True
    )
    assert isinstance(staying[0], interop.DeviceFeatures)
    assert [len(s) for s in staying] == [*map(len, downloaded), 0]
    for expected, on_device in zip(downloaded, staying, strict=False):
        copied = on_device.to_host()
        np.testing.assert_array_equal(expected.frames.maps, copied.frames.maps)
        np.testing.assert_allclose(expected.descriptors, copied.descriptors, atol=1e-6)
        assert (copied.image_size, copied.recipe) == (expected.image_size, expected.recipe)
    pairs = [(staying[0], staying[1]), (staying[1], staying[1])]
    for device, agreement in product(("cpu", HERE), (False, True)):
        results = caloric.match(pairs, device=device, agreement=agreement)
        for (a, b), matches in zip([(0, 1), (1, 1)], results, strict=True):
            expected = caloric.match(downloaded[a], downloaded[b], agreement=agreement)
            np.testing.assert_array_equal(matches.indices, expected.indices)
    matches = caloric.match(*pairs[0], device=HERE)
    geometries = [caloric.verify(*both[:2], matches) for both in (staying, downloaded)]
    np.testing.assert_array_equal(geometries[0].residuals, geometries[1].residuals)
    for invalid in ({"device": "cpu"}, {"device": HERE, "views": 2}):
        with pytest.raises(caloric.InputError, match="on_device"):
            caloric.extract(images, on_device=True, **invalid)
