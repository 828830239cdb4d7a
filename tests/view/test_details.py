"""Details of a result: patches, response maps, alignments."""

import cv2
import numpy as np
import pytest

import photographs
from caloric.view import details, images, result, session
from caloric.view.result import Settings
from pair_of_pictures import encoded


def test_details_responses_and_paths(showing):
    found = showing.matched(Settings("sift"))
    one = details.detail(showing.both(), found, 0)
    assert len(one["a"]["descriptor"]) == 128
    assert one["a"]["patch"].startswith("data:image/png;base64,")
    apart = np.linalg.norm(np.subtract(one["a"]["descriptor"], one["b"]["descriptor"]))
    assert apart == pytest.approx(found.matches.distances[0], abs=2e-3)
    maps = details.responses(showing.picture("a"), 200, 150, 4)["maps"]
    assert [len(maps[name]) for name in ("sift", "heat")] == [8, 8]
    path = showing.aligned(200, 150, 96)
    assert path["converged"]
    truth = photographs.similarity(1.1, 12, (5, -8), (200, 150))
    left, top, _ = path["template"]
    corner = truth @ [left, top, 1]
    assert np.hypot(*(np.array(path["steps"][-1]["corners"][0]) - corner)) < 1.5
    assert path["steps"][0]["sigma"] > path["steps"][-1]["sigma"]
    x, y, size = result.place(found)
    assert showing.aligned(x, y, size)["converged"]  # the one that plays by itself


def test_patches_rotate_and_scale_with_their_frames():
    image = np.zeros((100, 100), np.float32)
    image[40:60, 50:90] = 1  # to the right of the middle
    right = details.patch(image, np.array([[4.0, 0, 50], [0, 4, 50]]), 6)
    assert right[:, 26:].mean() > 5 * right[:, :22].mean()
    down = details.patch(image, np.array([[0, 4.0, 50], [-4, 0, 50]]), 6)  # +v points right
    assert down[26:].mean() > 5 * down[:22].mean()
    assert (details.patch(image, np.array([[4.0, 0, 900], [0, 4, 900]]), 6) == 0).all()


def test_a_patch_without_texture_has_no_path():
    flat = np.full((200, 200), 120, np.uint8)
    flat[:, 150:] = photographs.gray("camera", (200, 200))[:, 150:]
    showing = session.Session()
    for side in "ab":
        showing.put(side, session.LoadedImage.of(f"{side}.png", encoded(flat)))
    found = showing.aligned(60, 60, 64)
    assert found["steps"] == []
    assert not found["converged"]


def test_patches_show_the_same_surroundings_for_every_descriptor(showing):
    found = showing.matched(Settings())
    for picture, maps, side in zip(showing.both(), result.frames(found), "ab", strict=True):
        wide = details.patch(picture.gray, maps[0], 10.0)
        shown = details.detail(showing.both(), found, 0)[side]["patch"]
        assert shown == details.png(details.gray_byte(wide))


def test_alignments_in_reduced_images_have_the_coordinates_of_the_full_ones():
    large = cv2.resize(photographs.gray("camera"), (2400, 2400), interpolation=cv2.INTER_CUBIC)
    image = images.LoadedImage.of_pixels("large.png", large)
    path = details.aligned((image, image), 1100, 600, 256)
    left, top, size = path["template"]
    corners = np.array([[0, 0], [1, 0], [1, 1], [0, 1]]) * (size - 1) + (left, top)
    np.testing.assert_allclose(path["steps"][-1]["corners"], corners, atol=0.15)
