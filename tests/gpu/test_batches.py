"""Batches of images: the order of results, and fallbacks if memory runs out."""

import logging
import weakref
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import caloric
from caloric.gpu import batches, download, graphs, pipeline, upload
from caloric.gpu import neighbors as gpu_neighbors
from caloric.options import ExtractOptions
from torch_device import HERE, out_of_memory, photograph


def test_results_of_images_of_different_sizes_are_in_the_order_of_the_images():
    whole = photograph()
    parts = [whole, whole[:120, :200], np.zeros((0, 5), np.uint8), whole, whole[:120, :200]]
    features = caloric.extract(parts, max_features=60, device=HERE)
    assert [f.image_size for f in features] == [
        (300, 260),
        (120, 200),
        (0, 5),
        (300, 260),
        (120, 200),
    ]
    assert len(features[2]) == 0
    # On a GPU the last digits depend on the index in the batch.
    np.testing.assert_allclose(features[0].descriptors, features[3].descriptors, atol=1e-6)
    np.testing.assert_allclose(features[1].frames.maps, features[4].frames.maps, rtol=1e-12)
    cpu = caloric.extract(parts, max_features=60)
    assert [f.image_size for f in cpu] == [f.image_size for f in features]
    for a, b in zip(cpu, features, strict=True):
        assert len(a) == len(b)
    masks = [None, np.zeros((120, 200), bool), None, None, None]
    features = caloric.extract(parts, max_features=60, device=HERE, mask=masks)
    assert [len(f) for f in features] == [60, 0, 0, 60, len(features[4])]
    with pytest.raises(caloric.InputError, match="list of 5 masks"):
        caloric.extract(parts, mask=masks[1])


def test_a_batch_that_does_not_fit_is_halved(monkeypatch, caplog):
    begin, sizes = batches.begin, []

    def begin_small(batch, options, device, keep_on_device):
        sizes.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("full")
        return begin(batch, options, device, keep_on_device)

    monkeypatch.setattr(batches, "begin", begin_small)
    images = [photograph(size=(60, 70))] * 7
    with caplog.at_level(logging.WARNING, "caloric"):
        features = caloric.extract(images, max_features=20, device=HERE)
    assert sizes == [7, 3, 1, 2, 4, 2, 2]
    assert "7 images of 60 x 70 do not fit" in caplog.text
    for one in features:  # on a GPU the last digits depend on the size of the batch
        np.testing.assert_allclose(one.descriptors, features[0].descriptors, atol=1e-6)


def test_description_matching_and_search_fall_back_to_the_cpu(monkeypatch, caplog):
    image = photograph(size=(120, 140))
    features = caloric.extract(image, max_features=40)
    descriptors = caloric.describe(image, features.frames)
    indices = caloric.match(features, features).indices
    transform = caloric.find_template(image, [image[30:90, 30:90]]).alignment.transform
    monkeypatch.setattr(upload, "upload", out_of_memory)
    monkeypatch.setattr(gpu_neighbors, "_plain", out_of_memory)
    monkeypatch.setattr(gpu_neighbors, "_fused", out_of_memory)
    monkeypatch.setattr(torch.nn.functional, "conv2d", out_of_memory)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(
            caloric.describe(image, features.frames, device=HERE), descriptors
        )
        np.testing.assert_array_equal(
            caloric.match(features, features, device=HERE).indices, indices
        )
        np.testing.assert_array_equal(
            caloric.find_template(image, [image[30:90, 30:90]], device=HERE).alignment.transform,
            transform,
        )
    logged = " ".join(caplog.messages)
    assert all(what in logged for what in ("image of 120 x 140", "matching 40 x 40", "a search"))


def test_extraction_falls_back_to_the_cpu(monkeypatch, caplog):
    monkeypatch.setattr(upload, "upload", out_of_memory)
    image = photograph(size=(60, 70))
    expected = caloric.extract(image, max_features=20).descriptors
    for same in (image, torch.from_numpy(image)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "caloric"):
            features = caloric.extract(same, max_features=20, device=HERE)
        assert "using the CPU" in caplog.text
        np.testing.assert_array_equal(features.descriptors, expected)
    (on_device,) = caloric.extract([image], max_features=20, device=HERE, on_device=True)
    np.testing.assert_array_equal(on_device.to_host().descriptors, expected)


