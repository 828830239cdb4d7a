"""Features as LightGlue's tensors."""

import numpy as np
import pytest

from caloric.collection import exporting, store
from caloric.interop import conversion

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_tensors_follow_lightglues_conventions(matched):
    from caloric.interop import lightglue

    out, _ = matched
    _, features = next(exporting.images(out))
    tensors = lightglue.to_lightglue(features)
    np.testing.assert_allclose(tensors["keypoints"][0], features.frames.xy, atol=1e-4)
    np.testing.assert_allclose(tensors["scales"][0], features.frames.sigma, rtol=1e-6)
    np.testing.assert_allclose(tensors["oris"][0], features.frames.angle, atol=1e-6)  # radians
    np.testing.assert_allclose(np.linalg.norm(tensors["descriptors"][0], axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(tensors["descriptors"][0], conversion.unit_descriptors(features))
    assert tensors["image_size"][0].tolist() == [features.image_size[1], features.image_size[0]]
