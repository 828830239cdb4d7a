"""The interface of vismatch."""

import subprocess
import sys

import cv2
import numpy as np
import pytest

import caloric
from brick import views
from caloric.interop.vismatch import Caloric

# The keys of the results of vismatch.
KEYS = {
    "num_inliers", "H", "all_kpts0", "all_kpts1", "all_desc0", "all_desc1", "matched_kpts0",
    "matched_kpts1", "inlier_kpts0", "inlier_kpts1",
}  # fmt: skip


@pytest.fixture(scope="module")
def matcher():
    return Caloric(device="cpu", max_num_keypoints=300)


def channels_first(image):
    return np.repeat(image[None] / np.float32(255), 3, 0)


def check(result):
    """Test what vismatch's base class asserts about the result of a matcher."""
    assert set(result) == KEYS
    for side in "01":
        for name in ("all_kpts", "matched_kpts", "inlier_kpts"):
            assert result[f"{name}{side}"].ndim == 2
            assert result[f"{name}{side}"].shape[1] == 2
        assert len(result[f"all_desc{side}"]) == len(result[f"all_kpts{side}"])
        assert len(result[f"inlier_kpts{side}"]) == result["num_inliers"]
    assert result["matched_kpts0"].shape == result["matched_kpts1"].shape


def test_homography_and_inliers_agree_with_the_known_change(matcher):
    first, second, change = views()
    result = matcher(channels_first(first), channels_first(second))
    check(result)
    assert result["num_inliers"] > 100
    assert len(result["all_kpts0"]) >= 300
    mapped = cv2.perspectiveTransform(result["inlier_kpts0"][None], result["H"])[0]
    assert np.linalg.norm(mapped - result["inlier_kpts1"], axis=1).max() <= 3
    expected = result["inlier_kpts0"] @ np.asarray(change)[:2, :2].T + np.asarray(change)[:2, 2]
    assert np.median(np.abs(expected - result["inlier_kpts1"])) < 0.5
    # Other code can estimate the same homography from the result.
    other, _ = cv2.findHomography(
        result["matched_kpts0"], result["matched_kpts1"], cv2.USAC_MAGSAC, 3, 0.95, 2000
    )
    np.testing.assert_allclose(other / other[2, 2], result["H"] / result["H"][2, 2], atol=0.5)


def test_tensors_arrays_and_paths_give_the_same_result(matcher, tmp_path):
    torch = pytest.importorskip("torch")
    paths = [tmp_path / "a.png", tmp_path / "b.png"]
    for path, image in zip(paths, views()[:2], strict=True):
        cv2.imwrite(str(path), image)
    expected = matcher(*paths)
    forms = [
        [torch.from_numpy(channels_first(image)) for image in views()[:2]],
        [torch.from_numpy(image[None] / np.float32(255)) for image in views()[:2]],
        [np.moveaxis(channels_first(image), 0, -1) for image in views()[:2]],
        list(views()[:2]),
        [str(path) for path in paths],
    ]
    for images in forms:
        result = matcher(*images)
        check(result)
        assert abs(result["num_inliers"] - expected["num_inliers"]) < 10
        np.testing.assert_allclose(result["H"], expected["H"], atol=0.05)


def test_images_without_a_homography_have_no_inliers(matcher):
    rng = np.random.default_rng(0)
    result = matcher(rng.random((3, 90, 80)), rng.random((3, 80, 90)))
    check(result)
    assert (result["H"], result["num_inliers"]) == (None, 0)
    assert result["inlier_kpts0"].shape == (0, 2)
    check(matcher(np.zeros((3, 40, 40)), np.zeros((3, 40, 40))))


def test_invalid_options_are_errors_before_the_first_call():
    for options in ({"max_num_keypoints": -1}, {"descriptor": "surf"}, {"views": 3}):
        with pytest.raises(caloric.InputError):
            Caloric(**options)


def test_arrays_do_not_need_torch():
    code = (
        "import sys; sys.modules['torch'] = None\n"
        "import numpy as np\n"
        "from caloric.interop.vismatch import Caloric\n"
        "image = np.random.default_rng(0).random((3, 60, 60))\n"
        "print(Caloric(max_num_keypoints=50)(image, image)['num_inliers'] > 5)"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "True"
