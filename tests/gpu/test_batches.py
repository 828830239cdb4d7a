"""Batches of images: their order, and what does not fit into memory."""

import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

import caloric
from caloric.gpu import batches, graphs, pipeline, upload
from caloric.gpu import neighbors as gpu_neighbors
from torch_device import HERE, out_of_memory, photograph


def test_images_of_different_sizes_come_back_in_their_order():
    whole = photograph()
    parts = [whole, whole[:120, :200], np.zeros((0, 5), np.uint8), whole, whole[:120, :200]]
    found = caloric.extract(parts, max_features=60, device=HERE)
    assert [f.image_size for f in found] == [(300, 260), (120, 200), (0, 5), (300, 260), (120, 200)]
    assert len(found[2]) == 0
    # On a GPU the last digit depends on the place in the batch.
    np.testing.assert_allclose(found[0].descriptors, found[3].descriptors, atol=1e-6)
    np.testing.assert_allclose(found[1].frames.maps, found[4].frames.maps, rtol=1e-12)
    cpu = caloric.extract(parts, max_features=60)
    assert [f.image_size for f in cpu] == [f.image_size for f in found]
    for a, b in zip(cpu, found, strict=True):
        assert len(a) == len(b)
    masks = [None, np.zeros((120, 200), bool), None, None, None]
    found = caloric.extract(parts, max_features=60, device=HERE, mask=masks)
    assert [len(f) for f in found] == [60, 0, 0, 60, len(found[4])]
    with pytest.raises(caloric.InputError, match="list of 5 masks"):
        caloric.extract(parts, mask=masks[1])


def test_a_batch_that_does_not_fit_is_halved(monkeypatch, caplog):
    whole, tried = batches.begin, []

    def small(batch, plan, device, stay):
        tried.append(len(batch))
        if len(batch) > 2:
            raise torch.OutOfMemoryError("no room")
        return whole(batch, plan, device, stay)

    monkeypatch.setattr(batches, "begin", small)
    images = [photograph(size=(60, 70))] * 7
    with caplog.at_level(logging.WARNING, "caloric"):
        found = caloric.extract(images, max_features=20, device=HERE)
    assert tried == [7, 3, 1, 2, 4, 2, 2]
    assert "7 images of 60 x 70 do not fit" in caplog.text
    for one in found:  # on a GPU the last digit depends on the size of the batch
        np.testing.assert_allclose(one.descriptors, found[0].descriptors, atol=1e-6)


def test_description_matching_and_search_that_do_not_fit_are_done_on_the_cpu(monkeypatch, caplog):
    image = photograph(size=(120, 140))
    found = caloric.extract(image, max_features=40)
    expected = caloric.describe(image, found.frames), caloric.match(found, found).indices
    moved = caloric.find_template(image, [image[30:90, 30:90]]).alignment.transform
    monkeypatch.setattr(upload, "upload", out_of_memory)
    monkeypatch.setattr(gpu_neighbors, "_plain", out_of_memory)
    monkeypatch.setattr(gpu_neighbors, "_fused", out_of_memory)
    monkeypatch.setattr(torch.nn.functional, "conv2d", out_of_memory)
    with caplog.at_level(logging.WARNING):
        np.testing.assert_array_equal(
            caloric.describe(image, found.frames, device=HERE), expected[0]
        )
        np.testing.assert_array_equal(caloric.match(found, found, device=HERE).indices, expected[1])
        np.testing.assert_array_equal(
            caloric.find_template(image, [image[30:90, 30:90]], device=HERE).alignment.transform,
            moved,
        )
    told = " ".join(caplog.messages)
    assert all(what in told for what in ("image of 120 x 140", "matching 40 x 40", "a search"))


def test_an_image_that_does_not_fit_is_done_on_the_cpu(monkeypatch, caplog):
    monkeypatch.setattr(upload, "upload", out_of_memory)
    image = photograph(size=(60, 70))
    expected = caloric.extract(image, max_features=20).descriptors
    for same in (image, torch.from_numpy(image)):
        caplog.clear()
        with caplog.at_level(logging.WARNING, "caloric"):
            found = caloric.extract(same, max_features=20, device=HERE)
        assert "on the CPU" in caplog.text
        np.testing.assert_array_equal(found.descriptors, expected)
    (stays,) = caloric.extract([image], max_features=20, device=HERE, on_device=True)
    np.testing.assert_array_equal(stays.to_host().descriptors, expected)


def test_more_candidates_than_there_is_room_for_are_looked_for_again(monkeypatch):
    whole, tried = pipeline.extract, []

    def crowded(images, plan, masks=None, capacity=0):
        tried.append(capacity)
        batch = whole(images, plan, masks, capacity)
        full = torch.ones(len(images), dtype=torch.bool)
        return replace(batch, crowded=full) if len(tried) < 3 else batch

    monkeypatch.setattr(pipeline, "extract", crowded)
    # Without a limit, so that nothing is recorded, which takes another extraction.
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    room = pipeline.room((60, 70))
    assert tried == [room, 4 * room, 16 * room]
    # Images of this kind begin there from now on.
    caloric.extract(photograph(size=(60, 70)), max_features=None, device=HERE)
    assert tried[3:] == [16 * room]
    graphs.forget()


def test_batches_of_many_sizes_do_not_wait_without_end(monkeypatch):
    monkeypatch.setattr(batches, "_WAITING", 1000)
    items = [(i, (np.zeros((10, 10 + i), np.float32), None)) for i in range(30)]
    parts = list(batches._by_kind(iter(items)))
    assert sorted(index for part in parts for index, _ in part) == list(range(30))
    assert len(parts) == 30


def test_an_image_with_too_many_elements_is_processed_on_the_cpu(monkeypatch, gpu_images, caplog):
    monkeypatch.setattr(batches, "_ADDRESSABLE", 1000)
    image = gpu_images[0].cpu().numpy()
    found = caloric.extract(image, max_features=50, device="cuda")
    assert "on the CPU" in caplog.text
    expected = caloric.extract(image, max_features=50)
    np.testing.assert_array_equal(found.descriptors, expected.descriptors)
