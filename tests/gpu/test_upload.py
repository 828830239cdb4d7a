"""Images of any kind become the same grayscale pixels as on the CPU."""

import cv2
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import caloric
import photographs
from caloric.gpu import upload
from caloric.image.pixels import to_gray
from tools.gpu.agreement import compared
from torch_device import DEVICE, HERE, photograph


def test_tensors_are_accepted_as_images():
    image = photograph("coffee")
    color = cv2.cvtColor(image, cv2.COLOR_GRAY2RGB)
    expected = caloric.extract(image, max_features=50)
    gray = torch.from_numpy(image)
    channels = torch.from_numpy(np.moveaxis(color, 2, 0).copy())
    for tensor in (gray, gray[None], channels, channels.float() / 255):
        for device in ("cpu", HERE):
            features = caloric.extract(tensor, max_features=50, device=device)
            assert compared(expected, features)[0] >= 0.98
    batch = caloric.extract(torch.stack([channels, channels]), max_features=50, device=HERE)
    assert len(batch) == 2
    with pytest.raises(caloric.InputError, match="tensor"):
        caloric.extract(torch.zeros(2, 30, 30), device=HERE)
    with pytest.raises(caloric.InputError, match="tensor of unsupported type"):
        caloric.extract(torch.zeros(30, 30, dtype=torch.int64), device=HERE)
    with pytest.raises(caloric.InputError, match="NaN"):
        caloric.extract(torch.full((30, 30), torch.nan), device=HERE)


def _kinds():
    """Return the same image in all supported types and memory layouts."""
    colors = cv2.resize(photographs.color("astronaut"), (97, 81))
    gray = photograph(size=(97, 81))
    half = (gray / 255).astype(np.float16)
    alpha = np.dstack([colors, np.linspace(0, 255, colors[..., 0].size).reshape(gray.shape)])
    read_only = gray.copy()
    read_only.setflags(write=False)
    return {
        "gray": gray, "colors": colors, "one channel": gray[..., None],
        "alpha": alpha.astype(np.uint8), "uint16": gray.astype(np.uint16) * 257,
        "big endian": (gray.astype(np.uint16) * 257).astype(">u2"), "bool": gray > 100,
        "float16": half, "float32": half.astype(np.float32), "float64": colors / 255,
        "Fortran order": np.asfortranarray(colors), "a view": colors[::-1, ::-1],
        "read-only": read_only, "a list": (gray / 255).tolist(),
    }  # fmt: skip


@pytest.mark.parametrize("kind", _kinds())
def test_grayscale_pixels_of_all_kinds_of_arrays_agree_with_the_cpu(kind):
    image = _kinds()[kind]
    prepared = upload.prepared(image)
    pixels = upload.on_device(prepared, DEVICE)
    gray = upload.to_gray(pixels, upload.Kind.of(prepared).layout)[0]
    np.testing.assert_array_equal(gray.cpu().numpy(), to_gray(image))


@pytest.mark.parametrize(
    ("image", "name", "message"),
    [
        (np.full((40, 40), np.nan, np.float32), "caloric", "NaN"),
        (np.pad(np.full((20, 20), np.inf), 9), "caloric", "NaN or infinite"),
        (np.pad(np.full((20, 20), 200.0), 9), "caloric", r"got 0 to 200"),
        (np.pad(np.full((20, 20), 1.5), 9), "distribution-field", r"needs intensities"),
        (np.zeros((40, 40), np.int32), "caloric", "pixels of type int32"),
    ],
)
def test_invalid_pixels_raise_the_same_error_as_on_the_cpu(image, name, message):
    good = np.full((*image.shape,), 0.5)
    messages = []
    for device in ("cpu", HERE):
        with pytest.raises(caloric.InputError, match=message) as error:
            caloric.extract([good, image], name, device=device)
        messages.append(str(error.value))
    assert messages[0] == messages[1]


@given(st.integers(1, 20_000), st.integers(1, 20_000))
def test_enlarged_kinds_hold_the_image_and_are_few(h, w):
    kind = upload.Kind((h, w, 3), "u1", tensor=False)
    enlarged = kind.enlarged()
    assert enlarged.shape[2:] == (3,)
    for length, rounded in zip(kind.size, enlarged.size, strict=True):
        assert length <= rounded < max(1.5 * length, 2)
        assert rounded.bit_count() <= 2
    assert enlarged.enlarged() == enlarged


def test_images_are_padded_to_a_common_size():
    images = [np.full((2, 3), 5, np.uint8), np.full((4, 1), 7, np.uint8)]
    kind = upload.Kind((4, 3), "u1", tensor=False)
    padded = upload.upload_padded(images, kind, 3, torch.device("cpu")).numpy()
    assert padded.shape == (3, 4, 3)
    np.testing.assert_array_equal(padded[0, :2, :3], images[0])
    np.testing.assert_array_equal(padded[1, :4, :1], images[1])
