"""Scenes on a device: alignments, energies and their statistics are those of the CPU."""

import itertools
import logging

import numpy as np
import pytest
import torch

import caloric
from caloric.alignment import scenes, scenes_on_device
from caloric.descriptor import fields
from torch_device import DEVICE, HERE, out_of_memory, photograph


def test_alignments_are_those_of_the_cpu():
    image = photograph(size=(200, 220))
    template = image[60:130, 40:120]
    here, there = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert there.converged
    np.testing.assert_allclose(here.transform, there.transform, atol=1e-6)
    found = caloric.find_template(image, [photograph("coffee")[:80, :80], template], device=HERE)
    assert found.template == 1
    with pytest.raises(caloric.InputError, match="unknown device"):
        caloric.align(template, image, device="tpu")


@pytest.mark.parametrize("name", sorted(fields.FEATURES))
@pytest.mark.parametrize("inside", [True, False])
def test_registrations_are_those_of_the_cpu(name, inside):
    """Energy, normal equations, agreement and noise at the last sigmas, also beyond the image."""
    feature = fields.feature(name)
    image = photograph(size=(400, 430)).astype(np.float32) / 255
    template = np.ascontiguousarray(image[90:310, 80:330])
    transform = np.array([[1.1, 0.05, 60.0], [-0.05, 1.07, 90.0 if inside else 260.0]])
    here = scenes.fine_scene(template, image, feature)
    there = scenes_on_device.scene(template, image, feature, DEVICE)
    for sigma, model in itertools.product((1.4, 0.0), ("translation", "similarity", "affine")):
        levels = [scene.level(sigma, model, fine=True) for scene in (here, there)]
        values = [s.evaluate(v, transform) for s, v in zip((here, there), levels, strict=True)]
        a, b = (
            (
                *value.normal_equations(), value.energy, int(value.inside.sum()), level.power,
                scene.cosines(value, 12.0), scene.noise(value),
            )
            for scene, level, value in zip((here, there), levels, values, strict=True)
        )  # fmt: skip
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-4, atol=1e-4 * max(np.abs(one).max(), 0.1)
            )
    assert bool(values[0].inside.all()) == inside


def test_large_templates_descend_on_the_device(monkeypatch, caplog):
    image = photograph(size=(480, 512))
    template = image[60:380, 40:400]
    here, there = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert there.converged
    np.testing.assert_allclose(here.transform, there.transform, atol=1e-3)
    np.testing.assert_allclose(here.covariance, there.covariance, rtol=1e-2, atol=1e-9)
    monkeypatch.setattr(torch.nn.functional, "grid_sample", out_of_memory)
    with caplog.at_level(logging.WARNING):
        again = caloric.align(template, image, device=HERE)
    np.testing.assert_allclose(here.transform, again.transform, atol=1e-6)
    assert "registration of 320 x 360 pixels" in caplog.text
