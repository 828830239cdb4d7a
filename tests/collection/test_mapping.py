"""COLMAP's mapper on a store: thresholds, models without points, added images."""

import shutil
from dataclasses import replace

import pytest

import caloric
from caloric.collection import mapping, relocating, store
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.summaries import PairSummary
from caloric.interop import colmap, colmap_model
from colmap_models import write_model

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


@pytest.fixture(autouse=True)
def models_of_another_database(monkeypatch):
    """The models of these tests do not belong to their databases."""
    monkeypatch.setattr(relocating, "contradicted", lambda database, model: set())


@pytest.fixture
def exported(matched, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(matched[0], out)
    (out / "colmap").mkdir(exist_ok=True)
    (out / "colmap" / "database.db").touch()
    return out


def test_a_model_without_points_is_a_failure(exported, tmp_path, monkeypatch, caplog):
    calls = []

    def map_images(database, directory, output, thresholds, registered):
        calls.append(thresholds)
        registered(99)
        write_model(output / "0", points=0)
        return [colmap_model.summary(output / "0")]

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "map_images", map_images)
    counts = []
    for name in ("sparse", "sparse.old"):  # of earlier runs
        (exported / "colmap" / name / f"of {name}").mkdir(parents=True)
    result = mapping.reconstruct(exported, tmp_path, lambda *count: counts.append(count))
    assert result.models == ()
    assert "3 images but no point" in result.failure
    assert calls == [colmap.STRICT, colmap.RELAXED, colmap.FIXED_DISTORTION]
    assert counts[0] == ("images registered", 6, 6)
    assert not (exported / "colmap" / "sparse").exists()
    (kept,) = (exported / "colmap" / "sparse.old").iterdir()
    assert kept.name == "of sparse"
    assert f"the earlier models are in {kept.parent}" in caplog.text


def test_models_are_ordered_by_size(exported, tmp_path, monkeypatch):
    def map_images(database, directory, output, thresholds, registered):
        write_model(output / "0", ["a", "b", "c"])
        write_model(output / "1", ["d", "e", "f", "g"])
        write_model(output / "2", ["h", "i", "j"], points=0)
        write_model(output / "3", ["e", "f", "g"], points=50)  # contained in the second
        return [colmap_model.summary(output / name) for name in "0123"]

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "map_images", map_images)
    result = mapping.reconstruct(exported, tmp_path)
    sparse = exported / "colmap" / "sparse"
    assert [model.directory for model in result.models] == [sparse / "0", sparse / "1"]
    assert [len(model.images) for model in result.models] == [4, 3]
    assert colmap_model.summary(sparse / "0").images == ("d", "e", "f", "g")
    assert str(result).startswith("2 models, the largest: 4 images registered, 40 points")
    (exported / "colmap" / "database.db").unlink()
    with pytest.raises(caloric.InputError, match="export it first"):
        mapping.reconstruct(exported, tmp_path)


@pytest.mark.parametrize(
    ("strict", "relaxed", "points", "kept"),
    [
        ("abc", "abcd", 40, "abcd"),
        ("abc", "abcd", 20, "abc"),  # lost points
        ("abc", "bcd", 60, "abc"),
        ("abc", "abc def", 40, "abc def"),
        ("abc def", "abcd", 40, "abcd"),
        ("abc", "", 0, "abc"),
        ("", "abc", 40, "abc"),
        ("abcdef", None, 0, "abcdef"),  # complete: no second run
    ],
)
def test_the_larger_of_two_results_is_kept(
    exported, tmp_path, monkeypatch, strict, relaxed, points, kept
):
    def map_images(database, directory, output, thresholds, registered):
        images = strict if thresholds == colmap.STRICT else relaxed
        if not images:
            return []
        count = 40 if thresholds == colmap.STRICT else points
        for number, names in enumerate(images.split()):
            write_model(output / str(number), list(names), points=count)
        return [colmap_model.summary(path) for path in colmap_model.models(output)]

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "map_images", map_images)
    pair = PairSummary("a", "b", 100, 50, 1.0, True)
    pairs = [replace(pair, name_b=name) for name in "bcdef"]
    monkeypatch.setattr(mapping, "summaries", lambda store: pairs)
    result = mapping.reconstruct(exported, tmp_path)
    assert " ".join("".join(model.images) for model in result.models) == kept


@pytest.mark.parametrize(
    ("before", "adjustable", "after", "points"),
    [("ab", True, "abcdef", 41), ("ab", False, "abcdef", 40), ("abc", True, "abc", 40)],
)
def test_if_most_images_are_missing_distortion_is_refined_last(
    exported, tmp_path, monkeypatch, before, adjustable, after, points
):
    def map_images(database, directory, output, thresholds, registered):
        names = "abcdef" if thresholds == colmap.FIXED_DISTORTION else before
        write_model(output / "0", list(names))
        return [colmap_model.summary(output / "0")]

    def adjust(model, output, options):
        if not adjustable:
            raise caloric.InputError("no convergence")
        write_model(output, list("abcdef"), points=41)

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "map_images", map_images)
    monkeypatch.setattr(colmap, "adjust", adjust)
    pair = PairSummary("a", "b", 100, 50, 1.0, True)
    monkeypatch.setattr(
        mapping, "summaries", lambda store: [replace(pair, name_b=n) for n in "bcdef"]
    )
    monkeypatch.setattr(mapping.calibrating, "calibrate", lambda model: model)
    (model,) = mapping.reconstruct(exported, tmp_path).models
    assert "".join(model.images) == after
    assert model.points == points


def test_directories_of_a_killed_run_are_removed(exported, tmp_path, monkeypatch):
    def map_images(database, directory, output, thresholds, registered):
        write_model(output / "0", list("ab"))
        return [colmap_model.summary(output / "0")]

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "map_images", map_images)
    monkeypatch.setattr(mapping, "summaries", lambda store: [])
    monkeypatch.setattr(mapping.calibrating, "calibrate", lambda model: model)
    for name in (".caloric-1/strict", "sparse/.caloric-2", "sparse.mine"):
        (exported / "colmap" / name).mkdir(parents=True)
    mapping.reconstruct(exported, tmp_path)
    names = {path.name for path in (exported / "colmap").iterdir()}
    assert names == {"database.db", "sparse", "sparse.mine"}
    assert [path.name for path in (exported / "colmap" / "sparse").iterdir()] == ["0"]


@pytest.mark.parametrize(("added", "points", "grows"), [("d", 40, True), ("d", 9, False)])
def test_a_model_is_replaced_if_it_grows(exported, tmp_path, monkeypatch, added, points, grows):
    sparse = exported / "colmap" / "sparse"
    write_model(sparse / "0", ["a", "b", "c"])
    write_model(sparse / "1", ["a", "d"])
    models = tuple(colmap_model.summary(sparse / name) for name in "01")

    def map_images(database, directory, output, thresholds, registered, start):
        assert start == sparse / "0"
        write_model(output, ["a", "b", "c", added], points=points)
        return [colmap_model.summary(output)]

    monkeypatch.setattr(colmap, "map_images", map_images)
    result = mapping.complete(exported, tmp_path, ReconstructionResult(models))
    if grows:
        assert [model.images for model in result.models] == [("a", "b", "c", "d")]
        assert colmap_model.summary(sparse / "0").images == ("a", "b", "c", "d")
        assert [path.name for path in sparse.iterdir()] == ["0"]
    else:
        assert result.models == models
        assert colmap_model.summary(sparse / "0").images == ("a", "b", "c")
