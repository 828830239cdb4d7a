"""Images in every form that a user can have: arrays, Pillow images, files, bytes and tensors."""

import io
import logging
import sys
import types

import numpy as np
import pytest
import tifffile
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image, features

import caloric
import photographs
from caloric import viz
from caloric.image import inputs
from caloric.image.pixels import to_gray
from caloric.interop import opencv

COLOR = photographs.color("coffee")[100:260, 200:400]
GRAY = np.asarray(Image.fromarray(COLOR).convert("L"))


def deep(mode, gray):
    """Return a 16-bit Pillow image of a mode."""
    values = gray.astype(np.uint16) * 257
    if mode == "I":
        return Image.fromarray(values.astype(np.int32))
    order = ">u2" if mode == "I;16B" else "<u2"
    return Image.frombytes(mode, values.shape[::-1], values.astype(order).tobytes())


def in_mode(mode, color=COLOR):
    """Return a photograph as a Pillow image of a mode."""
    image = Image.fromarray(color)
    gray = np.asarray(image.convert("L"))
    if mode.startswith("I"):
        return deep(mode, gray)
    if mode == "F":
        return Image.fromarray(gray.astype(np.float32) / 255)
    if mode == "LAB" and "littlecms2" not in features.get_supported_modules():
        pytest.skip("Pillow without Little CMS")
    if mode == "PA":
        return image.quantize(256).convert("PA")
    if mode == "P":
        return image.quantize(256)
    if mode in ("La", "RGBa"):
        return image.convert("LA" if mode == "La" else "RGBA").convert(mode)
    return image.convert("L").convert(mode) if mode in ("LA",) else image.convert(mode)


SAME = {
    "RGB": 0, "L": 1, "P": 25, "PA": 25, "LA": 1, "La": 1, "RGBA": 0, "RGBa": 0, "RGBX": 0,
    "CMYK": 0, "YCbCr": 3, "HSV": 6, "LAB": 6, "I;16": 1, "I;16B": 1, "I": 1, "F": 1,
}  # fmt: skip


@pytest.mark.parametrize("mode", SAME)
def test_pillow_images_are_converted_by_mode(mode):
    image = in_mode(mode)
    assert image.mode == mode
    read = to_gray(caloric.read_image(image))
    assert np.abs(read - to_gray(COLOR)).max() <= (SAME[mode] + 0.01) / 255


@pytest.mark.parametrize(
    ("mode", "kind"),
    [("P", "PNG"), ("LA", "PNG"), ("RGBA", "PNG"), ("1", "PNG"), ("CMYK", "TIFF"), ("LAB", "TIFF"),
     ("I;16", "TIFF"), ("F", "TIFF"), ("1", "TIFF"), ("L", "PNG"), ("P", "GIF"), ("I", "TIFF")],
)  # fmt: skip
def test_a_pillow_image_is_read_as_its_file(mode, kind):
    image, file = in_mode(mode), io.BytesIO()
    image.save(file, kind)
    np.testing.assert_array_equal(
        caloric.read_image(Image.open(file)), caloric.read_image(file.getvalue())
    )
    np.testing.assert_array_equal(caloric.read_image(image), caloric.read_image(file.getvalue()))


def test_transparent_pixels_of_pillow_images_are_white():
    hidden = Image.fromarray(np.zeros((20, 30), np.uint8)).convert("P")
    hidden.info["transparency"] = hidden.getpixel((0, 0))
    for image in (hidden, Image.new("LA", (30, 20), 0), Image.new("RGBa", (30, 20), 0)):
        np.testing.assert_array_equal(to_gray(caloric.read_image(image)), 1)


def test_pillow_images_with_8_bits_in_wider_modes_are_refused():
    image = Image.fromarray(GRAY)
    for mode in ("I", "I;16"):
        with pytest.raises(caloric.InputError, match=rf"mode {mode} needs 16-bit.*convert\('L'\)"):
            caloric.extract(image.convert(mode))
    with pytest.raises(caloric.InputError, match=f"got {GRAY.min()} to {GRAY.max()}; divide by"):
        caloric.extract(image.convert("F"))
    for mode in ("I", "F"):
        read = caloric.read_image(image.convert(mode), white_level=255)
        np.testing.assert_allclose(read, GRAY / 255, atol=1e-6)