def test_features_that_do_not_fit_on_the_device_are_computed_on_the_cpu(monkeypatch, caplog):
    """Features that stay on the device are copied from the batch, which takes memory, too."""
    image = photograph(size=(60, 70))
    expected = caloric.extract(image, max_features=20).descriptors
    on_cpu = caloric.match_images(image, image, max_features=20)
    monkeypatch.setattr(download.Parts, "image", out_of_memory)
    single = caloric.extract(image, max_features=20, device=HERE, on_device=True)
    (listed,) = caloric.extract([image], max_features=20, device=HERE, on_device=True)
    for features in (single, listed):
        np.testing.assert_array_equal(features.to_host().descriptors, expected)
    caplog.clear()
    pair = caloric.match_images(image, image, max_features=20, device=HERE)
    assert caplog.text.count("image of 60 x 70: out of device memory; using the CPU") == 2
    assert len(pair) == pytest.approx(len(on_cpu), rel=0.03)
    monkeypatch.setattr(download, "to_device", out_of_memory)
    pair = caloric.match_images(image, image, max_features=20, device=HERE)
    assert len(pair) == pytest.approx(len(on_cpu), rel=0.03)
    for images in (image, [image]):
        caplog.clear()
        with pytest.raises(caloric.InputError, match=r"features do not fit .*on_device=False"):
            caloric.extract(images, max_features=20, device=HERE, on_device=True)
        assert len(caplog.messages) == 1


def test_the_cpu_takes_over_if_a_larger_candidate_buffer_does_not_fit(monkeypatch, caplog):
    extract, capacities = pipeline.extract, []

    def overflow_or_full(images, options, masks, capacity, *others):
        capacities.append(capacity)
        if capacity > pipeline.default_capacity(images.shape[1:]):
            out_of_memory()
        batch = extract(images, options, masks, capacity, *others)
        return replace(batch, overflowed=torch.ones(len(images), dtype=torch.bool))

    monkeypatch.setattr(pipeline, "extract", overflow_or_full)
    image = photograph(size=(60, 70))
    for images in (image, [image]):
        monkeypatch.setattr(graphs, "_capacities", {})
        capacities.clear()
        caplog.clear()
        caloric.extract(images, max_features=None, device=HERE)
        default = pipeline.default_capacity((60, 70))
        assert capacities == [default, 4 * default, 4 * default]
        assert caplog.text.count("out of device memory; using the CPU") == 1
        assert graphs.capacity((60, 70), ExtractOptions(max_features=None)) == default


def test_a_batch_is_released_before_it_is_repeated(monkeypatch):
    begin, batch_refs, alive = batches.begin, [], []

    def watched(*args):
        alive.append([ref() for ref in batch_refs if ref() is not None])
        pending = begin(*args)
        batch_refs.append(weakref.ref(pending))
        return pending

    monkeypatch.setattr(batches, "begin", watched)
    monkeypatch.setattr(download.Parts, "overflowed", property(lambda _: len(alive) % 3 != 0))
    image = photograph(size=(60, 70))
    for images in (image, [image], [image, image]):
        monkeypatch.setattr(graphs, "_capacities", {})
        caloric.extract(images, max_features=20, device=HERE)
    assert alive == [[]] * 9


def test_buffers_that_overflow_at_the_same_time_are_enlarged_once(monkeypatch):
    default = pipeline.default_capacity((60, 70))
    extract, capacities = pipeline.extract, []

    def overflow_once(images, options, masks, capacity, *others):
        capacities.append(capacity)
        batch = extract(images, options, masks, capacity, *others)
        full = torch.ones(len(images), dtype=torch.bool)
        return batch if capacity > default else replace(batch, overflowed=full)

    monkeypatch.setattr(pipeline, "extract", overflow_once)
    monkeypatch.setattr(graphs, "_capacities", {})
    monkeypatch.setattr(batches, "BATCH", 1)
    caloric.extract([photograph(size=(60, 70))] * 3, max_features=None, device=HERE)
    assert capacities == [default] * 3 + [4 * default] * 3


@pytest.mark.parametrize("count", [1, 2])
def test_memory_of_a_failed_attempt_is_free_before_the_next(monkeypatch, count):
    begin, clear, attempts, released = batches.begin, graphs.clear, [], []

    def full_once(*args):
        on_device = torch.zeros(3)
        attempts.append(weakref.ref(on_device))
        return out_of_memory() if len(attempts) == 1 else begin(*args)

    def cleared():
        released.append(attempts[0]() is None)
        clear()

    monkeypatch.setattr(batches, "begin", full_once)
    monkeypatch.setattr(graphs, "clear", cleared)
    caloric.extract([photograph(size=(60, 70))] * count, max_features=20, device=HERE)
    assert released == [True]
    assert len(attempts) == 1 + count  # two images are extracted one by one


