"""Features of simulated views on a device."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.gpu import graphs, pipeline, upload
from torch_device import HERE, out_of_memory

SIZE = (300, 400)


@pytest.mark.slow
def test_features_of_views_agree_with_the_cpu():
    image = photographs.gray("brick", SIZE[::-1])
    cpu = caloric.extract(image, views=2, max_features=400)
    device = caloric.extract(image, views=2, max_features=400, device=HERE)
    assert device.views == 2
    assert abs(len(cpu) - len(device)) <= 0.01 * len(cpu)
    expected = cpu.frames.maps.reshape(-1, 6)
    errors = np.array([np.abs(expected - m.ravel()).max(1).min() for m in device.frames.maps])
    assert (errors < 0.01).mean() > 0.98
    mask = np.zeros(SIZE, bool)
    mask[100:] = True
    masked = caloric.extract(image, views=2, max_features=400, mask=mask, device=HERE)
    assert len(masked) > 100
    assert masked.frames.xy[:, 1].min() > 99


@pytest.mark.parametrize("size", [(1, 1), (1, 9), (3, 3)])
def test_tiny_images_have_no_features(size):
    features = caloric.extract(np.zeros(size, np.uint8), views=2, device=HERE)
    assert features.descriptors.shape == (0, 128)
    assert features.image_size == size


def test_out_of_memory_falls_back_to_the_cpu(monkeypatch, caplog):
    image = photographs.gray("brick", (90, 80))
    expected = caloric.extract(image, views=2, max_features=50)
    graphs.clear()  # recorded graphs would not call the function
    for module, name, what in (
        (pipeline, "extract", {"an image of 90 x 80", "views with tilt 2 of an image of 90 x 80"}),
        (upload, "on_device", {"an image of 90 x 80"}),
    ):
        caplog.clear()
        with monkeypatch.context() as patched:
            patched.setattr(module, name, out_of_memory)
            features = caloric.extract(image, views=2, max_features=50, device=HERE)
        np.testing.assert_array_equal(features.descriptors, expected.descriptors)
        assert set(caplog.messages) == {f"{w}: out of device memory; using the CPU" for w in what}


def test_views_are_tried_again_without_recorded_graphs(monkeypatch, caplog):
    image = photographs.gray("brick", (90, 80))
    graphs.clear()
    expected = caloric.extract(image, views=2, max_features=50, device=HERE)
    graphs.clear()
    extract, clear, calls, cleared = pipeline.extract, graphs.clear, [], []

    def full_once(*args):
        calls.append(args)
        return out_of_memory() if len(calls) == 1 else extract(*args)

    monkeypatch.setattr(pipeline, "extract", full_once)
    monkeypatch.setattr(graphs, "clear", lambda: cleared.append(clear()))
    features = caloric.extract(image, views=2, max_features=50, device=HERE)
    np.testing.assert_allclose(features.descriptors, expected.descriptors, atol=1e-6)
    assert len(calls) == 3
    assert len(cleared) == 1
    assert caplog.text == ""
