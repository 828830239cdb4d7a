"""COLMAP models."""

import numpy as np
import pytest

import caloric
from caloric.interop import colmap_command, colmap_model
from colmap_models import write_model


def test_a_model_is_read(tmp_path):
    xyz = write_model(tmp_path / "0")
    model = colmap_model.summary(tmp_path / "0")
    assert model.images == ("a.jpg", "b.jpg", "c.jpg")
    assert (model.points, model.error, model.track_length, model.cameras) == (40, 0.5, 3, 1)
    points = colmap_model.points(tmp_path / "0")
    np.testing.assert_array_equal(points.xyz, xyz)
    assert points.colors[6].tolist() == [200, 7, 30]
    camera = colmap_model.cameras(tmp_path / "0")[1]
    assert (camera.model, camera.width, camera.focal) == ("SIMPLE_RADIAL", 640, 500)
    for image in colmap_model.registered(tmp_path / "0"):
        position = image.matrix @ xyz[image.points - 1].T + np.array(image.translation)[:, None]
        projected = 500 * position[:2] / position[2] + np.array([[320], [240]])
        np.testing.assert_allclose(projected.T, image.xy)
        np.testing.assert_allclose(image.matrix @ image.center, -np.array(image.translation))
    assert colmap_model.models(tmp_path) == colmap_model.models(tmp_path / "0") == [tmp_path / "0"]
    with pytest.raises(caloric.InputError, match=r"cameras\.bin: cannot be read"):
        colmap_model.cameras(tmp_path)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the PATH")
def test_colmap_reads_the_same_model(tmp_path):
    """Its text format is an independent reference for the binary files."""
    write_model(tmp_path / "0")
    paths = ("--input_path", tmp_path / "0", "--output_path", tmp_path)
    colmap_command.call("model_converter", *paths, "--output_type", "TXT")
    lines = (tmp_path / "points3D.txt").read_text().splitlines()
    rows = {int(line.split()[0]): line.split() for line in lines if not line.startswith("#")}
    points = colmap_model.points(tmp_path / "0")
    assert sorted(rows) == sorted(points.ids)
    for i, number in enumerate(points.ids):
        np.testing.assert_allclose(np.array(rows[number][1:4], float), points.xyz[i], atol=1e-12)
        assert [int(value) for value in rows[number][4:7]] == points.colors[i].tolist()
    colmap_command.call("model_converter", *paths[:3], tmp_path / "c.ply", "--output_type", "PLY")
    colmap_model.write_ply(tmp_path / "0", tmp_path / "ours.ply")
    vertices = []
    for name in ("c.ply", "ours.ply"):
        header, _, data = (tmp_path / name).read_bytes().partition(b"end_header\n")
        assert b"binary_little_endian" in header
        names = [line.split()[1:] for line in header.decode().splitlines() if "property" in line]
        kinds = {"float": "<f4", "uchar": "u1"}
        rows = np.frombuffer(data, [(name, kinds[kind]) for kind, name in names])
        vertices.append(sorted((float(r["x"]), float(r["z"]), int(r["green"])) for r in rows))
    assert vertices[0] == vertices[1]
