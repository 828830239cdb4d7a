"""COLMAP databases, written and read by pycolmap."""

import numpy as np
import pytest

import caloric
from caloric.collection import exporting, store
from caloric.interop import colmap, colmap_command, conversion
from stores import run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_colmap_reads_the_database(matched, originals):
    pycolmap = pytest.importorskip("pycolmap")
    out, verified = matched
    (path,) = exporting.export(out, "colmap", originals).paths
    database = pycolmap.Database.open(str(path))
    try:
        assert database.num_images() == 6
        assert database.num_verified_image_pairs() == verified
        stored = dict(exporting.images(out))
        for image in database.read_all_images():
            keypoints, features = database.read_keypoints(image.image_id), stored[image.name]
            np.testing.assert_allclose(keypoints[:, :2] - 0.5, features.frames.xy, atol=1e-3)
            assert keypoints.shape[1] == 6
            descriptors = database.read_descriptors(image.image_id)
            expected = conversion.sift_bytes(features)
            np.testing.assert_array_equal(np.asarray(descriptors.data), expected)
    finally:
        database.close()
    frames = colmap.read_frames(path)
    for name, features in stored.items():
        np.testing.assert_allclose(frames[name].maps, features.frames.maps, atol=1e-3)
    with pytest.raises(caloric.InputError, match="no such database"):
        colmap.read_frames(out / "none.db")


def test_invalid_inputs_of_colmap_are_errors(matched, tmp_path):
    pytest.importorskip("pycolmap")
    out, _ = matched
    with pytest.raises(caloric.InputError, match="does not exist"):
        exporting.export(out, "colmap", tmp_path)
    (tmp_path / "bad.db").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(caloric.InputError, match="COLMAP"):
        colmap.read_frames(tmp_path / "bad.db")
    with pytest.raises(caloric.InputError, match="extract them first"):
        exporting.export(tmp_path / "nowhere", "colmap")


def test_a_missing_colmap_is_an_error_before_the_work(originals, tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "available", lambda: False)
    monkeypatch.setattr(colmap_command, "executable", lambda: None)
    result = run("collection", "run", originals, "-o", tmp_path / "out")
    assert isinstance(result.exception, caloric.InputError)
    assert "apt-get install colmap" in str(result.exception)
    assert "export --to text" in str(result.exception)
    assert not (tmp_path / "out").exists()
