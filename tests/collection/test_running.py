"""``collection.run``: all steps, and runs in a store that has models."""

import json
import re
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import collection
from caloric.collection import (
    Reporter,
    Workers,
    engines,
    relocating,
    reporting,
    store,
    workflow,
)
from caloric.interop import colmap, colmap_command, colmap_model
from caloric.runtime.words import counted
from colmap_models import write_model
from stores import SETTINGS, content, run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


@pytest.fixture(autouse=True)
def models_of_another_database(monkeypatch):
    """The models of these tests do not belong to their databases."""
    monkeypatch.setattr(relocating, "contradicted", lambda database, model: set())


HERE = Workers(1, device="cpu")


def test_a_remote_directory_gets_a_database_and_no_model(directory, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in sorted((directory / "eins").glob("*.png")):
        memory.pipe(f"/photos/{path.name}", path.read_bytes())
    (tmp_path / "out").mkdir()
    calls = []
    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(
        workflow, "export", lambda out, images, cameras, report: calls.append(images)
    )
    monkeypatch.setattr(Workers, "engine", lambda self: engines.Processes(1))
    monkeypatch.setattr(
        engines.Processes, "run", engines.InProcess.run
    )  # in this process, which has the memory file system
    result = collection.run("memory://photos", tmp_path / "out", SETTINGS, workers=HERE)
    assert calls == [None]
    assert (result.registered, result.models) == ((), ())
    assert "local images" in result.failure
    assert set(result.missing) == {path.name for path in (directory / "eins").glob("*.png")}
    assert result.numbers["images"] == 3
    assert result.report.is_file()


@pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)
def test_run_returns_registered_images_and_reasons_for_missing_ones(tmp_path):
    directory, out = tmp_path / "views", tmp_path / "out"
    directory.mkdir()
    for i, view in enumerate(photographs.book(4)):
        cv2.imwrite(str(directory / f"{i}.png"), view)
    cv2.imwrite(str(directory / "other.png"), photographs.gray("camera", (300, 300)))
    cv2.imwrite(str(directory / "flat.png"), np.full((90, 90), 99, np.uint8))
    (directory / "bad.png").write_bytes(b"not an image")
    result = collection.run(directory, out, workers=Workers(2, device="cpu"))
    assert result.registered == ("0.png", "1.png", "2.png", "3.png")
    assert set(result.missing) == {"bad.png", "flat.png", "other.png"}
    assert result.missing["flat.png"] == "no features"
    assert result.missing["other.png"].startswith(("weak match", "no match"))
    assert result.summary == "4 of 7 images registered in 1 model"
    steps = ["extract", "match", "verify", "refine", "export", "reconstruct", "separate"]
    assert list(result.seconds) == [*steps, "complete"]
    assert f"bad.png: {result.missing['bad.png']}" == result.skipped["bad.png"]
    assert result.models[0].directory == out / "colmap" / "sparse" / result.models[0].directory.name
    assert (result.models[0].directory / "images.bin").is_file()
    numbers = result.numbers
    assert (numbers["images"], numbers["registered"], numbers["pairs"]) == (7, 4, 10)
    assert 0 < numbers["refined features"] < numbers["features"]
    assert 0 < numbers["error"] < 1
    before = content(out / "features")
    again = collection.run(directory, out, refine=False, workers=Workers(2, device="cpu"))
    assert content(out / "features") == before
    assert "tracks" not in again.numbers


@pytest.mark.skipif(
    not colmap.available() and colmap_command.executable() is None, reason="no COLMAP"
)
def test_a_run_without_a_model_fails_with_a_reason(directory, tmp_path):
    """Copies of an image have no parallax, and unrelated images no geometry."""
    same, unrelated = tmp_path / "same", tmp_path / "unrelated"
    for path in (same, unrelated):
        path.mkdir()
    for i in range(3):
        cv2.imwrite(str(same / f"{i}.png"), photographs.gray("camera", (160, 160)))
    for name in ("camera", "coins"):
        cv2.imwrite(str(unrelated / f"{name}.png"), photographs.gray(name, (160, 160)))
    for images, reason in (
        (same, "no pair of images to start from|no point"),
        (unrelated, "no two"),
    ):
        out = tmp_path / f"{images.name}-out"
        result = run("collection", "run", images, "-o", out, "--workers", 1, "--max-features", 300)
        assert result.exit_code == 1
        assert re.search(f"0 of [23] images registered: .*({reason})", result.output)
        copies = "2 files are copies of others (1.png of 0.png, 2.png of 0.png)"
        assert (copies in " ".join(result.output.split())) == (images == same)
        assert not (out / "colmap" / "sparse").exists()
        assert (out / "report.html").is_file()


