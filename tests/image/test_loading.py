"""Prefetching of image files."""

import numpy as np
import pytest
import torch
from PIL import Image

import caloric
from caloric.errors import Failure
from caloric.image import loading


def test_results_are_in_order_and_errors_become_failures():
    def read(name):
        if name == "5":
            raise caloric.InputError("5: broken")
        if name == "6":
            raise MemoryError
        return int(name)

    results = list(loading.read_ahead([str(i) for i in range(20)], read, ahead=3))
    assert len(results) == 20
    assert [v for v in results if not isinstance(v, Failure)] == [*range(5), *range(7, 20)]
    assert results[5] == Failure("5: broken")
    assert results[6] == Failure("6: not enough memory")


def test_the_number_of_prefetched_files_is_limited():
    read = []

    def record(name):
        read.append(name)
        return name

    for index, _ in enumerate(loading.read_ahead(range(20), record, ahead=3)):
        assert len(read) <= index + 3


def test_images_are_opened_on_the_cpu(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 255, (20, 30, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "b.png").write_bytes(b"not an image")
    image, failure = loading.open_images([str(tmp_path / "a.png"), str(tmp_path / "b.png")])
    np.testing.assert_array_equal(image, pixels)
    assert "b.png" in failure.reason


@pytest.mark.parametrize("device", [None, torch.device("cpu")])
def test_decoding_on_a_gpu_requires_a_gpu(device):
    loading.check_decoder("cpu", device)
    with pytest.raises(caloric.InputError, match="requires a GPU"):
        loading.check_decoder("gpu", device)


def test_only_upright_jpegs_are_decoded_by_nvjpeg(tmp_path):
    image = Image.new("RGB", (8, 8))
    image.save(tmp_path / "a.jpg")
    exif = Image.Exif()
    exif[274] = 6
    image.save(tmp_path / "rotated.jpg", exif=exif)
    image.save(tmp_path / "a.png")
    assert loading.jpeg_bytes(str(tmp_path / "a.jpg")) is not None
    assert loading.jpeg_bytes(str(tmp_path / "rotated.jpg")) is None
    assert loading.jpeg_bytes(str(tmp_path / "a.png")) is None