def test_matches_of_pillow_modes():
    color = photographs.color("coffee")
    other = photographs.warp(color, photographs.similarity(0.9, 10, (0, 0), (300, 200)))
    options = {"views": None, "refine": False, "max_features": 2000}
    expected = len(caloric.match_images(color, other, **options))
    assert expected > 300
    for mode in ("P", "1", "CMYK", "YCbCr", "HSV", "LAB", "I;16"):
        share = len(caloric.match_images(in_mode(mode, color), other, **options)) / expected
        assert share > {"P": 0.6, "1": 0.3}.get(mode, 0.95), mode


def test_dithered_images_are_smoothed_and_drawings_are_not():
    dithered = Image.fromarray(COLOR).convert("1")
    error = np.abs(to_gray(caloric.read_image(dithered)) - to_gray(COLOR)).mean()
    assert error < 0.08
    drawing = GRAY > 100
    np.testing.assert_array_equal(caloric.read_image(Image.fromarray(drawing)), 255 * drawing)


@pytest.fixture(scope="module")
def forms(tmp_path_factory):
    """The same image as an array, a path, bytes, a file object, a Pillow image and a tensor."""
    torch = pytest.importorskip("torch")
    path = tmp_path_factory.mktemp("forms") / "coffee.png"
    Image.fromarray(COLOR).save(path)
    tensor = torch.from_numpy(COLOR.copy())
    return {
        "path": lambda: path,
        "str": lambda: str(path),
        "bytes": path.read_bytes,
        "bytearray": lambda: bytearray(path.read_bytes()),
        "BytesIO": lambda: io.BytesIO(path.read_bytes()),
        "pillow": lambda: Image.open(path),
        "list": lambda: (COLOR / 255).tolist(),
        "chw": lambda: tensor.permute(2, 0, 1),
        "hwc": lambda: tensor,
    }


def test_every_function_takes_every_form(forms):
    part = COLOR[40:120, 50:150]
    expected = caloric.extract(COLOR, max_features=40)
    frames = expected.frames
    moved = caloric.refine(COLOR, COLOR, frames.xy, frames.xy).xy
    for name, form in forms.items():
        if name != "list":
            np.testing.assert_array_equal(caloric.read_image(form()), COLOR)
            np.testing.assert_array_equal(np.asarray(caloric.open_image(form())), COLOR)
        features = caloric.extract(form(), max_features=40)
        np.testing.assert_allclose(features.frames.xy, frames.xy, atol=1e-3)
        np.testing.assert_allclose(caloric.detect(form(), max_features=40).xy, frames.xy, atol=1e-3)
        np.testing.assert_allclose(
            caloric.describe(form(), frames), expected.descriptors, atol=1e-3
        )
        assert viz.draw_features(form(), features).pixels.shape[1] >= 200
        assert viz.draw_matches(form(), form(), features, features).pixels.shape[1] > 400
    for name in ("path", "pillow"):
        form = forms[name]
        again = caloric.refine(form(), form(), frames.xy, frames.xy).xy
        np.testing.assert_allclose(again, moved, atol=1e-2)
        assert caloric.match_images(form(), form(), max_features=40, views=None)
        assert caloric.align(part, form(), model="translation").converged
    for name in ("BytesIO", "hwc"):
        form = forms[name]
        assert caloric.find_template(form(), [part], model="translation").found


def test_an_open_file_is_read_from_its_position(forms):
    with forms["path"]().open("rb") as file:
        np.testing.assert_array_equal(caloric.read_image(file), COLOR)
        with pytest.raises(caloric.InputError, match=r"coffee\.png: no bytes to read"):
            caloric.read_image(file)


