"""COLMAP databases and hloc files are read by image and by pair."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

import caloric
from caloric.collection import match_files
from caloric.interop import colmap_tables
from caloric.interop.colmap_tables import CameraRow, PairGeometry

h5py = pytest.importorskip("h5py")
CAMERA = CameraRow(0, 64, 48, np.array([60.0, 32, 24]).tobytes(), 0)


def write_hloc(directory, pairs, **values):
    directory.mkdir(exist_ok=True)
    with h5py.File(directory / "feats.h5", "w") as file:
        for name in ("x/a.png", "b.png"):
            file[f"{name}/keypoints"] = np.arange(10, dtype=np.float16).reshape(5, 2)
            for key, value in values.items():
                file[f"{name}/{key}"] = value
    with h5py.File(directory / "matches.h5", "w") as file:
        for (a, b), nearest in pairs.items():
            file[f"{a}/{b}/matches0"] = np.array(nearest)
    return directory / "feats.h5", directory / "matches.h5"


def test_hloc_pairs_of_both_orders_are_one_pair(tmp_path):
    pairs = {("x-a.png", "b.png"): [3, -1, -1, -1, 0], ("b.png", "x-a.png"): [4, 2, -1, -1, -1]}
    files = write_hloc(tmp_path, pairs, scales=np.full(5, 3.0), image_size=[64, 48])
    with match_files.opened(files) as source:
        assert source.counts == {"x/a.png": 5, "b.png": 5}
        assert source.pairs == {("b.png", "x/a.png")}
        content = source.pair("b.png", "x/a.png")
        assert content.matches.tolist() == [[0, 4], [1, 2], [3, 0]]
        assert content.geometry is None
        assert source.size("b.png") == (64, 48)
        assert source.camera("b.png") is None
        keypoints = source.keypoints("x/a.png", 2.5)
        assert keypoints.has_scale
        np.testing.assert_allclose(keypoints.maps[2], [[3, 0, 4], [0, 3, 5]])


def test_scales_of_hloc_may_be_unknown(tmp_path):
    with match_files.opened(write_hloc(tmp_path, {})) as source:
        keypoints = source.keypoints("b.png", 1.5)
        assert not keypoints.has_scale
        np.testing.assert_allclose(keypoints.maps[0], [[1.5, 0, 0], [0, 1.5, 1]])
        assert source.size("b.png") is None


def write_database(path):
    with colmap_tables.created(path) as tables:
        number = tables.add_camera(CAMERA)
        for name in ("z.png", "a.png"):
            tables.add_image(name, number, np.arange(10, dtype=np.float32).reshape(5, 2))
        matches = np.array([[0, 1], [2, 3]], np.uint32)
        tables.add_matches("z.png", "a.png", matches)
        geometry = PairGeometry(2, {"F": np.arange(9.0).reshape(3, 3), "H": np.diag([2.0, 2, 1])})
        tables.add_geometry("z.png", "a.png", matches[1:], geometry)
    return path


def test_databases_are_read_in_the_order_of_names(tmp_path):
    path = write_database(tmp_path / "a.db")
    with match_files.opened((path,)) as source:
        assert source.pairs == {("a.png", "z.png")}
        content = source.pair("a.png", "z.png")
        assert source.camera("a.png") == (1, CAMERA)
        assert source.size("a.png") == (64, 48)
        keypoints = source.keypoints("a.png", 2.5)
        assert source.pair("a.png", "missing.png").matches.shape == (0, 2)
    assert content.matches.tolist() == [[1, 0], [3, 2]]
    assert content.inliers.tolist() == [[3, 2]]
    assert content.geometry.configuration == 2
    np.testing.assert_array_equal(content.geometry.matrices["F"], np.arange(9.0).reshape(3, 3).T)
    np.testing.assert_allclose(content.geometry.matrices["H"], np.diag([0.5, 0.5, 1]))
    assert not keypoints.has_scale
    np.testing.assert_allclose(keypoints.maps[:, :, 2][0], [-0.5, 0.5])


def test_columns_of_later_versions_are_ignored(tmp_path):
    path = write_database(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("ALTER TABLE descriptors ADD COLUMN type INTEGER")
        opened.execute("CREATE TABLE rigs (rig_id INTEGER)")
        for column in ("prior_qw", "prior_tz"):
            opened.execute(f"ALTER TABLE images DROP COLUMN {column}")
    with match_files.opened((path,)) as source:
        assert len(source.pair("a.png", "z.png").matches) == 2


def test_damaged_databases(tmp_path):
    path = write_database(tmp_path / "a.db")
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("UPDATE keypoints SET data = x'00' WHERE image_id = 1")
        opened.execute("UPDATE matches SET rows = 7")
    with match_files.opened((path,)) as source:
        with pytest.raises(caloric.InputError, match=r"a\.db: the keypoints of z\.png are damaged"):
            source.keypoints("z.png", 1)
        with pytest.raises(caloric.InputError, match=r"a\.db: the matches of z\.png, a\.png"):
            source.pair("a.png", "z.png")
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.execute("DELETE FROM images WHERE image_id = 1")
    with pytest.raises(caloric.InputError, match="unknown images"), match_files.opened((path,)):
        pass


def test_inputs_are_resolved(tmp_path):
    database = write_database(tmp_path / "a.db")
    files = write_hloc(tmp_path / "hloc", {("x-a.png", "b.png"): [1, -1, -1, -1, -1]})
    store = tmp_path / "store"
    (store / "colmap").mkdir(parents=True)
    exported = write_database(store / "colmap" / "database.db")
    inputs = [database, *files, store, tmp_path / "hloc"]
    assert match_files.resolved(inputs) == [(database,), files, (exported,), files]
    for inputs, reason in (
        ([files[1], files[0]], "put its feature file before it"),
        ([files[0], database], "put its match file after it"),
        ([files[0]], "put its match file after it"),
        ([tmp_path / "missing"], "no such file"),
    ):
        with pytest.raises(caloric.InputError, match=reason):
            match_files.resolved(inputs)
