"""TIFF files read by windows."""

import os

import numpy as np
import pytest
import tifffile

import caloric
import photographs
from caloric.image import tiff
from same_features import agree


@pytest.fixture(scope="module")
def mosaic():
    """An image large enough to be read by windows, without repetition."""
    tile = photographs.color("coffee")
    image = np.tile(tile, (5, 4, 1))
    return (image * np.linspace(0.5, 1, image.shape[1])[:, None]).astype(np.uint8)


KINDS = {
    "strips": {},
    "deflate": {"compression": "zlib", "rowsperstrip": 50},
    "tiles": {"tile": (256, 384), "compression": "zlib", "predictor": True},
    "big": {"bigtiff": True, "tile": (128, 128)},
    "big-endian": {"byteorder": ">", "rowsperstrip": 33},
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("type_", ["rgb", "gray", "16 bits", "float"])
def test_windows_equal_the_pixels_of_the_file(kind, type_, mosaic, tmp_path):
    if type_ == "float" and KINDS[kind].get("predictor"):
        pytest.skip("the predictor is for integers")
    values = {
        "rgb": mosaic,
        "gray": mosaic[..., 0],
        "16 bits": mosaic[..., 1].astype(np.uint16) * 257,
        "float": mosaic[..., 2].astype(np.float32) / 255,
    }[type_]
    path = tmp_path / "image.tif"
    photometric = "rgb" if values.ndim == 3 else "minisblack"
    tifffile.imwrite(path, values, photometric=photometric, **KINDS[kind])
    opened = caloric.open_image(path)
    assert isinstance(opened, tiff.TiffWindows)
    assert opened.shape == values.shape
    for rows, columns in ((slice(0, 1), slice(0, 1)), (slice(100, 777), slice(1000, 2399))):
        assert np.array_equal(opened.window(rows, columns), values[rows, columns])


def test_features_of_a_tiff_equal_those_of_the_array(mosaic, tmp_path):
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, mosaic, photometric="rgb", tile=(256, 256), compression="zlib")
    size = 100_000_000
    agree(
        caloric.extract(mosaic, max_features=500, memory=size),
        caloric.extract(caloric.open_image(path), max_features=500, memory=size),
    )


def test_other_files_are_read_as_a_whole(mosaic, tmp_path):
    small = tmp_path / "small.tif"
    tifffile.imwrite(small, mosaic[:100, :100], photometric="rgb")
    assert np.array_equal(caloric.open_image(small), mosaic[:100, :100])
    rotated = tmp_path / "rotated.tif"
    extra = [(274, "H", 1, 3, True)]
    tifffile.imwrite(rotated, mosaic, photometric="rgb", extratags=extra)
    assert np.array_equal(caloric.open_image(rotated), mosaic[::-1, ::-1])
    with pytest.raises(caloric.InputError, match="no such file"):
        caloric.open_image(tmp_path / "none.tif")
    (tmp_path / "text.tif").write_bytes(b"II*\0 not a file of pixels")
    with pytest.raises(caloric.InputError, match=r"text\.tif"):
        caloric.open_image(tmp_path / "text.tif")


def test_the_error_names_a_damaged_strip(mosaic, tmp_path):
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, mosaic, photometric="rgb", rowsperstrip=100, compression="zlib")
    with tifffile.TiffFile(path) as file:
        start = file.pages[0].dataoffsets[7]
    data = bytearray(path.read_bytes())
    data[start : start + 200] = bytes(200)
    path.write_bytes(data)
    opened = caloric.open_image(path)
    with pytest.raises(caloric.InputError, match="strip or tile 7 is damaged"):
        caloric.extract(opened)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_windows_in_forked_processes(mosaic, tmp_path):
    path = tmp_path / "image.tif"
    tifffile.imwrite(path, mosaic, photometric="rgb", tile=(64, 64))
    opened = caloric.open_image(path)
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            good = all(
                np.array_equal(
                    opened.window(slice(y, y + 64), slice(0, 2000)), mosaic[y : y + 64, :2000]
                )
                for y in range(0, 1900, 64)
            )
            os._exit(0 if good else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
