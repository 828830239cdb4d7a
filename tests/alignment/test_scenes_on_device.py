"""Scenes on a device give the alignments, energies and statistics of the CPU."""

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
    cpu, device = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert device.converged
    np.testing.assert_allclose(cpu.transform, device.transform, atol=1e-6)
    match = caloric.find_template(image, [photograph("coffee")[:80, :80], template], device=HERE)
    assert match.template == 1
    with pytest.raises(caloric.InputError, match="unknown device"):
        caloric.align(template, image, device="tpu")


@pytest.mark.parametrize("name", sorted(fields.FEATURES))
@pytest.mark.parametrize("inside", [True, False])
def test_registrations_are_those_of_the_cpu(name, inside):
    """Energy, normal equations, agreement and noise at the fine σ, inside and outside the image."""
    feature = fields.feature(name)
    image = photograph(size=(240, 260)).astype(np.float32) / 255
    template = np.ascontiguousarray(image[54:186, 48:198])
    transform = np.array([[1.1, 0.05, 36.0], [-0.05, 1.07, 54.0 if inside else 156.0]])
    cpu = scenes.fine_scene(template, image, feature)
    device = scenes_on_device.scene(template, image, feature, DEVICE)
    for sigma, model in itertools.product((1.4, 0.0), ("translation", "similarity", "affine")):
        levels = [scene.level(sigma, model, fine=True) for scene in (cpu, device)]
        values = [s.evaluate(v, transform) for s, v in zip((cpu, device), levels, strict=True)]
        a, b = (
            (
                *value.normal_equations(), value.energy, int(value.inside.sum()), level.power,
                scene.cosines(value, 12.0), scene.noise(value),
            )
            for scene, level, value in zip((cpu, device), levels, values, strict=True)
        )  # fmt: skip
        for one, other in zip(a, b, strict=True):
            np.testing.assert_allclose(
                one, other, rtol=1e-4, atol=1e-4 * max(np.abs(one).max(), 0.1)
            )
    assert bool(values[0].inside.all()) == inside


def test_large_templates_are_registered_on_the_device(monkeypatch, caplog):
    image = photograph(size=(480, 512))
    template = image[60:380, 40:400]
    cpu, device = (caloric.align(template, image, device=d) for d in ("cpu", HERE))
    assert device.converged
    np.testing.assert_allclose(cpu.transform, device.transform, atol=1e-3)
    np.testing.assert_allclose(cpu.covariance, device.covariance, rtol=1e-2, atol=1e-9)
    monkeypatch.setattr(torch.nn.functional, "grid_sample", out_of_memory)
    with caplog.at_level(logging.WARNING):
        again = caloric.align(template, image, device=HERE)
    np.testing.assert_allclose(cpu.transform, again.transform, atol=1e-6)
    assert "registration of 320 x 360 pixels" in caplog.text
