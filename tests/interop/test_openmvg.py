"""openMVG projects, read by a C++ program with the loops of openMVG."""

import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import caloric
from caloric.interop import exporters, openmvg
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Request
from caloric.matching.two_views import TwoViews

COMPILER = shutil.which("c++") or shutil.which("g++") or shutil.which("clang++")
NAMES = ("b ä.png", "day 1/a.jpg")


def two_views(a=NAMES[0], b=NAMES[1], model="fundamental", matrix=True):
    matches = np.array([[0, 3], [1, 2], [4, 4]], np.uint32)
    inliers = np.array([0, 2], np.uint32)
    geometry = np.eye(3) if matrix else None
    return TwoViews(a, b, matches, np.zeros(3, "f4"), inliers, geometry, model)


def export(features, target, pairs=(), **options):
    request = Request(target, NAMES, pairs=bool(pairs), **options)
    exporters.write(openmvg.OpenMvg(request), zip(NAMES, features, strict=True), pairs)


@pytest.fixture(scope="module")
def reader(tmp_path_factory):
    if COMPILER is None:
        pytest.skip("no C++ compiler")
    program = tmp_path_factory.mktemp("reader") / "reader"
    source = Path(__file__).with_name("openmvg_reader.cpp")
    subprocess.run([COMPILER, "-std=c++14", str(source), "-o", str(program)], check=True)

    def read(directory, stem, matches="matches.f.txt"):
        text = subprocess.run(
            [str(program), str(directory), stem, matches],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        first, *lines = text.splitlines()
        count, same = map(int, first.split())
        assert count == same
        rows = [np.array(line.split(), float) for line in lines]
        return np.array(rows[:count]), np.array(rows[count : 2 * count]), rows[2 * count :]

    return read


def test_openmvg_reads_features_descriptors_and_matches(pair, reader, tmp_path):
    export(pair[:2], tmp_path / "out", [two_views()])
    for stem, expected in zip(("b ä", "a"), pair[:2], strict=True):
        features, descriptors, matches = reader(tmp_path / "out", stem)
        frames = expected.frames
        np.testing.assert_allclose(features[:, :2], frames.xy, rtol=1e-5, atol=1e-3)
        np.testing.assert_allclose(features[:, 2], frames.sigma, rtol=1e-4)
        np.testing.assert_allclose(features[:, 3], frames.angle, atol=1e-4)
        np.testing.assert_array_equal(descriptors, sift_bytes(expected))
        np.testing.assert_array_equal(matches, [[0, 1, 2, 0, 3, 4, 4]])


def test_views_of_a_pair_are_in_order(pair, reader, tmp_path):
    swapped = two_views(NAMES[1], NAMES[0])
    export(pair[:2], tmp_path / "out", [swapped])
    np.testing.assert_array_equal(reader(tmp_path / "out", "a")[2], [[0, 1, 2, 3, 0, 4, 4]])


def test_unverified_matches_are_putative(pair, reader, tmp_path):
    out = tmp_path / "out"
    export(pair[:2], out, [two_views(model="", matrix=False)])
    assert not (out / "matches.f.txt").exists()
    (matches,) = reader(out, "a", "matches.putative.txt")[2]
    np.testing.assert_array_equal(matches, [0, 1, 3, 0, 3, 1, 2, 4, 4])
    # A new export removes old matches; failed pairs are not written.
    export(pair[:2], out, [two_views(matrix=False)])
    assert not list(out.glob("matches*"))


def test_the_scene_has_a_view_per_image_and_a_camera_per_size(pair, tmp_path):
    smaller = replace(pair[1], image_size=(200, 100))
    export([pair[0], smaller], tmp_path / "out", images=tmp_path)
    scene = json.loads((tmp_path / "out" / "sfm_data.json").read_text("utf-8"))
    assert scene["root_path"] == str(tmp_path)
    data = [view["value"]["ptr_wrapper"]["data"] for view in scene["views"]]
    paths = [Path(view["local_path"]) / view["filename"] for view in data]
    assert [path.as_posix() for path in paths] == list(NAMES)
    assert [view["id_view"] for view in data] == [view["key"] for view in scene["views"]] == [0, 1]
    cameras = {camera["key"]: camera["value"] for camera in scene["intrinsics"]}
    for view, (h, w) in zip(data, (pair[0].image_size, (200, 100)), strict=True):
        camera = cameras[view["id_intrinsic"]]["ptr_wrapper"]["data"]
        assert (view["height"], view["width"]) == (camera["height"], camera["width"]) == (h, w)
        assert camera["focal_length"] == 1.2 * max(h, w)
    pointers = [
        entry["value"]["ptr_wrapper"]["id"] for entry in scene["views"] + scene["intrinsics"]
    ]
    assert pointers == [2**31 + number for number in range(1, 5)]
    assert cameras[0]["polymorphic_name"] == "pinhole_radial_k3"
    assert "polymorphic_name" not in cameras[1]
    regions = json.loads((tmp_path / "out" / "image_describer.json").read_text())["regions_type"]
    assert regions["polymorphic_name"] == "SIFT_Regions"


def test_images_with_the_same_file_are_an_error_before_the_work(pair, tmp_path):
    for names in (("a.png", "a.jpg"), ("1/a.png", "2/a.png")):
        with pytest.raises(caloric.InputError, match="rename one of the images"):
            openmvg.OpenMvg(Request(tmp_path / "out", names))
        with pytest.raises(caloric.InputError, match="rename one of the images"):
            exporters.write(
                openmvg.OpenMvg(Request(tmp_path / "late")), [(name, pair[0]) for name in names]
            )
    assert not (tmp_path / "out").exists()


def test_other_dimensions_are_errors_and_leave_no_directory(pair, tmp_path):
    features = replace(pair[0], descriptors=pair[0].descriptors[:, :64])
    with pytest.raises(caloric.InputError, match="128 dimensions"):
        export([features, features], tmp_path / "new" / "out")
    assert list(tmp_path.iterdir()) == []