@pytest.mark.parametrize(
    ("images", "reason"),
    [
        ({"a.png": photographs.gray("camera", (90, 90))}, "only 1 image has features"),
        ({name: np.full((90, 90), 99, np.uint8) for name in ("a.png", "b.png")}, "none of the"),
    ],
)
def test_a_run_of_too_few_images_with_features_fails_with_a_reason(
    tmp_path, monkeypatch, images, reason
):
    monkeypatch.setattr(colmap, "require", lambda: None)
    directory, out = tmp_path / "images", tmp_path / "out"
    directory.mkdir()
    for name, pixels in images.items():
        cv2.imwrite(str(directory / name), pixels)
    (out / "colmap" / "sparse" / "0").mkdir(parents=True)
    result = run("collection", "run", directory, "-o", out, "--workers", 1, "--max-features", 50)
    assert result.exit_code == 1
    assert f"0 of {counted(len(images), 'image')} registered: {reason}" in result.output
    assert reason in (out / "report.html").read_text("utf-8")
    assert not (out / "colmap" / "sparse").exists()
    assert (out / "colmap" / "sparse.old" / "0").is_dir()


def test_a_store_of_other_images_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "require", lambda: None)
    first, second, out = (tmp_path / name for name in ("first", "second", "out"))
    for path in (first, second, out / "colmap" / "sparse"):
        path.mkdir(parents=True)
    report = {"directory": str(first), "images": [{"name": "a.png"}]}
    (out / "report.json").write_text(json.dumps(report), "utf-8")
    with pytest.raises(caloric.InputError, match=r"contains models of .*first; specify another"):
        collection.run(second, out, SETTINGS, workers=HERE)
    with pytest.raises(caloric.InputError, match="contains no images"):  # the same directory
        collection.run(first, out, SETTINGS, workers=HERE)
    moved = first.rename(tmp_path / "moved")
    with pytest.raises(caloric.InputError, match="contains models of"):
        collection.run(second, out, SETTINGS, workers=HERE)
    (moved / "a.png").write_bytes(b"not an image")
    assert "could be used" in collection.run(moved, out, SETTINGS, workers=HERE).failure


