"""Dispatch of feature extraction to the CPU or a device."""

import inspect

import numpy as np
import pytest

import caloric
import photographs
from caloric.errors import Failure
from caloric.extraction import dispatch
from caloric.image import scalespace
from caloric.options import ExtractOptions

IMAGE = photographs.gray("camera", (160, 120))
OPTIONS = ExtractOptions(max_features=40)


def _depth(monkeypatch, module, name, work):
    """Return how many functions of the package are active at the first call of one of them."""
    inner, depths = getattr(module, name), []

    def counted(*args, **kwargs):
        frames = inspect.stack()
        modules = [frame.frame.f_globals.get("__name__", "") for frame in frames]
        functions = [
            frame.function
            for frame, module in zip(frames, modules, strict=True)
            # Decorators do not count.
            if module.startswith("caloric.") and frame.function not in ("checked", "limited")
        ]
        depths.append(len(functions) + 1)  # and the function itself
        return inner(*args, **kwargs)

    monkeypatch.setattr(module, name, counted)
    work()
    return depths[0]


def test_the_call_stack_of_extract_is_shallow(monkeypatch):
    """Six functions: extract, features, find, scale_spaces, build, octaves."""
    depth = _depth(monkeypatch, scalespace, "octaves", lambda: caloric.extract(IMAGE))
    assert depth <= 6


def test_the_call_stack_on_a_device_is_shallow(monkeypatch):
    """At most nine functions; with Triton, one of them launches the kernel."""
    from caloric.gpu import scalespace as on_device

    work = lambda: caloric.extract(IMAGE, max_features=40, device="torch:cpu")  # noqa: E731
    assert _depth(monkeypatch, on_device, "_layers", work) <= 9


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_many_images_have_the_same_features_as_each(device):
    images = [IMAGE, IMAGE[:100], IMAGE]
    masks = [None, np.ones((100, 160)), IMAGE > 100]
    each = [
        dispatch.begin(image, mask, OPTIONS, device).features()
        for image, mask in zip(images, masks, strict=True)
    ]
    together = caloric.extract_many(images, masks=masks, max_features=40, device=device)
    listed = caloric.extract(images, mask=masks, max_features=40, device=device)
    # In PyTorch the order of summation depends on the size of the batch.
    tolerance = 0 if device == "cpu" else 1e-5
    for one, other, third in zip(each, together, listed, strict=True):
        np.testing.assert_allclose(one.frames.maps, other.frames.maps, atol=tolerance)
        np.testing.assert_allclose(one.descriptors, other.descriptors, atol=tolerance)
        np.testing.assert_array_equal(other.descriptors, third.descriptors)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
@pytest.mark.parametrize("views", [None, 2])
def test_an_invalid_image_among_many_is_a_failure(device, views):
    options = ExtractOptions(max_features=40, views=views)
    bad = np.full((50, 60), np.nan)
    images = [(IMAGE, None), (bad, None), (Failure("a.png: broken"), None), (IMAGE, np.ones(3))]
    results = dict(dispatch.extract_each(images, options, device))
    assert len(results[0]) >= 40
    assert "NaN" in results[1].reason
    assert results[2] == Failure("a.png: broken")
    assert "mask" in results[3].reason


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_an_empty_image_has_no_features(device):
    for image in (np.zeros((0, 5)), np.zeros((7, 0, 3), np.uint8)):
        features = caloric.extract(image, "heat", device=device, dtype="uint8")
        assert features.descriptors.shape == (0, 128)
        assert features.descriptors.dtype == np.uint8
        assert len(caloric.detect(image)) == 0
        (listed,) = caloric.extract_many([image], device=device)
        assert len(listed) == 0


def test_unsupported_options_are_errors():
    with pytest.raises(caloric.InputError, match="on_device"):
        caloric.extract(IMAGE, on_device=True)
    with pytest.raises(caloric.InputError, match="runs only on the CPU"):
        caloric.extract(IMAGE, detector="opencv", device="torch:cpu")
    with pytest.raises(caloric.InputError, match=r"^detector 'opencv' runs only on the CPU"):
        caloric.match_images(IMAGE, IMAGE, detector="opencv", device="torch:cpu")
    with pytest.raises(caloric.InputError, match="list of 2 masks"):
        caloric.extract_many([IMAGE, IMAGE], masks=[None])
