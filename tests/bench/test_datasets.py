"""Reading local copies of public data sets."""

import numpy as np
import pytest

from caloric import InputError
from caloric.bench import datasets
from homography_scenes import LAYOUTS, write_scene


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_read(name, tmp_path):
    write_scene(tmp_path, name, ".ppm")
    pairs = datasets.DATASETS[name](tmp_path)
    assert len(pairs) == 5
    assert all(p.first.exists() and p.second.exists() for p in pairs)
    group = {"oxford": "graf", "hpatches": "viewpoint", "fischer": "zoom"}[name]
    assert {p.group for p in pairs} == {group}


def test_missing_and_invalid_data_are_reported(tmp_path):
    with pytest.raises(InputError, match="no such directory"):
        datasets.oxford(tmp_path / "none")
    with pytest.raises(InputError, match="is this the data set"):
        datasets.hpatches(tmp_path)
    write_scene(tmp_path, "oxford")
    (tmp_path / "graf" / "H1to3p").write_text("1 2 3")
    with pytest.raises(InputError, match="not a homography"):
        datasets.oxford(tmp_path)
    np.savetxt(tmp_path / "graf" / "H1to3p", np.ones((3, 3)))
    with pytest.raises(InputError, match="cannot be inverted"):
        datasets.oxford(tmp_path)
    (tmp_path / "graf" / "img2.png").unlink()
    with pytest.raises(InputError, match="no image img2"):
        datasets.oxford(tmp_path)
