"""``python -m tools search``: each build is compared with its float32 and with faiss."""

import numpy as np
import pytest
from PIL import Image

import caloric
import photographs
from caloric.runtime import native
from tools import search


@pytest.fixture
def images(tmp_path):
    paths = [tmp_path / f"{name}.png" for name in ("camera", "coins")]
    for path in paths:
        pixels = (255 * photographs.gray(path.stem)).astype(np.uint8)
        Image.fromarray(pixels).save(path)
    return paths


def test_each_build_is_measured(images):
    pytest.importorskip("faiss")
    kinds = native.core().kinds()
    (machine,) = search.run(images, 200, 1, lambda message: None)["machines"]
    names = {name.removesuffix(", bytes") for name in machine["kinds"]}
    assert names <= set(kinds)
    assert kinds[0] in names or kinds[0] in ("neon", "portable")
    for values in machine["kinds"].values():
        assert all(len(v) == 1 and v[0] > 0 for v in values.values())
    assert native.core().kind() == kinds[0]


def test_images_with_few_features_are_an_error(images):
    with pytest.raises(caloric.InputError, match="fewer than 100000 features"):
        search.run(images, 100_000, 1, lambda message: None)
