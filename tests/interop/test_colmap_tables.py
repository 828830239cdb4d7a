"""Tables of COLMAP databases, written with sqlite3."""

import sqlite3
from contextlib import closing

import numpy as np
import pytest

import caloric
from caloric.interop import colmap_tables
from caloric.matching.two_views import TwoViews


@pytest.fixture
def database(tmp_path):
    path = tmp_path / "database.db"
    with closing(sqlite3.connect(path)) as created, created:
        created.execute("CREATE TABLE cameras (camera_id, model, params, prior_focal_length)")
        created.execute("CREATE TABLE images (image_id, name, camera_id)")
        for table in ("keypoints", "descriptors"):
            created.execute(f"CREATE TABLE {table} (image_id, rows, cols, data)")
        created.execute("CREATE TABLE matches (pair_id, rows, cols, data)")
        created.execute(
            "CREATE TABLE two_view_geometries (pair_id, rows, cols, data, config, F, H)"
        )
        parameters = np.array([900.0, 320, 240, 0]).tobytes()
        for number, name in enumerate("abc", 1):
            created.execute("INSERT INTO cameras VALUES (?, 2, ?, 0)", (number, parameters))
            created.execute("INSERT INTO images VALUES (?, ?, ?)", (number, name, number))
            for table in ("keypoints", "descriptors"):
                created.execute(f"INSERT INTO {table} VALUES (?, 1, 2, NULL)", (number,))
    return path


def rows(path, query):
    with closing(sqlite3.connect(path)) as opened:
        return opened.execute(query).fetchall()


def test_features_replace_those_of_one_image(database):
    keypoints = np.arange(12, dtype=np.float32).reshape(2, 6)
    descriptors = np.full((2, 128), 7, np.uint8)
    with colmap_tables.opened(database) as tables:
        tables.replace_features("b", keypoints, descriptors)
    assert rows(database, "SELECT image_id, rows, cols FROM keypoints") == [
        (1, 1, 2), (2, 2, 6), (3, 1, 2),
    ]  # fmt: skip
    query = "SELECT data FROM {} WHERE image_id = 2"
    assert rows(database, query.format("keypoints")) == [(keypoints.tobytes(),)]
    assert rows(database, query.format("descriptors")) == [(descriptors.tobytes(),)]


def test_descriptors_of_all_images_are_replaced(database):
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("DELETE FROM descriptors WHERE image_id = 3")
        opened.execute("INSERT INTO matches VALUES (9, 0, 2, NULL)")
    described = {"b": np.full((2, 128), 7, np.uint8), "c": np.ones((1, 128), np.uint8)}
    with colmap_tables.opened(database) as tables:
        tables.replace_descriptors(described)
    query = "SELECT image_id, rows, data FROM descriptors ORDER BY image_id"
    expected = [(2, 2, described["b"].tobytes()), (3, 1, described["c"].tobytes())]
    assert rows(database, query) == expected
    assert rows(database, "SELECT * FROM matches") == []


def test_keypoints_are_read(database, tmp_path):
    keypoints = np.arange(12, dtype=np.float32).reshape(2, 6)
    with closing(sqlite3.connect(database)) as opened, opened:
        opened.execute("DELETE FROM keypoints WHERE image_id = 3")
        opened.execute("UPDATE keypoints SET rows = 0")
    with colmap_tables.opened(database) as tables:
        tables.replace_features("b", keypoints, np.zeros((2, 128), np.uint8))
    read = colmap_tables.keypoints(database)
    assert {name: len(values) for name, values in read.items()} == {"a": 0, "b": 2}
    np.testing.assert_array_equal(read["b"], keypoints)
    with pytest.raises(caloric.InputError, match="no such database"):
        colmap_tables.keypoints(tmp_path / "none.db")
    (tmp_path / "empty.db").touch()
    with pytest.raises(caloric.InputError, match="not a COLMAP database"):
        colmap_tables.keypoints(tmp_path / "empty.db")


def test_images_share_a_camera(database):
    with colmap_tables.opened(database) as tables:
        tables.share_cameras({"a": "a", "b": "b", "c": "a"})
        tables.set_focal(700)
    assert rows(database, "SELECT camera_id FROM images") == [(1,), (2,), (1,)]
    ((data, known), _) = rows(database, "SELECT params, prior_focal_length FROM cameras")
    assert (np.frombuffer(data).tolist(), known) == ([700, 320, 240, 0], 1)


def test_a_pair_has_the_smaller_image_id_first(database):
    matches = np.array([[4, 1], [5, 2], [6, 3]], np.uint32)
    matrix = np.arange(9.0).reshape(3, 3)
    distances, inliers = np.zeros(3, np.float32), np.array([0, 2], np.uint32)
    with colmap_tables.opened(database) as tables:
        tables.add_pair(TwoViews("c", "a", matches, distances, inliers, matrix, "fundamental"))
        tables.add_pair(TwoViews("a", "b", matches, distances, inliers[:0], None, "fundamental"))
    ((number, count, data, config, f),) = rows(
        database, "SELECT pair_id, rows, data, config, F FROM two_view_geometries"
    )
    assert (colmap_tables.images_of(number), count, config) == ((1, 3), 2, 3)
    assert np.frombuffer(data, np.uint32).tolist() == [1, 4, 3, 6]
    np.testing.assert_array_equal(np.frombuffer(f).reshape(3, 3), matrix.T)
    assert [n for (n,) in rows(database, "SELECT rows FROM matches")] == [3, 3]


def test_a_failure_leaves_the_database_unchanged(database):
    def fail():
        with colmap_tables.opened(database) as tables:
            tables.share_cameras({"b": "a", "c": "a"})
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert rows(database, "SELECT camera_id FROM images") == [(1,), (2,), (3,)]
