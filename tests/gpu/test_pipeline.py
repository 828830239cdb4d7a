"""Extraction on a device agrees with the CPU."""

import numpy as np
import pytest

import caloric
from caloric.runtime import native
from tools.gpu.agreement import compared
from torch_device import HERE, photograph


@pytest.mark.parametrize("name", ["astronaut", "coffee"])
@pytest.mark.parametrize("options", [{}, {"affine": True}, {"upright": True}])
def test_features_agree_with_the_cpu(name, options):
    image = photograph(name)
    cpu = caloric.extract(image, max_features=400, **options)
    device = caloric.extract(image, max_features=400, device=HERE, **options)
    assert len(device) == pytest.approx(len(cpu), abs=1)
    assert (cpu.descriptor, cpu.recipe) == (device.descriptor, device.recipe)
    for a, b in ((cpu, device), (device, cpu)):
        common, cosines = compared(a, b)
        assert common >= 0.99
        assert len(cosines) > 0.98 * len(a)
        if native.core() is not None:  # OpenCV rounds coordinates to 1/32 of a pixel
            assert cosines.min() >= 0.9999
        assert np.mean(cosines >= 0.9999) > 0.99
    assert (np.diff(device.scores) <= 0).all()


def test_features_agree_with_the_cpu_without_max_features():
    image = photograph("camera", (150, 170))
    cpu, device = caloric.extract(image), caloric.extract(image, device=HERE)
    assert len(cpu) == pytest.approx(len(device), abs=1)
    assert compared(cpu, device)[0] >= 0.99


def test_mask_dtype_and_domain_sizes_have_the_same_effect_as_on_the_cpu():
    image = photograph("coffee")
    mask = np.zeros(image.shape, bool)
    mask[:, 120:] = True
    options = {"max_features": 150, "mask": mask, "domain_sizes": 4, "dtype": "uint8"}
    cpu = caloric.extract(image, "sift", **options)
    device = caloric.extract(image, "sift", device=HERE, **options)
    assert device.descriptors.dtype == np.uint8
    assert (device.frames.xy[:, 0] > 119).all()
    assert compared(cpu, device)[0] >= 0.99
    differences = np.array(
        [np.abs(cpu.descriptors.astype(int) - d).sum(1).min() for d in device.descriptors]
    )
    assert np.mean(differences <= 8) > 0.98


def test_features_of_triton_kernels_agree_with_the_cpu(gpu_images):
    image = gpu_images[0].cpu().numpy()
    for options in ({}, {"max_features": 100}, {"affine": True, "max_features": 100}):
        expected = caloric.extract(image, **options)
        features = caloric.extract(image, device="cuda", **options)
        common, cosines = compared(expected, features)
        assert common >= 0.99
        assert cosines.min() >= 0.9999
