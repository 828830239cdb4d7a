"""Extraction on a device agrees with the CPU."""

import numpy as np
import pytest

import caloric
from caloric.runtime import native
from tools.gpu.agreement import compared
from torch_device import HERE, photograph


@pytest.mark.parametrize("name", ["astronaut", "coffee"])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"upright": True}])
def test_extract_is_that_of_the_cpu(name, options):
    image = photograph(name)
    here = caloric.extract(image, max_features=400, **options)
    there = caloric.extract(image, max_features=400, device=HERE, **options)
    assert len(there) == pytest.approx(len(here), abs=1)
    assert (here.descriptor, here.recipe) == (there.descriptor, there.recipe)
    for a, b in ((here, there), (there, here)):
        common, cosines = compared(a, b)
        assert common >= 0.99
        assert len(cosines) > 0.98 * len(a)
        if native.core() is not None:  # OpenCV rounds places to 1/32 of a pixel
            assert cosines.min() >= 0.9999
        assert np.mean(cosines >= 0.9999) > 0.99
    assert (np.diff(there.scores) <= 0).all()


def test_all_features_are_those_of_the_cpu():
    image = photograph("camera", (150, 170))
    here, there = caloric.extract(image), caloric.extract(image, device=HERE)
    assert len(here) == pytest.approx(len(there), abs=1)
    assert compared(here, there)[0] >= 0.99


def test_a_mask_types_and_domain_sizes_on_a_device():
    image = photograph("coffee")
    mask = np.zeros(image.shape, bool)
    mask[:, 120:] = True
    options = {"max_features": 150, "mask": mask, "domain_sizes": 4, "dtype": "uint8"}
    here = caloric.extract(image, "sift", **options)
    there = caloric.extract(image, "sift", device=HERE, **options)
    assert there.descriptors.dtype == np.uint8
    assert (there.frames.xy[:, 0] > 119).all()
    assert compared(here, there)[0] >= 0.99
    own = np.array(
        [np.abs(here.descriptors.astype(int) - d).sum(1).min() for d in there.descriptors]
    )
    assert np.mean(own <= 8) > 0.98


def test_triton_kernels_extract_the_features_of_the_cpu(gpu_images):
    image = gpu_images[0].cpu().numpy()
    for options in ({}, {"max_features": 100}, {"affine": True, "max_features": 100}):
        expected = caloric.extract(image, **options)
        found = caloric.extract(image, device="cuda", **options)
        common, cosines = compared(expected, found)
        assert common >= 0.99
        assert cosines.min() >= 0.9999