def test_lists_of_images(forms):
    count = len(caloric.extract(COLOR, max_features=30))
    for extract in (caloric.extract, caloric.extract_many):
        images = [form() for form in forms.values()]
        assert [len(f) for f in extract(images, max_features=30)] == [count] * len(images)
        assert extract([]) == []
    for bad, message in (
        ("none.png", r"^none\.png: no such file"),
        (None, r"^images\[2\]: expected pixels, got NoneType"),
        (np.zeros((3, 4, 5, 6)), r"^images\[2\]: expected shape"),
        (np.full((40, 40), 7.0), r"^images\[2\]: floats must be in \[0, 1\], got 7 to 7"),
        (b"abc", r"^images\[2\]: cannot decode"),
    ):
        for device in ("cpu", "torch:cpu"):
            with pytest.raises(caloric.InputError, match=message):
                caloric.extract([GRAY[:40], GRAY[:40], bad], max_features=5, device=device)
    for single in ("a.png", GRAY, b"abc"):
        with pytest.raises(caloric.InputError, match="got a single image; expected a list"):
            caloric.extract_many(single)


def test_masks_in_every_form(forms):
    mask = np.zeros(GRAY.shape, np.int64)
    mask[:, :100] = 7
    expected = caloric.detect(COLOR, mask=mask, max_features=30).xy
    pillow = Image.fromarray((255 * (mask > 0)).astype(np.uint8))
    file = io.BytesIO()
    pillow.convert("1").save(file, "PNG")
    palette, rgb = pillow.convert("P"), pillow.convert("RGB")
    for form in (pillow, palette, rgb, pillow.convert("1"), file.getvalue()):
        np.testing.assert_array_equal(
            caloric.detect(COLOR, mask=form, max_features=30).xy, expected
        )
    with pytest.raises(caloric.InputError, match=r"mask\.png: no such file"):
        caloric.detect(COLOR, mask="mask.png")


def test_opencv_interface_takes_other_forms_in_their_own_order(forms):
    detector = opencv.SIFT_create(20)
    expected = detector.detectAndCompute(COLOR[..., ::-1], None)[1]
    for name in ("path", "pillow", "bytes"):
        np.testing.assert_array_equal(detector.detectAndCompute(forms[name](), None)[1], expected)


@given(st.sampled_from([1, 3, 4]), st.integers(5, 9), st.integers(5, 9))
def test_both_layouts_of_a_tensor_are_the_same_image(channels, h, w):
    torch = pytest.importorskip("torch")
    tensor = torch.rand(channels, h, w)
    np.testing.assert_array_equal(
        caloric.read_image(tensor), caloric.read_image(tensor.permute(1, 2, 0))
    )


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
@pytest.mark.parametrize(
    ("shape", "message"),
    [((3, 50, 3), "can be"), ((2, 40, 50), "expected a tensor"), ((40, 50, 5), "expected a tensor"),
     ((7,), "expected a tensor")],
)  # fmt: skip
def test_errors_about_tensors_state_their_shape(shape, message, device):
    torch = pytest.importorskip("torch")
    with pytest.raises(caloric.InputError, match=message) as caught:
        caloric.extract(torch.zeros(shape), device=device)
    assert str(shape) in str(caught.value)


@pytest.mark.parametrize("device", ["cpu", "torch:cpu"])
def test_floats_clearly_outside_the_unit_range_are_errors(device):
    image = np.random.default_rng(0).random((60, 70))
    for low, high in ((-1, 1), (-2.1, 2.6), (0, 1.6), (4, 255)):
        with pytest.raises(caloric.InputError, match=r"floats must be in \[0, 1\]"):
            caloric.extract(low + (high - low) * image, device=device)
    caloric.extract(1.2 * image - 0.1, device=device)


def test_the_range_in_the_error_is_that_of_the_whole_image(tmp_path):
    image = np.full((900, 700), 29.0)
    image[450:, :] = np.linspace(4, 255, 700)
    with pytest.raises(caloric.InputError, match="got 4 to 255"):
        caloric.extract(image, memory=3_000_000)
    large = np.full((2100, 2000), 29, np.float32)
    large[-1, :2] = 4, 255
    tifffile.imwrite(tmp_path / "large.tif", large)
    with pytest.raises(caloric.InputError, match=r"large\.tif: floats .*got 4 to 255"):
        caloric.detect(tmp_path / "large.tif", memory=20_000_000)


