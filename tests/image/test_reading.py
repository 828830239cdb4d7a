"""Image files of all supported kinds, and broken files."""

import io
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from PIL import Image, features

import caloric
from broken import broken_files, saved
from caloric.image import reading
from caloric.image.pixels import to_gray


def color():
    y, x = np.mgrid[:40, :60]
    return np.stack([4 * x, 6 * y, (x * y) % 255], -1).astype(np.uint8)


def test_color_order_is_rgb(tmp_path):
    path = tmp_path / "a name with spaces é.png"
    path.write_bytes(saved(Image.fromarray(color()), format="PNG"))
    np.testing.assert_array_equal(caloric.read_image(path), color())
    np.testing.assert_array_equal(caloric.read_image(str(path)), color())


def test_the_exif_orientation_is_applied():
    image = Image.fromarray(color())
    exif = Image.Exif()
    exif[0x0112] = 6
    rotated = reading.decode(saved(image, format="JPEG", exif=exif, quality=95))
    assert rotated.shape == (60, 40, 3)
    expected = np.rot90(color(), -1)
    assert np.abs(rotated.astype(int) - expected).mean() < 12


def test_16_bits_and_floats_are_preserved():
    deep = (color().astype(np.uint16) * 257)[..., ::-1]
    for kind in (".png", ".tiff"):
        read = reading.decode(cv2.imencode(kind, deep)[1].tobytes())
        assert read.dtype == np.uint16
        np.testing.assert_array_equal(read, deep[..., ::-1])
        gray = reading.decode(cv2.imencode(kind, deep[..., 0])[1].tobytes())
        np.testing.assert_array_equal(gray, deep[..., 0])
    real = np.float32(color()[..., 0] / 255)
    np.testing.assert_array_equal(reading.decode(cv2.imencode(".tiff", real)[1].tobytes()), real)
    rgb = np.float32(color() / 255)
    lossless = [cv2.IMWRITE_TIFF_COMPRESSION, 1]  # the default of OpenCV 4 is not
    data = cv2.imencode(".tiff", rgb[..., ::-1], lossless)[1].tobytes()
    np.testing.assert_array_equal(reading.decode(data), rgb)
    with pytest.raises(caloric.InputError, match="more pixels than the limit"):
        reading.decode(data, max_pixels=100)


def test_palette_alpha_gray_cmyk_and_bilevel_images():
    image = Image.fromarray(color())
    palette = reading.decode(saved(image.quantize(64), format="PNG"))
    assert palette.shape == (40, 60, 3)
    assert np.abs(palette.astype(int) - color()).mean() < 25
    rgba = np.dstack([color(), np.full((40, 60), 128, np.uint8)])
    np.testing.assert_array_equal(reading.decode(saved(Image.fromarray(rgba), format="PNG")), rgba)
    gray = reading.decode(saved(image.convert("L"), format="JPEG", quality=95))
    assert gray.shape == (40, 60)
    cmyk = reading.decode(saved(image.convert("CMYK"), format="JPEG", quality=95))
    assert np.abs(cmyk.astype(int) - color()).mean() < 12
    bilevel = reading.decode(saved(Image.fromarray(color()[..., 0] > 128), format="PNG"))
    assert set(np.unique(bilevel)) <= {0, 255}
    tiff = reading.decode(saved(image.convert("CMYK"), format="TIFF"))
    np.testing.assert_allclose(tiff.astype(int), color(), atol=2)
    webp = reading.decode(saved(image, format="WEBP", lossless=True))
    np.testing.assert_array_equal(webp, color())


def test_transparent_pixels_are_white():
    image = np.zeros((2, 2, 4), np.uint8)
    image[0, :, 3] = 255
    np.testing.assert_allclose(to_gray(image), [[0, 0], [1, 1]], atol=1e-6)


