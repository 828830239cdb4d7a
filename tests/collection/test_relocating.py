"""Images that their verified matches contradict."""

import sqlite3
from contextlib import closing
from dataclasses import replace

import numpy as np
import pytest

from caloric.collection import relocating
from caloric.interop import colmap, colmap_model, colmap_tables
from colmap_models import write_model

NAMES = ("a.jpg", "b.jpg", "c.jpg", "d.jpg", "e.jpg")


@pytest.fixture
def project(tmp_path):
    """A model whose last image observes the points in another order than its matches say."""
    model, database = tmp_path / "model", tmp_path / "database.db"
    write_model(model, NAMES)
    images = list(colmap_model.registered(model))
    content = colmap_model.points(model)
    images[4] = replace(images[4], points=np.roll(images[4].points, 1))
    colmap_model.write(model, colmap_model.cameras(model), images, content)
    same = np.stack([np.arange(40)] * 2, 1).astype(np.uint32)
    with closing(sqlite3.connect(database)) as file, file:
        file.execute("CREATE TABLE images (image_id INTEGER, name TEXT)")
        file.execute("CREATE TABLE two_view_geometries (pair_id INTEGER, rows INTEGER, data BLOB)")
        file.executemany("INSERT INTO images VALUES (?, ?)", enumerate(NAMES, 1))
        for i in range(1, 6):
            for j in range(i + 1, 6):
                row = colmap_tables.pair_id(i, j), 40, same.tobytes()
                file.execute("INSERT INTO two_view_geometries VALUES (?, ?, ?)", row)
    return colmap_model.summary(model), database, images


def test_the_image_whose_matches_have_other_points_is_found(project):
    model, database, _ = project
    assert relocating.contradicted(database, model.directory) == {"e.jpg"}


def test_an_image_is_removed_with_the_points_that_only_it_and_another_observe(project, tmp_path):
    model, _, images = project
    cameras, content = (
        read(model.directory) for read in (colmap_model.cameras, colmap_model.points)
    )
    images = [
        image
        if image.name in ("a.jpg", "e.jpg")
        else replace(image, points=np.where(image.points == 7, -1, image.points))
        for image in images
    ]
    colmap_model.write(model.directory, cameras, images, content)
    output = tmp_path / "rest"
    output.mkdir()
    relocating.remove(model.directory, {"e.jpg"}, output)
    rest = colmap_model.summary(output)
    assert sorted(rest.images) == list(NAMES[:4])
    assert rest.points == 39
    assert 7 not in next(iter(colmap_model.registered(output))).points


def test_an_image_that_is_contradicted_again_is_left_out(project, tmp_path, monkeypatch):
    model, database, _ = project
    monkeypatch.setattr(colmap, "map_images", lambda *options: [model])
    result = relocating.relocate(model, database, tmp_path, tmp_path / "new", lambda count: None)
    assert sorted(result.images) == list(NAMES[:4])


def test_an_image_at_its_new_position_is_kept(project, tmp_path, monkeypatch):
    model, database, _ = project
    correct = tmp_path / "correct"
    write_model(correct, NAMES)
    starts = []

    def add(database, directory, output, thresholds, registered, start):
        starts.append(colmap_model.summary(start))
        return [colmap_model.summary(correct)]

    monkeypatch.setattr(colmap, "map_images", add)
    result = relocating.relocate(model, database, tmp_path, tmp_path / "new", lambda count: None)
    assert result.directory == correct
    assert sorted(starts[0].images) == list(NAMES[:4])
    again = relocating.relocate(result, database, tmp_path, tmp_path / "other", lambda count: None)
    assert again is result
