"""Descriptors as SIFT-like bytes, matched as in COLMAP."""

import cv2
import numpy as np
import pytest

import caloric
import photographs
from brick import correct, views
from caloric import synthetic
from caloric.descriptor import normalize
from caloric.interop import conversion


def colmap_nearest(a, b, ratio=0.8):
    """Match as COLMAP's brute-force matcher does: by angles, from dot products of bytes."""
    dots = a.astype(np.int64) @ b.astype(np.int64).T
    angle = np.arccos(np.minimum(dots / 512**2, 1.0))

    def best(distance):
        order = np.argsort(distance, 1, kind="stable")[:, :2]
        first, second = np.take_along_axis(distance, order, 1).T
        return np.where((first < 0.7) & (first < ratio * second), order[:, 0], -1)

    forth, back = best(angle), best(angle.T)
    rows = np.flatnonzero((forth >= 0) & (back[forth] == np.arange(len(a))))
    return np.stack([rows, forth[rows]], 1)


NAMES = ["caloric", "caloric-64", "caloric-unwhitened", "caloric-unlearned"]


@pytest.mark.parametrize("name", NAMES)
def test_colmaps_matcher_matches_sift_bytes(name):
    first, second, change = views()
    a, b = caloric.extract([first, second], name, max_features=600, dtype="uint8")
    values = [conversion.sift_bytes(f) for f in (a, b)]
    lengths = np.linalg.norm(values[0].astype(float), axis=1)
    np.testing.assert_allclose(lengths, 512, rtol=0.02)
    matches = colmap_nearest(*values)
    assert correct(a, b, matches, change) > 100
    assert correct(a, b, matches, change) > 0.9 * len(matches)


def test_undoing_the_whitening_gives_the_descriptor_before_it():
    first, _, _ = views()
    whitened = caloric.extract(first, max_features=300)
    before = caloric.extract(first, "caloric-unwhitened", max_features=300)
    a, b = conversion.sift_like(whitened), conversion.sift_like(before)
    assert a.shape == b.shape == (300, 128)
    assert a.min() == 0
    assert np.median((a * b).sum(1)) > 0.98
    # The stored bytes of a collection give the same up to rounding.
    stored = conversion.sift_like(caloric.extract(first, max_features=300, dtype="uint8"))
    assert (a * stored).sum(1).min() > 0.98


def test_a_ratio_test_of_0_8_keeps_correct_matches_of_a_changed_view():
    """Compare with OpenCV's RootSIFT; whitened descriptors do not pass distance thresholds."""
    image = photographs.gray("astronaut", (400, 400))
    rng = np.random.default_rng(1)
    change = synthetic.draw(rng, image.shape)
    view = synthetic.View(image, synthetic.apply(image, change, rng), change.homography)
    a, b = caloric.extract([view.original, view.changed], max_features=600)

    def count(xy_a, a, xy_b, b):
        matches = colmap_nearest(*(np.rint(512 * v) for v in (a, b)))
        return (view.errors(xy_a[matches[:, 0]], xy_b[matches[:, 1]]) < 3).sum()

    theirs = []
    for pixels in (view.original, view.changed):
        keypoints, values = cv2.SIFT_create(600).detectAndCompute(pixels, None)
        theirs += [np.array([k.pt for k in keypoints]), normalize.root(values)]
    ours = count(a.frames.xy, conversion.sift_like(a), b.frames.xy, conversion.sift_like(b))
    assert ours >= count(*theirs) > 20
    assert ours > 2 * count(a.frames.xy, a.descriptors, b.frames.xy, b.descriptors)


def test_signed_descriptors_of_unknown_recipes_keep_the_ratios_of_distances():
    rng = np.random.default_rng(0)
    values = np.float32(normalize.l2(rng.normal(size=(50, 200))))
    frames = caloric.Frames.from_xysa(*np.ones((3, 50)), 0.0)
    result = conversion.sift_like(caloric.Features(frames, values, (9, 9), "mine", ""))
    before, after = (np.linalg.norm(v[:1] - v[1:], axis=1) for v in (values, result))
    assert result.min() >= 0
    np.testing.assert_allclose(after / after[0], before / before[0], rtol=0.1)
    with pytest.raises(caloric.InputError, match="128 dimensions"):
        conversion.sift_bytes(caloric.Features(frames, values, (9, 9), "mine", ""))