def test_broken_files_are_one_line_errors(tmp_path):
    for name, message in broken_files(tmp_path).items():
        with pytest.raises(caloric.InputError, match=f"{name}: .*{message}|{message}") as caught:
            caloric.read_image(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert len(str(caught.value)) < 400


def test_the_limit_of_pixels_can_be_set():
    data = saved(Image.fromarray(color()), format="PNG")
    with pytest.raises(caloric.InputError, match=r"60 x 40 pixels exceed the limit"):
        reading.decode(data, max_pixels=2000)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_16_bit_files_have_the_same_orientation_as_8_bit_files(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    shallow = Image.fromarray(color()[..., 0])
    expected = reading.decode(saved(shallow, format="PNG", exif=exif)).astype(np.uint16) * 257
    deep = Image.fromarray(color()[..., 0].astype(np.uint16) * 257)
    for kind in ("PNG", "TIFF"):
        np.testing.assert_array_equal(reading.decode(saved(deep, format=kind, exif=exif)), expected)


@pytest.mark.parametrize("orientation", range(1, 9))
def test_points_are_mapped_to_the_stored_image(orientation):
    exif = Image.Exif()
    exif[0x0112] = orientation
    stored = color()[..., 0]
    data = saved(Image.fromarray(stored), format="PNG", exif=exif)
    upright = reading.decode(data)
    assert reading.orientation(data) == orientation
    assert reading.stored_size(upright.shape, orientation) == stored.shape
    transform = reading.to_stored(upright.shape, orientation)
    y, x = np.mgrid[: upright.shape[0], : upright.shape[1]].reshape(2, -1)
    column, row = np.rint(transform[:, :2] @ [x, y] + transform[:, 2:]).astype(int)
    np.testing.assert_array_equal(stored[row, column], upright[y, x])


def test_files_without_orientation_are_upright(tmp_path):
    assert reading.orientation(b"no image") == 1
    assert reading.orientation(tmp_path / "none.jpg") == 1


@pytest.mark.parametrize(("kind", "library"), [("AVIF", "avif"), ("JPEG2000", "jpg_2000")])
def test_newer_formats(kind, library):
    if not features.check(library):
        pytest.skip(f"Pillow was built without {library}")
    read = reading.decode(saved(Image.fromarray(color()), format=kind, quality=95))
    assert np.abs(read.astype(int) - color()).mean() < 12


def test_heic(monkeypatch):
    heif = pytest.importorskip("pillow_heif")
    data = io.BytesIO()
    heif.from_pillow(Image.fromarray(color())).save(data, quality=95)
    read = reading.decode(data.getvalue())
    assert np.abs(read.astype(int) - color()).mean() < 12
    reading._support_heif.cache_clear()
    monkeypatch.setitem(sys.modules, "pillow_heif", None)
    with pytest.raises(caloric.InputError, match=r"pip install 'caloric\[heic\]'"):
        reading.decode(data.getvalue())


def test_gray_with_alpha_is_blended_with_white():
    both = Image.merge("LA", [Image.new("L", (5, 4), 0), Image.new("L", (5, 4), 0)])
    for kind in ("PNG", "TIFF"):
        np.testing.assert_allclose(to_gray(reading.decode(saved(both, format=kind))), 1, atol=1e-6)
    keyed = Image.new("L", (5, 4), 7)
    np.testing.assert_allclose(
        to_gray(reading.decode(saved(keyed, format="PNG", transparency=7))), 1, atol=1e-6
    )


def test_32_bit_integers_beyond_16_bits_are_rejected():
    data = cv2.imencode(".tiff", np.full((4, 4), 70_000, np.int32))[1].tobytes()
    with pytest.raises(caloric.InputError, match="exceed the range of 16 bits"):
        reading.decode(data)


def test_reading_in_threads_restores_warning_filters():
    data = saved(Image.fromarray(color()), format="PNG")
    before, level = list(warnings.filters), reading.LOG.getLogLevel()
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(reading.decode, [data] * 40))
    assert warnings.filters == before
    assert reading.LOG.getLogLevel() == level


def tiff(pixels, **tags):
    """The bytes of an uncompressed little-endian TIFF of one strip, with any tags."""
    h, w = pixels.shape[:2]
    samples = 1 if pixels.ndim == 2 else pixels.shape[2]
    numbers = {
        256: w, 257: h, 258: 8 * pixels.itemsize, 259: 1, 262: 1 if samples == 1 else 2,
        273: 8, 277: samples, 278: h, 279: pixels.nbytes, 284: 1,
        339: 3 if pixels.dtype.kind == "f" else 1,
    } | {int(tag[1:]): value for tag, value in tags.items()}  # fmt: skip
    data = pixels.tobytes()
    extra = 8 + len(data)
    tail = b""
    entries = b""
    for tag, value in sorted(numbers.items()):
        if tag in (258, 339) and samples > 2:
            offset = (extra + len(tail)).to_bytes(4, "little")
            tail += value.to_bytes(2, "little") * samples
            entry = (3).to_bytes(2, "little") + samples.to_bytes(4, "little") + offset
        else:
            entry = (4).to_bytes(2, "little") + (1).to_bytes(4, "little")
            entry += value.to_bytes(4, "little")
        entries += tag.to_bytes(2, "little") + entry
    head = b"II*\0" + (extra + len(tail)).to_bytes(4, "little")
    return head + data + tail + len(numbers).to_bytes(2, "little") + entries + bytes(4)


def test_tiff_files_that_decoders_interpret_differently():
    deep = color().astype(np.uint16) * 257
    np.testing.assert_array_equal(reading.decode(tiff(deep)), deep)
    # "White is zero".
    for pixels, white in ((deep[..., 0], 65535), (np.float32(color()[..., 0] / 255), 1)):
        inverted = (white - pixels).astype(pixels.dtype)
        read = reading.decode(tiff(inverted, t262=0))
        np.testing.assert_allclose(read, pixels, atol=1e-6)
    with pytest.raises(caloric.InputError, match="planar TIFF"):
        reading.decode(tiff(deep, t284=2))
    # Straight and premultiplied alpha.
    rgba = np.dstack([deep, np.full((40, 60), 32768, np.uint16)])
    np.testing.assert_array_equal(reading.decode(tiff(rgba, t338=2)), rgba)
    premultiplied = rgba.copy()
    premultiplied[..., :3] = np.rint(rgba[..., :3] * (32768 / 65535))
    np.testing.assert_allclose(reading.decode(tiff(premultiplied, t338=1)), rgba, atol=2)
    shallow = (rgba // 257).astype(np.uint8)
    read = reading.decode(saved(Image.fromarray(shallow), format="TIFF"))
    np.testing.assert_array_equal(read, shallow)
