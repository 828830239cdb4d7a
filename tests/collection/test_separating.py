"""Images of the same size with different focal lengths."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.spatial.transform import Rotation

from caloric.collection import mapping, metadata, relocating, separating, store
from caloric.collection.mapping import ReconstructionResult
from caloric.image.exif import Exif
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.interop.cameras import Cameras
from colmap_models import write_model
from stores import copied

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


@pytest.fixture(autouse=True)
def models_of_another_database(monkeypatch):
    """The models of these tests do not belong to their databases."""
    monkeypatch.setattr(relocating, "contradicted", lambda database, model: set())


NAMES = "abcdefgh"


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.floats(0.1, 10), st.lists(st.integers(2, 6), max_size=3))
def test_clusters_are_found_at_any_scale(seed, scale, sizes):
    random = np.random.default_rng(seed)
    expected, focal_lengths = [], {}
    for i, size in enumerate([4, *sizes]):
        names = [f"{i}{j}" for j in random.permutation(size)]
        # At least two images of each camera have nearly the same focal length.
        values = 1000 * scale * 1.3**i * np.exp(0.002 * random.uniform(-1, 1, size))
        focal_lengths |= dict(zip(names, values, strict=True))
        expected.append(set(names))
    shuffled = dict(random.permutation(np.array(list(focal_lengths.items()), object)).tolist())
    assert [set(names) for names in separating.clusters(shuffled)] == expected


def test_one_camera_is_not_divided():
    random = np.random.default_rng(0)
    divided = 0
    for spread in (0.001, 0.02, 0.2):
        for _ in range(100):
            values = 1000 * np.exp(spread * random.normal(size=12))
            divided += len(separating.clusters(dict(zip("abcdefghijkl", values, strict=True)))) > 1
    assert divided <= 3  # of 300; a division must then also improve the model
    assert separating.clusters({"a": 1.0, "b": 2.0, "c": 2.0}) == [["a", "b", "c"]]
    assert separating.clusters({}) == [[]]


def write_zoomed(directory, factor):
    """Write a model with one camera, in which every second image is enlarged."""
    rotations = Rotation.from_euler(
        "xyz", np.random.default_rng(2).uniform(-40, 40, (8, 3)), degrees=True
    )
    write_model(directory, NAMES, 150, rotations=rotations, shifts=np.zeros((8, 3)), noise=0.2)
    images = list(colmap_model.registered(directory))
    center = np.array([320, 240])
    zoomed = [
        replace(image, xy=center + factor ** (i % 2) * (image.xy - center))
        for i, image in enumerate(images)
    ]
    colmap_model.write(
        directory, colmap_model.cameras(directory), zoomed, colmap_model.points(directory)
    )
    return colmap_model.summary(directory)


@pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)
def test_a_bundle_adjustment_gives_each_image_its_focal_length(tmp_path):
    model = write_zoomed(tmp_path / "0", 1.3)
    before = sorted((tmp_path / "0").iterdir())
    focal_lengths = separating.separate_focal_lengths(model)
    assert separating.clusters(focal_lengths) == [
        sorted("aceg", key=lambda name: focal_lengths[name]),
        sorted("bdfh", key=lambda name: focal_lengths[name]),
    ]
    ratio = np.mean([focal_lengths[n] for n in "bdfh"]) / np.mean(
        [focal_lengths[n] for n in "aceg"]
    )
    assert 1.25 < ratio < 1.35
    assert sorted((tmp_path / "0").iterdir()) == before
    same = separating.separate_focal_lengths(write_zoomed(tmp_path / "1", 1.0))
    assert len(separating.clusters(same)) == 1


@pytest.fixture
def fake(matched, tmp_path, monkeypatch):
    """A store with a model, and COLMAP replaced; returns the store and the exported cameras."""
    out, exported = copied(matched[0], tmp_path / "out"), []
    names = sorted(separating.extraction.sizes(out))
    write_model(out / "colmap" / "sparse" / "0", names[:4])

    def map_images(database, directory, output, thresholds, registered):
        # With the correct cameras, all images are registered.
        cameras = exported[-1].camera_of
        correct = len(set(cameras.values())) > 1
        write_model(output / "0", names if correct else names[:4])
        return [colmap_model.summary(output / "0")]

    monkeypatch.setattr(colmap, "map_images", map_images)
    monkeypatch.setattr(
        separating.exporting, "export", lambda out, to, images, cameras: exported.append(cameras)
    )
    monkeypatch.setattr(metadata, "read", lambda store: {})
    monkeypatch.setattr(mapping, "connected", lambda store: set(names[:4]))
    earlier = ReconstructionResult((colmap_model.summary(out / "colmap" / "sparse" / "0"),))
    return out, names, exported, earlier


def test_images_with_different_focal_lengths_get_different_cameras(fake, tmp_path, monkeypatch):
    out, names, exported, earlier = fake
    focal_lengths = dict(zip(names, [700, 701, 1000, 1001, 1002], strict=False))
    monkeypatch.setattr(separating, "separate_focal_lengths", lambda model: focal_lengths)
    result = separating.separate(out, tmp_path, Cameras(), earlier)
    first, third, last = names[0], names[2], names[5]  # the focal length of the last is unknown
    camera_of = dict(zip(names, [first, first, third, third, third, last], strict=True))
    assert result.cameras.camera_of == camera_of
    assert [cameras.camera_of for cameras in exported] == [camera_of]
    assert result.models.models[0].images == tuple(names)
    assert colmap_model.summary(out / "colmap" / "sparse" / "0").images == tuple(names)
    assert "focal lengths of 700, 1,001 px: 6 images registered" in str(result)


def test_missing_images_get_separate_cameras_first(fake, tmp_path, monkeypatch):
    out, names, exported, earlier = fake
    monkeypatch.setattr(mapping, "connected", lambda store: set(names))

    def focal_lengths(model):
        values = [700, 701, 702, 703, 1000, 1001]
        return dict(zip(model.images, values[: len(model.images)], strict=True))

    monkeypatch.setattr(separating, "separate_focal_lengths", focal_lengths)
    result = separating.separate(out, tmp_path, Cameras(), earlier)
    assert [len(set(cameras.camera_of.values())) for cameras in exported] == [3, 2]
    assert result.focal_lengths == (701.5, 1000.5)


@pytest.mark.parametrize("case", ["one camera", "not better", "EXIF data", "per-image"])
def test_cameras_stay_shared_without_evidence(fake, tmp_path, monkeypatch, case):
    out, names, exported, earlier = fake
    values = [700, 701, 702, 703] if case == "one camera" else [700, 701, 1000, 1001]
    focal_lengths = dict(zip(names, values, strict=False))
    monkeypatch.setattr(separating, "separate_focal_lengths", lambda model: focal_lengths)
    if case == "not better":
        monkeypatch.setattr(colmap, "map_images", lambda *given: list(earlier.models))
    elif case == "EXIF data":
        monkeypatch.setattr(metadata, "read", lambda store: {name: Exif("x") for name in names})
    cameras = Cameras("per-image" if case == "per-image" else "auto")
    result = separating.separate(out, tmp_path, cameras, earlier)
    assert (result.models, result.cameras) == (earlier, cameras)
    assert str(result) == "no evidence for different cameras"
    assert (exported[-1] == cameras) if case == "not better" else not exported
    assert colmap_model.summary(out / "colmap" / "sparse" / "0").images == tuple(names[:4])
