"""Detection: the same extrema as OpenCV's, and frames that follow the image."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import photographs
from caloric.detector import extrema

CHANGES = {
    "a quarter pixel": (1.0, 0, (0.25, -0.4)),
    "turned 17": (1.0, 17, (0, 0)),
    "turned 90": (1.0, 90, (0, 0)),
    "turned 163": (1.0, 163, (0, 0)),
    "half": (0.5, 0, (0, 0)),
    "double": (2.0, 30, (3.3, 1.1)),
    "triple": (3.0, 0, (0, 0)),
}


def followers(image, change, **options):
    """Frames of the image, where they should be after the map, and frames of the mapped image."""
    h, w = image.shape
    options |= {"contrast": extrema.CONTRAST}
    before = caloric.detect(image, **options)
    after = caloric.detect(photographs.warp(image, change), **options)
    maps = np.concatenate(
        [change[:, :2] @ before.maps[:, :, :2], photographs.apply(change, before.xy)[..., None]], -1
    )
    expected = caloric.Frames(maps, before.scores)
    margin = 8 * expected.sigma[:, None]
    inside = ((expected.xy > margin) & (expected.xy < np.array([w, h]) - margin)).all(1)
    # What becomes smaller than the finest level cannot be found again.
    return expected[inside & (expected.sigma > 1.8) & (before.sigma > 1.8)], after


@pytest.mark.parametrize("change", CHANGES)
def test_frames_follow_the_image(change):
    image = photographs.gray("camera")
    scale, degrees, shift = CHANGES[change]
    affine = photographs.similarity(scale, degrees, shift, (255, 255))
    expected, after = followers(image, affine, max_features=1500 if scale < 2 else None)
    tree = cKDTree(after.xy)
    followed = 0
    for place, sigma, angle in zip(expected.xy, expected.sigma, expected.angle, strict=True):
        near = tree.query_ball_point(place, 0.3 * sigma)
        turns = np.abs((after.angle[near] - angle + np.pi) % (2 * np.pi) - np.pi)
        sizes = np.abs(np.log(after.sigma[near] / sigma))
        followed += bool(((turns < 0.2) & (sizes < 0.2)).any())
    assert len(expected) > 20
    assert followed / len(expected) > (0.7 if scale in (1.0, 2.0, 3.0) else 0.6)


def test_options_of_detect():
    image = photographs.gray("camera")
    every = caloric.detect(image)
    some = caloric.detect(image, max_features=200)
    assert len(some) == 200
    assert (np.diff(every.scores) <= 0).all()
    np.testing.assert_array_equal(some.scores[0], every.scores[0])
    assert (caloric.detect(image, upright=True).angle == 0).all()
    mask = np.zeros(image.shape, np.uint8)
    mask[:, :200] = 255
    assert (caloric.detect(image, mask=mask).xy[:, 0] < 200).all()
    assert len(caloric.detect(image, mask=np.zeros_like(image))) == 0
    assert len(caloric.detect(image, max_features=0)) == 0
    theirs = caloric.detect(image, detector="opencv", max_features=100)
    assert len(theirs) == 100
    with pytest.raises(caloric.InputError, match="unknown detector 'harris'"):
        caloric.detect(image, detector="harris")
    with pytest.raises(caloric.InputError, match="mask: shape"):
        caloric.detect(image, mask=mask[:10])
    with pytest.raises(caloric.InputError, match="max_features"):
        caloric.detect(image, max_features=-1)


@pytest.mark.parametrize(
    "image",
    [
        np.full((64, 64), 0.5),
        np.zeros((1, 1), np.uint8),
        np.zeros((0, 5), np.uint8),
        np.zeros((3, 10_000), np.uint8),
        np.zeros((2, 2, 3), np.uint8),
    ],
)
def test_images_without_features(image):
    assert len(caloric.detect(image)) == 0
    features = caloric.extract(image)
    assert features.descriptors.shape == (0, 128)
    assert features.descriptors.dtype == np.float32
    frames = caloric.Frames.from_xysa([0.0], [0.0], [2.0])
    if image.size:
        assert np.isfinite(caloric.describe(image, frames)).all()


def test_thin_images_with_texture():
    noise = np.random.default_rng(0).random((3, 10_000))
    assert np.isfinite(caloric.extract(noise).descriptors).all()


def test_images_beyond_sixteen_bits_of_pixels():
    """A strip of 40,000 pixels: its features are those of the piece they lie in."""
    piece = photographs.gray("camera")[100:180, :400]
    strip = np.tile(piece, (1, 100))
    assert strip.shape == (80, 40_000)
    found = caloric.extract(strip, max_features=2000)
    assert found.frames.xy[:, 0].max() > 33_000
    # The pattern repeats every 400 pixels, which every octave's pixels do too up to step 16.
    middle = (found.frames.xy[:, 0] > 800) & (found.frames.xy[:, 0] < 39_000)
    small = np.flatnonzero(middle & (found.frames.sigma < 3))
    keys = np.column_stack([found.frames.xy[small] % (400, 1e9), found.frames.angle[small]])
    order = small[np.lexsort(keys.round(2).T)]
    cosines = np.einsum("ij,ij->i", found.descriptors[order][1:], found.descriptors[order][:-1])
    assert np.mean(cosines > 0.999) > 0.8


@pytest.mark.parametrize("affine", [False, True])
def test_an_image_of_nan_says_so(affine):
    for image in (np.full((20, 20), np.nan), np.full((20, 20, 3), np.inf)):
        with pytest.raises(caloric.InputError, match="NaN or infinite"):
            caloric.extract(image, affine=affine)
    with pytest.raises(caloric.InputError, match=r"expected shape \(h, w\)"):
        caloric.extract(np.zeros((5, 5, 2)))
    with pytest.raises(caloric.InputError, match="divide by 255"):
        caloric.extract(photographs.gray("camera").astype(np.float32))
    masked = np.ma.masked_greater(photographs.gray("camera"), 100)
    with pytest.raises(caloric.InputError, match="masked pixels"):
        caloric.extract(masked)
    with pytest.raises(caloric.InputError, match="type int32"):
        caloric.extract(np.zeros((5, 5), np.int32))


def test_a_number_asked_for_is_reached_where_there_is_texture():
    image = photographs.gray("camera").astype(np.float32) / 255
    faint = 0.5 + 0.1 * (image - 0.5)
    assert len(caloric.detect(faint, max_features=None)) < 50
    assert len(caloric.detect(faint, max_features=500)) == 500
    assert len(caloric.detect(image, max_features=2000)) == 2000
    assert len(caloric.detect(image, max_features=None)) < 2000
    # A contrast that is given is kept to.
    all_of_them = caloric.detect(image, max_features=None)
    assert len(caloric.detect(image, max_features=2000, contrast=0.04)) == len(all_of_them)
    flat = np.full((200, 200), 0.5, np.float32)
    assert len(caloric.detect(flat, max_features=500)) == 0
