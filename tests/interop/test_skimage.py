"""The interface of ``skimage.feature.SIFT``."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.interop import skimage


def scikit_images_example(extractor):
    """scikit-image's gallery, "SIFT feature detector": right matches with a ratio and without."""
    data, transform = pytest.importorskip("skimage.data"), pytest.importorskip("skimage.transform")
    from skimage.color import rgb2gray
    from skimage.feature import match_descriptors

    first = rgb2gray(data.astronaut())
    change = transform.AffineTransform(scale=(1.3, 1.1), rotation=0.5, translation=(0, -200))
    found = []
    for image in (first, transform.warp(first, change)):
        extractor.detect_and_extract(image)
        found.append((extractor.keypoints, extractor.descriptors))
    (p, a), (q, b) = found
    counts = []
    for ratio in (0.6, 1.0):
        i, j = match_descriptors(a, b, max_ratio=ratio, cross_check=True).T
        apart = change.inverse(p[i][:, ::-1].astype(float)) - q[j][:, ::-1]
        counts.append((np.hypot(*apart.T) < 3).sum())
    return counts


def test_scikit_images_example_with_our_class():
    from skimage.feature import SIFT

    ours, theirs = scikit_images_example(skimage.SIFT()), scikit_images_example(SIFT())
    assert ours[0] >= theirs[0] > 500
    assert ours[1] >= theirs[1]


def test_the_class_has_all_that_scikit_images_has():
    from inspect import signature

    from skimage.feature import SIFT

    theirs, ours = SIFT(), skimage.SIFT()
    known = signature(skimage.SIFT).parameters
    for name, parameter in signature(SIFT).parameters.items():
        assert known[name].default == pytest.approx(parameter.default)
    image = photographs.gray("camera", (120, 120)) / 255.0
    for extractor in (theirs, ours):
        extractor.detect_and_extract(image)
    for name in [*vars(theirs), *dir(theirs)]:
        if not name.startswith("_"):
            assert hasattr(ours, name), name
    assert ours.descriptors.dtype == theirs.descriptors.dtype == np.uint8
    # Theirs has as many octaves as fit into the image.
    levels = theirs.scalespace_sigmas
    np.testing.assert_allclose(ours.scalespace_sigmas[: len(levels)], levels)
    few = skimage.SIFT(n_octaves=1)
    few.detect_and_extract(image)
    assert few.octaves.max() == 0
    assert len(few.descriptors) == len(few.keypoints) < len(ours.keypoints)
    larger = skimage.SIFT(lambda_descr=9)
    larger.detect_and_extract(image)
    assert (larger.descriptors != ours.descriptors).any()
    for wrong, message in (
        ({"n_hist": 2}, "is always"),
        ({"lambda_descr": 9, "descriptor": "caloric"}, "is always"),
        ({"lambda_descr": -1}, "positive"),
        ({"n_octaves": 0}, "from 1"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            skimage.SIFT(**wrong)
    assert ours.keypoints.dtype == theirs.keypoints.dtype
    assert np.abs(ours.orientations).max() <= np.pi
