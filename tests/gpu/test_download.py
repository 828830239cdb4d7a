import numpy as np
import pytest

import caloric
from caloric.interop import torch as interop
from torch_device import HERE, photograph


def test_features_on_a_device_are_the_same_and_match():
    both = [photograph(size=(150, 160)), photograph("coffee", (150, 160))]
    here = caloric.extract(both, max_features=80, device=HERE)
    stay = caloric.extract([*both, np.zeros((0, 5))], max_features=80, device=HERE, on_device=True)
    assert isinstance(stay[0], interop.DeviceFeatures)
    assert [len(s) for s in stay] == [*map(len, here), 0]
    for own, other in zip(here, stay, strict=False):
        copied = other.to_host()
        np.testing.assert_array_equal(own.frames.maps, copied.frames.maps)
        np.testing.assert_allclose(own.descriptors, copied.descriptors, atol=1e-6)
        assert (copied.image_size, copied.recipe) == (own.image_size, own.recipe)
    pairs = [(stay[0], stay[1]), (stay[1], stay[1])]
    for device in ("cpu", HERE):
        for (a, b), matches in zip(
            [(0, 1), (1, 1)], caloric.match(pairs, device=device), strict=True
        ):
            np.testing.assert_array_equal(matches.indices, caloric.match(here[a], here[b]).indices)
    for wrong in ({"device": "cpu"}, {"device": HERE, "views": 2}):
        with pytest.raises(caloric.InputError, match="on_device"):
            caloric.extract(both, on_device=True, **wrong)