def test_extraction_is_repeated_if_the_candidate_buffer_overflows(monkeypatch):
    extract, capacities = pipeline.extract, []

    def overflow_twice(images, options, masks, capacity, sizes, octaves):
        capacities.append(capacity)
        batch = extract(images, options, masks, capacity, sizes, octaves)
        full = torch.ones(len(images), dtype=torch.bool)
        return replace(batch, overflowed=full) if len(capacities) < 3 else batch

    monkeypatch.setattr(pipeline, "extract", overflow_twice)
    monkeypatch.setattr(graphs, "_capacities", {})
    # Without max_features nothing is recorded, which would take another extraction.
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    default = pipeline.default_capacity((60, 70))
    assert capacities == [default, 4 * default, 16 * default]
    # Later images of this size start with the enlarged buffer, even after memory was released.
    graphs.clear()
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    assert capacities[3:] == [16 * default]


def test_incomplete_batches_are_yielded_if_too_many_pixels_wait(monkeypatch):
    monkeypatch.setattr(batches, "_WAITING", 1000)
    items = [(i, (np.zeros((10, 10 + i), np.float32), None)) for i in range(30)]
    parts = list(batches._grouped(iter(items), ExtractOptions(), torch.device("cpu")))
    assert sorted(index for part in parts for index, _ in part) == list(range(30))
    assert len(parts) == 30


def test_an_image_with_too_large_a_pyramid_is_processed_on_the_cpu(monkeypatch, gpu_images, caplog):
    monkeypatch.setattr(batches, "_ADDRESSABLE", 1000)
    image = gpu_images[0].cpu().numpy()
    features = caloric.extract(image, max_features=50, device="cuda")
    assert "using the CPU" in caplog.text
    expected = caloric.extract(image, max_features=50)
    np.testing.assert_array_equal(features.descriptors, expected.descriptors)


def _sizes(items, monkeypatch, **options):
    monkeypatch.setattr(batches.backend, "of", lambda device: SimpleNamespace(compiled=True))
    numbered = enumerate(items)
    parts = batches._grouped(numbered, ExtractOptions(**options), torch.device("cpu"))
    return [[item[0].shape for _, item in part] for part in parts]


def test_images_of_similar_sizes_share_a_batch(monkeypatch):
    similar = [(np.zeros((97 + i % 16, 120), np.uint8), None) for i in range(20)]
    assert [len(part) for part in _sizes(similar, monkeypatch)] == [20]
    others = [
        (np.zeros((400, 120), np.uint8), None),  # too large
        (np.zeros((99, 120, 3), np.uint8), None),  # colors
        (np.zeros((98, 120), np.uint16), None),  # another type
        (np.zeros((97, 120), np.float32), None),  # its range must be checked
        (np.zeros((100, 120), np.uint8), np.ones((100, 120), bool)),  # a mask
        (torch.zeros((100, 120), dtype=torch.uint8), None),
        (np.zeros((113, 120), np.uint8), None),  # more octaves
    ]
    assert len(_sizes(similar + others, monkeypatch)) == 1 + len(others)
    many = [(np.zeros((97 + i % 16, 120), np.uint8), None) for i in range(80)]
    assert [len(part) for part in _sizes(many, monkeypatch)] == [32, 32, 16]
    intensities = _sizes(similar, monkeypatch, descriptor="distribution-field")
    assert len(intensities) == 16  # one for each size


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(("number", "step"), [(11, 3), (3, 0)])  # of different sizes, and padded
def test_features_in_a_padded_batch_are_those_of_single_images(number, step):
    image = photograph()
    images = [image[i : 200 + step * i + i, i : 210 + 2 * step * i + i] for i in range(number)]
    for output in ("float32", "uint8"):
        together = caloric.extract(images, max_features=60, device="cuda", dtype=output)
        for part, features in zip(images, together, strict=True):
            alone = caloric.extract(part, max_features=60, device="cuda", dtype=output)
            assert features.image_size == part.shape
            np.testing.assert_array_equal(features.frames.xy, alone.frames.xy)
            np.testing.assert_allclose(features.frames.maps, alone.frames.maps, atol=1e-4)
            difference = np.abs(np.subtract(features.descriptors, alone.descriptors, dtype=float))
            assert difference.max() <= (1 if output == "uint8" else 1e-3)
