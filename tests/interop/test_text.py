"""Text files of features, read by COLMAP."""

import sqlite3

import cv2
import pytest

from brick import views
from caloric.interop import colmap_command, text


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_colmap_imports_and_matches_text_files(pair, tmp_path):
    first, second, _ = views()
    for name, image, features in (("a", first, pair[0]), ("b", second, pair[1])):
        (tmp_path / "images").mkdir(exist_ok=True)
        cv2.imwrite(str(tmp_path / "images" / f"{name}.png"), image)
        text.write(tmp_path / f"{name}.png.txt", features)

    database = ("--database_path", tmp_path / "d.db")
    images = ("--image_path", tmp_path / "images")
    colmap_command.call("feature_importer", *database, *images, "--import_path", tmp_path)
    without_gpu = colmap_command.without_gpu("exhaustive_matcher")
    colmap_command.call("exhaustive_matcher", *database, *without_gpu)
    connection = sqlite3.connect(tmp_path / "d.db")
    (rows,) = connection.execute("SELECT rows FROM matches").fetchone()
    connection.close()
    assert rows > 100
