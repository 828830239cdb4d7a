"""Detection: the same extrema as OpenCV's, and frames that follow the image."""

import cv2
import numpy as np
import pytest
from scipy.spatial import cKDTree

import caloric
import photographs
from caloric.detector import extrema
from caloric.detector.affine_shape import STRENGTH
from caloric.image import scalespace


def in_common(a, b):
    """The share of extrema (x, y, σ) of a that b has too."""
    distance, nearest = cKDTree(b[:, :2]).query(a[:, :2])
    return np.mean((distance < 0.05 * a[:, 2]) & (np.abs(a[:, 2] / b[nearest, 2] - 1) < 0.03))


@pytest.mark.parametrize("name", ["camera", "brick", "coffee"])
def test_opencv_finds_the_same_extrema(name):
    image = photographs.grey(name)

    def opencv(precise):
        found = cv2.SIFT_create(enable_precise_upscale=precise).detect(image)
        return np.unique([(*k.pt, k.size / 2) for k in found], axis=0)

    frames = caloric.detect(image, upright=True, max_features=None)
    ours = np.column_stack([frames.xy, frames.sigma])
    # OpenCV enlarges as we do, and then forgets the quarter pixel.
    theirs = opencv(precise=False) - (0.25, 0.25, 0)
    fine, theirs = (v[v[:, 2] < 1.7] for v in (ours, theirs))
    # We accept more: OpenCV drops an extremum unless it settles within half a sample.
    assert in_common(theirs, fine) > 0.92
    assert in_common(fine, theirs) > 0.78
    # Coarser octaves have their pixels where the image has them, as OpenCV's have when it enlarges
    # in its other way.
    theirs = opencv(precise=True)
    coarse, theirs = (v[v[:, 2] > 4] for v in (ours, theirs))
    assert in_common(theirs, coarse) > 0.85
    assert in_common(coarse, theirs) > 0.75


def test_scale_space_is_the_blur_it_claims():
    """The levels of a Gaussian blob are Gaussian blobs of the added width, at the same place."""
    y, x = np.mgrid[:120, :140].astype(np.float64)
    width, centre = 6.0, (63.3, 51.8)
    r2 = (x - centre[0]) ** 2 + (y - centre[1]) ** 2
    space = scalespace.build(np.exp(-r2 / (2 * width**2)).astype(np.float32))
    for level in space.ladder().levels[:12]:
        h, w = level.pixels.shape
        v, u = np.mgrid[:h, :w] * level.step + level.origin
        # Enlarged, the image is taken to have a blur of its own, and has some more.
        added = 3 / 16 - scalespace.CAMERA**2 if level.step < 1 else 0
        total = width**2 + level.sigma**2 + added
        there = np.exp(-((u - centre[0]) ** 2 + (v - centre[1]) ** 2) / (2 * total))
        expected = there * width**2 / total
        inner = (slice(h // 5, -h // 5), slice(w // 5, -w // 5))
        assert np.abs(level.pixels - expected)[inner].max() < 0.004


def test_a_window_on_an_octave_is_that_octave():
    image = np.random.default_rng(0).random((90, 110)).astype(np.float32)
    whole = scalespace.octave(scalespace.Base(image, scalespace.SHARP, 1.0))
    reach = scalespace.reach(scalespace.SHARP)
    part = scalespace.octave(scalespace.Base(image[:, 10:], scalespace.SHARP, 1.0, (10, 0)))
    expected = whole.pixels[:, :, 10 + reach :]
    np.testing.assert_allclose(part.pixels[:, :, reach:], expected, atol=1e-6)


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
    image = photographs.grey("camera")
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


@pytest.mark.parametrize(("ratio", "turn"), [(1.0, 0.0), (1.4, 2.5), (2.0, 0.5), (2.8, 1.2)])
def test_affine_frames_take_the_shape_of_a_blob(ratio, turn):
    """A round frame on an elliptic blob becomes most of the ellipse, and keeps its σ."""
    y, x = np.mgrid[:200, :200] - 100.0
    u, v = np.cos(turn) * x + np.sin(turn) * y, -np.sin(turn) * x + np.cos(turn) * y
    image = 0.2 + 0.6 * np.exp(-(u**2 / ratio + v**2 * ratio) / (2 * 8**2))
    frames = [caloric.detect(image, affine=adapt, upright=True) for adapt in (False, True)]
    round_, adapted = (f[[np.argmin(np.hypot(*(f.xy - 100).T))]] for f in frames)
    np.testing.assert_allclose(adapted.sigma, round_.sigma, rtol=1e-6)
    A = adapted.maps[0, :, :2]
    values, vectors = np.linalg.eigh(A @ A.T)
    assert np.sqrt(values[1] / values[0]) == pytest.approx(ratio**STRENGTH, rel=0.1)
    if ratio > 1:
        angle = np.arctan2(vectors[1, 1], vectors[0, 1])
        assert abs((angle - turn + np.pi / 2) % np.pi - np.pi / 2) < 0.05


def test_options_of_detect():
    image = photographs.grey("camera")
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
    piece = photographs.grey("camera")[100:180, :400]
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
        caloric.extract(photographs.grey("camera").astype(np.float32))
    masked = np.ma.masked_greater(photographs.grey("camera"), 100)
    with pytest.raises(caloric.InputError, match="masked pixels"):
        caloric.extract(masked)
    with pytest.raises(caloric.InputError, match="type int32"):
        caloric.extract(np.zeros((5, 5), np.int32))


def test_a_number_asked_for_is_reached_where_there_is_texture():
    image = photographs.grey("camera").astype(np.float32) / 255
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