@pytest.mark.parametrize(
    ("path", "message"),
    [("https://example.org/a.jpg", "^https://example.org/a.jpg: URLs are not supported"),
     ("-", "^-: no such file .standard input is not supported"),
     ("a\0b", "not a path")],
)  # fmt: skip
def test_paths_that_are_not_files(path, message):
    for call in (caloric.read_image, caloric.open_image, caloric.extract):
        with pytest.raises(caloric.InputError, match=message):
            call(path)


def test_invalid_files(tmp_path):
    with pytest.raises(caloric.InputError, match="binary mode"):
        caloric.read_image(io.StringIO("text"))
    with pytest.raises(caloric.InputError, match="no bytes to read"):
        caloric.read_image(io.BytesIO())
    with pytest.raises(caloric.InputError, match="a directory, not an image"):
        caloric.read_image(tmp_path)


def twelve_bits(path, **options):
    tifffile.imwrite(path, (GRAY.astype(np.uint16) * 257) >> 4, **options)
    return path


@pytest.mark.parametrize(
    "options",
    [{"extratags": [(281, "H", 1, 4095, True)]}, {"extratags": [(281, "H", 1, 3871, True)]},
     {"extratags": [(50717, "H", 1, 4095, True)]},
     {"description": '<OME><Pixels SignificantBits="12"/></OME>', "metadata": None}],
)  # fmt: skip
def test_the_bit_depth_of_a_tiff_file_is_read(options, tmp_path, monkeypatch):
    path = twelve_bits(tmp_path / "a.tif", **options)
    for image in (path, Image.open(path)):
        read = caloric.read_image(image)
        assert read.dtype == np.float32
        np.testing.assert_allclose(read, GRAY / 255, atol=1e-3)
    monkeypatch.setattr("caloric.image.tiff.SMALL", 100)
    windows = caloric.open_image(path)
    np.testing.assert_allclose(
        windows.window(slice(0, 9), slice(0, 9)), GRAY[:9, :9] / 255, atol=1e-3
    )


def test_the_white_level_can_be_set(tmp_path, caplog):
    path = twelve_bits(tmp_path / "deep.tif")
    caloric.extract(path)
    assert "deep.tif: only" in caplog.text
    assert "set the white level to 4095 (white_level" in caplog.text
    caplog.clear()
    read = caloric.read_image(path, white_level=4095)
    np.testing.assert_allclose(read, GRAY / 255, atol=1e-3)
    assert len(caloric.extract(read)) > 2 * len(caloric.extract(path))
    pair = caloric.match_images(path, path, white_level=4095)
    assert len(pair.features_a) == len(caloric.extract(read))
    for invalid in (0, -1, "4095", True, float("inf")):
        with pytest.raises(caloric.InputError, match="white level must be a positive number"):
            caloric.read_image(path, white_level=invalid)


@pytest.mark.parametrize(
    ("image", "reason"),
    [(np.full((60, 80), 40, np.uint8), "the image has no texture"),
     (np.zeros((1, 1)), "the image has no texture"),
     (np.random.default_rng(0).random((3, 5000)), "the image has only 5000 x 3 pixels")],
)  # fmt: skip
def test_images_without_features_are_reported_without_views(image, reason, tmp_path, caplog):
    caplog.set_level(logging.WARNING)
    path = tmp_path / "flat.png"
    Image.fromarray(np.uint8(np.rint(image if image.dtype == np.uint8 else 255 * image))).save(path)
    for a, b in ((path, COLOR), (COLOR, path)):
        caplog.clear()
        pair = caloric.match_images(a, b)
        assert not pair
        assert pair.level == 1
        assert [r.getMessage() for r in caplog.records] == [f"{path}: no features found ({reason})"]


def test_labels():
    assert inputs.label("a/b.png", "image") == "a/b.png"
    assert inputs.label(GRAY, "images[1]") == "images[1]"
    assert str(inputs.named("image: bad", "a.png")) == "a.png: bad"
    assert str(inputs.named("a.png: bad", "a.png")) == "a.png: bad"


def test_images_can_be_read_while_another_thread_imports_pillow(monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", types.ModuleType("PIL.Image"))
    assert not inputs.is_pillow(GRAY)
