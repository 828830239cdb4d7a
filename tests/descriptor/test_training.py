"""Training of a whitening matrix: the saved file is a descriptor."""

import numpy as np
import pytest

import caloric
import photographs
from caloric.descriptor import recipes, training, whitening


def test_a_trained_whitening_is_used_by_its_file_name(tmp_path):
    image = photographs.gray("camera", (256, 256))
    plain = caloric.extract(image, "caloric-unwhitened", max_features=400)
    path = tmp_path / "mine.npy"
    recipe = caloric.learn_whitening([plain.descriptors], path, dimensions=96)
    features = caloric.extract(image, str(path), max_features=400)
    expected = whitening.apply(plain.descriptors, np.load(path))
    np.testing.assert_allclose(features.descriptors, expected, atol=1e-6)
    assert features.recipe == recipe.fingerprint()
    with pytest.raises(caloric.InputError, match="cannot be compared"):
        caloric.match(features, caloric.extract(image, max_features=50))


def test_a_matrix_that_is_trained_again_is_read_again(tmp_path):
    path, rng = tmp_path / "mine.npy", np.random.default_rng(0)
    first, second = (
        caloric.learn_whitening([rng.random((300, 208))], path, strength=t).fingerprint()
        for t in (0.2, 0.9)
    )
    assert first != second


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"path": "mine.txt"}, "ends in .npy"),
        ({"descriptors": [np.ones((300, 128))]}, "caloric-unwhitened"),
        ({"descriptors": []}, "too few"),
        ({"descriptors": [np.ones((20, 208))]}, "too few"),
        ({"dimensions": 209}, "1 to 208"),
        ({"strength": 2}, "strength"),
    ],
)
def test_invalid_requests(change, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    request = {"descriptors": [np.ones((300, 208))], "path": "mine.npy"} | change
    with pytest.raises(caloric.InputError, match=message):
        training.learn_whitening(**request)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("matrix", "message"),
    [
        (np.ones((5, 5)), "length 5"),
        (np.ones(5), "two axes"),
        (np.full((208, 3), np.nan), "finite"),
    ],
)
def test_files_that_are_no_whitening_matrix(matrix, message, tmp_path):
    np.save(tmp_path / "bad.npy", matrix)
    with pytest.raises(caloric.InputError, match=message):
        recipes.descriptor(str(tmp_path / "bad.npy"))
    (tmp_path / "text.npy").write_text("hello")
    for name in ("text.npy", "missing.npy"):
        with pytest.raises(caloric.InputError, match=name):
            recipes.descriptor(str(tmp_path / name))
