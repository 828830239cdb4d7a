"""Details of a result: patches, response maps, alignments."""

import cv2
import numpy as np
import pytest

import photographs
from caloric.view import details, images, result, session
from caloric.view.result import Settings
from encoded_images import encode


def test_details_response_maps_and_alignments(viewer):
    pair = viewer.matched(Settings("sift"))
    match = details.detail(viewer.both(), pair, 0)
    assert len(match["a"]["descriptor"]) == 128
    assert match["a"]["patch"].startswith("data:image/png;base64,")
    distance = np.linalg.norm(np.subtract(match["a"]["descriptor"], match["b"]["descriptor"]))
    assert distance == pytest.approx(pair.matches.distances[0], abs=2e-3)
    maps = details.responses(viewer.image("a"), 200, 150, 4)["maps"]
    assert [len(maps[name]) for name in ("sift", "heat")] == [8, 8]
    alignment = viewer.aligned(200, 150, 96)
    assert alignment["converged"]
    truth = photographs.similarity(1.1, 12, (5, -8), (200, 150))
    left, top, _ = alignment["template"]
    corner = truth @ [left, top, 1]
    assert np.hypot(*(np.array(alignment["steps"][-1]["corners"][0]) - corner)) < 1.5
    assert alignment["steps"][0]["sigma"] > alignment["steps"][-1]["sigma"]
    x, y, size = result.suggested_square(pair)
    assert viewer.aligned(x, y, size)["converged"]


def test_patches_rotate_and_scale_with_their_frames():
    image = np.zeros((100, 100), np.float32)
    image[40:60, 50:90] = 1  # right of the center
    right = details.patch(image, np.array([[4.0, 0, 50], [0, 4, 50]]), 6)
    assert right[:, 26:].mean() > 5 * right[:, :22].mean()
    down = details.patch(image, np.array([[0, 4.0, 50], [-4, 0, 50]]), 6)  # +v points right
    assert down[26:].mean() > 5 * down[:22].mean()
    assert (details.patch(image, np.array([[4.0, 0, 900], [0, 4, 900]]), 6) == 0).all()


def test_a_square_without_texture_has_no_alignment():
    flat = np.full((200, 200), 120, np.uint8)
    flat[:, 150:] = photographs.gray("camera", (200, 200))[:, 150:]
    viewer = session.Session()
    for side in "ab":
        viewer.set_image(side, session.LoadedImage.of(f"{side}.png", encode(flat)))
    alignment = viewer.aligned(60, 60, 64)
    assert alignment["steps"] == []
    assert not alignment["converged"]


def test_patches_of_every_descriptor_have_the_same_extent(viewer):
    pair = viewer.matched(Settings())
    for image, maps, side in zip(viewer.both(), result.frames(pair), "ab", strict=True):
        expected = details.patch(image.gray, maps[0], 10.0)
        shown = details.detail(viewer.both(), pair, 0)[side]["patch"]
        assert shown == details.png(details.to_uint8(expected))


def test_alignments_of_large_images_have_full_resolution_coordinates():
    large = cv2.resize(photographs.gray("camera"), (2400, 2400), interpolation=cv2.INTER_CUBIC)
    image = images.LoadedImage.of_pixels("large.png", large)
    path = details.aligned((image, image), 1100, 600, 256)
    left, top, size = path["template"]
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1) + (left, top)
    np.testing.assert_allclose(path["steps"][-1]["corners"], corners, atol=0.15)