def test_if_no_file_is_an_image_earlier_models_are_moved(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "require", lambda: None)
    directory, out = tmp_path / "images", tmp_path / "out"
    directory.mkdir()
    (directory / "a.png").write_bytes(b"not an image")
    (out / "colmap" / "sparse" / "0").mkdir(parents=True)
    result = run("collection", "run", directory, "-o", out, "--workers", 1)
    assert result.exit_code == 1
    assert "0 of 1 image registered: none of the images could be used" in result.output
    assert (out / "colmap" / "sparse.old" / "0").is_dir()
    report = json.loads((out / "report.json").read_text("utf-8"))
    assert "a.png" in [image["name"] for image in report["images"]]
    with pytest.raises(caloric.InputError, match="none of the images could be used"):
        collection.extract(directory, tmp_path / "new", workers=HERE)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": "sift"}, "options must be an instance of ExtractOptions, got 'sift'"),
        ({"pairing": "sequential"}, "pairing must be an instance of Pairing"),
        ({"matching": {"ratio": 0.8}}, "matching must be an instance of Matching"),
        ({"workers": 2}, "workers must be an instance of Workers, got 2"),
        ({"options": replace(SETTINGS, max_features=0)}, "max_features must be at least 1"),
        ({"complete": "no"}, "complete must be True or False"),
        ({"refine": 3}, "refine must be True or False"),
    ],
)
def test_arguments_of_an_invalid_type_are_errors_before_the_work(
    tmp_path, monkeypatch, given, message
):
    monkeypatch.setattr(colmap, "require", lambda: None)
    with pytest.raises(caloric.InputError, match=message):
        collection.run(tmp_path, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()


@pytest.fixture
def mapped(monkeypatch):
    """Replace the export and COLMAP's mapper; return the names of the models that were made."""
    made = []

    def map_images(database, directory, output, thresholds, registered, start=None):
        names = [path.relative_to(directory).as_posix() for path in directory.rglob("*.png")]
        made.append("added" if start else "new")
        write_model(output / "0", sorted(names)[:4])
        return [colmap_model.summary(output / "0")]

    def export(out, to="colmap", images=None, cameras=None, content=None, **options):
        (out / "colmap").mkdir(exist_ok=True)
        (out / "colmap" / "database.db").write_text(str(cameras))

    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(colmap, "version", lambda: "1")
    monkeypatch.setattr(colmap, "map_images", map_images)
    monkeypatch.setattr(workflow.exporting, "export", export)
    return made


def test_a_second_run_keeps_models_report_and_times(directory, tmp_path, mapped):
    out, lines = tmp_path / "out", []
    options = {
        "complete": False, "cameras": collection.Cameras("shared"), "workers": HERE,
        "report": Reporter(finished=lambda result: lines.append(str(result))),
    }  # fmt: skip
    first = collection.run(directory, out, SETTINGS, **options)
    assert mapped == ["new", "new"]  # the second with lower thresholds
    files = {name: (out / name).read_bytes() for name in ("report.json", "report.html")}
    second = collection.run(directory, out, SETTINGS, **options)
    assert len(mapped) == 2
    assert second == first
    assert {name: (out / name).read_bytes() for name in files} == files
    assert lines[-1].startswith("unchanged since the last run: 4 images registered")


def test_a_second_run_waits_until_the_first_has_written_its_report(
    directory, tmp_path, mapped, monkeypatch
):
    out, events, mapping = tmp_path / "out", [], threading.Event()
    map_images, write = colmap.map_images, reporting.write

    def slow(*given, **options):
        events.append("map")
        mapping.set()
        time.sleep(0.5)
        return map_images(*given, **options)

    def written(*given):
        write(*given)
        events.append("report")

    monkeypatch.setattr(colmap, "map_images", slow)
    monkeypatch.setattr(reporting, "write", written)

    def start(features):
        settings = replace(SETTINGS, max_features=features)
        return collection.run(directory, out, settings, refine=False, complete=False, workers=HERE)

    with ThreadPoolExecutor() as pool:
        first = pool.submit(start, 100)
        mapping.wait(60)
        second = pool.submit(start, 60)
        counts = [result.result().numbers["features"] for result in (first, second)]
    assert counts[0] > counts[1]
    runs = " ".join(events).split("report")
    assert [part.strip() != "" for part in runs] == [True, True, False]


def test_times_include_runs_that_were_interrupted(directory, tmp_path, mapped, monkeypatch):
    out, options = tmp_path / "out", {"refine": False, "complete": False, "workers": HERE}
    verify = workflow.verify

    def interrupted(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(workflow, "verify", interrupted)
    with pytest.raises(KeyboardInterrupt):
        collection.run(directory, out, SETTINGS, **options)
    kept = json.loads((out / "unfinished.json").read_text("utf-8"))
    assert {"extract", "match", "verify"} == kept.keys()
    (out / "unfinished.json").write_text(json.dumps(kept | {"extract": 1000}), "utf-8")
    monkeypatch.setattr(workflow, "verify", verify)
    seconds = collection.run(directory, out, SETTINGS, **options).seconds
    assert 1000 < seconds["extract"] < 1100
    assert seconds["verify"] < 100
    assert not (out / "unfinished.json").exists()


def test_a_change_runs_the_mapper_again(directory, tmp_path, mapped, monkeypatch):
    shutil.rmtree(directory / "zwei und drei")
    out, options = tmp_path / "out", {"complete": False, "refine": False, "workers": HERE}

    def image():
        path = next(directory.rglob("*.png"))
        cv2.imwrite(str(path), cv2.imread(str(path))[::-1])

    sparse = out / "colmap" / "sparse" / "0"
    changes = {
        "nothing": lambda: None,
        "image": image,
        "camera": lambda: options.update(cameras=collection.Cameras("per-image")),
        "complete": lambda: options.update(complete=True),
        "model": lambda: (sparse / "points3D.bin").unlink(),
        "database": lambda: (out / "colmap" / "database.db").write_bytes(b""),
        "report": lambda: (out / "report.json").write_text("{", "utf-8"),
        "version": lambda: monkeypatch.setattr(colmap, "version", lambda: "2"),
        "pairs": lambda: options.update(pairing=collection.Pairing("sequential", 1, 1)),
        "refine": lambda: options.update(refine=True),
    }
    collection.run(directory, out, SETTINGS, **options)
    for change, apply in changes.items():
        report = json.loads((out / "report.json").read_text("utf-8"))
        report["seconds"] |= {"extract": 1000, "match": 1000, "reconstruct": 1000}
        (out / "report.json").write_text(json.dumps(report), "utf-8")
        count = len(mapped)
        apply()
        seconds = collection.run(directory, out, SETTINGS, **options).seconds
        assert (len(mapped) > count) == (change != "nothing"), change
        # Steps without changes keep their times.
        kept = {name for name, value in seconds.items() if value == 1000}
        expected = {"extract", "match", *(["reconstruct"] if change == "nothing" else [])}
        expected -= {"extract", "match"} if change in ("image", "report") else set()
        expected -= {"match"} if change == "pairs" else set()
        assert kept == expected, change


def test_a_run_without_a_model_is_not_repeated(directory, tmp_path, mapped, monkeypatch):
    monkeypatch.setattr(colmap, "map_images", lambda *given, **options: mapped.append("none") or [])
    out = tmp_path / "out"
    results = [
        collection.run(directory, out, SETTINGS, refine=False, workers=HERE) for _ in range(2)
    ]
    assert mapped == ["none"] * 6  # three attempts, with shared and with separate cameras
    assert results[0] == results[1]
    assert "no pair of images to start from" in results[0].failure
