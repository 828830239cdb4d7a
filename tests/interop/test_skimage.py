"""The interface of ``skimage.feature.SIFT``."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.interop import skimage


def gallery_example(extractor):
    """Run scikit-image's gallery example of SIFT.

    Return the numbers of correct matches with and without a ratio test.
    """
    data, transform = pytest.importorskip("skimage.data"), pytest.importorskip("skimage.transform")
    from skimage.color import rgb2gray
    from skimage.feature import match_descriptors

    first = rgb2gray(data.astronaut())
    change = transform.AffineTransform(scale=(1.3, 1.1), rotation=0.5, translation=(0, -200))
    features = []
    for image in (first, transform.warp(first, change)):
        extractor.detect_and_extract(image)
        features.append((extractor.keypoints, extractor.descriptors))
    (p, a), (q, b) = features
    counts = []
    for ratio in (0.6, 1.0):
        i, j = match_descriptors(a, b, max_ratio=ratio, cross_check=True).T
        offsets = change.inverse(p[i][:, ::-1].astype(float)) - q[j][:, ::-1]
        counts.append((np.hypot(*offsets.T) < 3).sum())
    return counts


def test_the_gallery_example_has_at_least_as_many_correct_matches():
    from skimage.feature import SIFT

    ours, theirs = gallery_example(skimage.SIFT()), gallery_example(SIFT())
    assert ours[0] >= theirs[0] > 500
    assert ours[1] >= theirs[1]


def test_the_class_has_the_interface_of_scikit_image():
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
    # scikit-image has only as many octaves as fit into the image.
    levels = theirs.scalespace_sigmas
    np.testing.assert_allclose(ours.scalespace_sigmas[: len(levels)], levels)
    few = skimage.SIFT(n_octaves=1)
    few.detect_and_extract(image)
    assert few.octaves.max() == 0
    assert len(few.descriptors) == len(few.keypoints) < len(ours.keypoints)
    larger = skimage.SIFT(lambda_descr=9)
    larger.detect_and_extract(image)
    assert (larger.descriptors != ours.descriptors).any()
    for options, message in (
        ({"n_hist": 2}, "is always"),
        ({"lambda_descr": 9, "descriptor": "caloric"}, "is always"),
        ({"lambda_descr": -1}, "positive"),
        ({"n_octaves": 0}, "positive integer"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            skimage.SIFT(**options)
    assert ours.keypoints.dtype == theirs.keypoints.dtype
    assert np.abs(ours.orientations).max() <= np.pi
