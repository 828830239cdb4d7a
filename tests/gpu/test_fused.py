"""The kernels in Triton against their plain forms; where there is no GPU, nothing."""

import numpy as np
import pytest
import torch

import caloric
import photographs
from caloric.descriptor.recipes import descriptor
from caloric.gpu import backend, batches, density, extrema, graphs, scalespace
from caloric.gpu.pyramid import Measurement, Owners, pyramid
from caloric.options import ExtractOptions
from tools.gpu.agreement import compared

if not torch.cuda.is_available():
    pytest.skip("no GPU", allow_module_level=True)

DEVICE = torch.device("cuda", 0)
KERNELS = backend.of(DEVICE)
if not KERNELS.compiled:
    pytest.skip("no Triton", allow_module_level=True)


@pytest.fixture(scope="module")
def images():
    names = ("astronaut", "coffee", "camera")
    grey = [photographs.grey(name, (231, 200)).astype(np.float32) / 255 for name in names]
    return torch.from_numpy(np.stack(grey)).to(DEVICE)


@pytest.fixture(scope="module")
def rows(images):
    return scalespace.build(images, pyramid(200, 231))


def test_pyramids(images, rows):
    assert torch.equal(KERNELS.build(images, pyramid(200, 231)), rows)


def test_extrema(rows):
    layout, options = pyramid(200, 231), ExtractOptions(max_features=None)
    found, plain = (
        find(rows, layout, options.lowest, options.edge, 4096)
        for find in (KERNELS.find, extrema.find)
    )
    (places, strengths), (expected, known) = (extrema.strongest(f, 300) for f in (found, plain))
    assert torch.equal(strengths, known)
    assert (known > 0).sum() > 200
    there = known > 0
    torch.testing.assert_close(places[there], expected[there], rtol=1e-12, atol=1e-9)


@pytest.mark.parametrize("kind", [torch.float32, torch.float16])
@pytest.mark.parametrize(
    ("name", "power"),
    [("caloric", 0.7), ("caloric", 0.5), ("heat", 1.0), ("distribution-field", 1.0)],
)
def test_densities(rows, name, power, kind):
    layout, recipe = pyramid(200, 231), descriptor(name)
    rng = np.random.default_rng(0)
    maps = np.zeros((60, 2, 3))
    maps[:, :, :2] = rng.normal(0, 0.4, (60, 2, 2)) + 2 * np.eye(2)
    maps[:, 0, 2], maps[:, 1, 2] = rng.uniform(-5, 236, 60), rng.uniform(-5, 205, 60)
    frames = torch.tensor(maps, device=DEVICE)
    what = Measurement(recipe.sampling, recipe.kernel, power, 6)
    arguments = (rows, layout, frames, Owners(0, 20), what)
    plain = density.measured(*arguments, torch.float32)
    found = KERNELS.harmonics(*arguments, kind).float()
    assert float((found - plain).norm() / plain.norm()) < (1e-4 if kind == torch.float32 else 2e-3)


def test_the_whole_way_is_the_cpus(images):
    image = images[0].cpu().numpy()
    for options in ({}, {"max_features": 100}, {"affine": True, "max_features": 100}):
        here = caloric.extract(image, **options)
        there = caloric.extract(image, device="cuda", **options)
        common, cosines = compared(here, there)
        assert common >= 0.99
        assert cosines.min() >= 0.9999


def test_directions_beyond_the_room_are_looked_for_again():
    image = photographs.squares()
    for most in (None, 300, 5000):
        here = caloric.extract(image, max_features=most)
        assert len(caloric.extract(image, max_features=most, device="cuda")) == len(here)


def test_a_recording_survives_other_sizes(images):
    """Tables of 80 other sizes are made between the replays of one."""
    image = images[0].cpu().numpy()
    first = caloric.extract(image, max_features=100, device="cuda")
    for _ in range(3):
        caloric.extract(image, max_features=100, device="cuda")
    for i in range(80):
        caloric.extract(image[: 60 + i, :90], max_features=50, device="cuda")
    again = caloric.extract(image, max_features=100, device="cuda")
    np.testing.assert_array_equal(first.frames.maps, again.frames.maps)
    graphs.forget()


def test_an_image_too_large_to_number_goes_to_the_cpu(monkeypatch, images, caplog):
    monkeypatch.setattr(batches, "_ADDRESSABLE", 1000)
    image = images[0].cpu().numpy()
    found = caloric.extract(image, max_features=50, device="cuda")
    assert "on the CPU" in caplog.text
    expected = caloric.extract(image, max_features=50)
    np.testing.assert_array_equal(found.descriptors, expected.descriptors)
