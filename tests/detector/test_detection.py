"""Detection: covariance of frames, options, and unusual images."""

import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import photographs
from caloric.detector import extrema

CHANGES = {
    "a quarter pixel": (1.0, 0, (0.25, -0.4)),
    "rotation by 17": (1.0, 17, (0, 0)),
    "rotation by 90": (1.0, 90, (0, 0)),
    "rotation by 163": (1.0, 163, (0, 0)),
    "half": (0.5, 0, (0, 0)),
    "double": (2.0, 30, (3.3, 1.1)),
    "triple": (3.0, 0, (0, 0)),
}


def mapped_and_detected(image, change, **options):
    """The frames of an image mapped by an affine change, and the frames of the warped image."""
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
    # Frames below the finest scale cannot be detected.
    return expected[inside & (expected.sigma > 1.8) & (before.sigma > 1.8)], after


@pytest.mark.parametrize("change", CHANGES)
def test_frames_are_covariant(change):
    image = photographs.gray("camera")
    scale, degrees, shift = CHANGES[change]
    affine = photographs.similarity(scale, degrees, shift, (255, 255))
    limit = 1500 if scale < 2 else None
    expected, after = mapped_and_detected(image, affine, max_features=limit)
    tree = cKDTree(after.xy)
    repeated = 0
    for xy, sigma, angle in zip(expected.xy, expected.sigma, expected.angle, strict=True):
        near = tree.query_ball_point(xy, 0.3 * sigma)
        angles = np.abs((after.angle[near] - angle + np.pi) % (2 * np.pi) - np.pi)
        scales = np.abs(np.log(after.sigma[near] / sigma))
        repeated += bool(((angles < 0.2) & (scales < 0.2)).any())
    assert len(expected) > 20
    assert repeated / len(expected) > (0.7 if scale in (1.0, 2.0, 3.0) else 0.6)


def test_options_of_detect():
    image = photographs.gray("camera")
    every = caloric.detect(image)
    some = caloric.detect(image, max_features=200)
    assert len(some) == 200
    np.testing.assert_array_equal(some.maps, every.maps[:200])
    positions = len(np.unique(every.xy, axis=0))
    assert 200 < positions < len(every)
    for part in (every[:positions], every[positions:]):
        assert (np.diff(part.scores) <= 0).all()
    assert len(np.unique(every[:positions].xy, axis=0)) == positions
    assert (caloric.detect(image, upright=True).angle == 0).all()
    mask = np.zeros(image.shape, np.uint8)
    mask[:, :200] = 255
    assert (caloric.detect(image, mask=mask).xy[:, 0] < 200).all()
    assert len(caloric.detect(image, mask=np.zeros_like(image))) == 0
    assert len(caloric.detect(image, max_features=0)) == 0
    assert len(caloric.detect(image, detector="opencv", max_features=100)) == 100
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
def test_images_without_texture_have_no_features(image):
    assert len(caloric.detect(image)) == 0
    features = caloric.extract(image)
    assert features.descriptors.shape == (0, 128)
    assert features.descriptors.dtype == np.float32
    frames = caloric.Frames.from_xysa([0.0], [0.0], [2.0])
    if image.size:
        assert np.isfinite(caloric.describe(image, frames)).all()


def test_thin_images_have_finite_descriptors():
    noise = np.random.default_rng(0).random((3, 10_000))
    assert np.isfinite(caloric.extract(noise).descriptors).all()


def test_images_wider_than_16_bit_coordinates():
    """The features of a strip of 40,000 pixels repeat with its pattern."""
    piece = photographs.gray("camera")[100:180, :400]
    strip = np.tile(piece, (1, 100))
    assert strip.shape == (80, 40_000)
    features = caloric.extract(strip, max_features=2000)
    frames = features.frames
    assert frames.xy[:, 0].max() > 33_000
    # The pattern repeats every 400 pixels, a multiple of the pixel size of octaves up to step 16.
    middle = (frames.xy[:, 0] > 800) & (frames.xy[:, 0] < 39_000)
    small = np.flatnonzero(middle & (frames.sigma < 3))
    keys = np.column_stack([frames.xy[small] % (400, 1e9), frames.angle[small]])
    ordered = features.descriptors[small[np.lexsort(keys.round(2).T)]]
    cosines = np.einsum("ij,ij->i", ordered[1:], ordered[:-1])
    assert np.mean(cosines > 0.999) > 0.8


@pytest.mark.parametrize("affine", [False, True])
def test_invalid_images_are_errors(affine):
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


def test_a_requested_number_of_features_lowers_the_contrast():
    image = photographs.gray("camera").astype(np.float32) / 255
    faint = 0.5 + 0.1 * (image - 0.5)
    assert len(caloric.detect(faint, max_features=None)) < 50
    assert len(caloric.detect(faint, max_features=500)) == 500
    assert len(caloric.detect(image, max_features=2000)) == 2000
    assert len(caloric.detect(image, max_features=None)) < 2000
    # An explicit contrast is not lowered.
    unlimited = caloric.detect(image, max_features=None)
    assert len(caloric.detect(image, max_features=2000, contrast=0.04)) == len(unlimited)
    flat = np.full((200, 200), 0.5, np.float32)
    assert len(caloric.detect(flat, max_features=500)) == 0
