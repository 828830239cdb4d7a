"""The steps of a collection from Python, and ``run``."""

import json
import logging
import re
import subprocess
import sys
import threading

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric import collection
from caloric.collection import Pairing, Reporter, Workers, engines, store
from caloric.interop import colmap, colmap_command
from caloric.options import ExtractOptions
from paths import DOCS
from stores import SETTINGS, content, run

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

HERE = Workers(1, device="cpu")


def test_every_step_returns_a_result(directory, tmp_path):
    out, counts, results = tmp_path / "out", [], []
    report = Reporter(
        lambda *count: counts.append(count), finished=lambda result: results.append(str(result))
    )
    options = {"workers": HERE, "report": report}
    extracted = collection.extract(directory, out, SETTINGS, **options)
    assert (len(extracted.found), extracted.extracted, extracted.skipped) == (6, 6, {})
    assert len(collection.pair(out, Pairing("sequential", 1, 1), **options).pairs) < 15
    assert len(collection.pair(out, Pairing(), **options).pairs) == 15
    matched = collection.match(out, **options)
    assert (matched.pairs, matched.new) == (15, 15)
    verified = collection.verify(out, collection.Matching(threshold=2.0), **options)
    assert (verified.pairs, verified.verified >= 6) == (15, True)
    refined = collection.refine(directory, out, **options)
    assert 0 < refined.moved <= refined.features
    exported = collection.export(out, "hloc", report=report)
    assert [path.name for path in exported.paths] == ["features.h5", "matches.h5"]
    assert all(path.is_file() for path in exported.paths)
    npz = collection.export(out, "npz").paths[0] / "eins" / "bild ä 0.png.npz"
    assert caloric.Features.load(npz).encoding == "uint8+128"
    assert results[-1].startswith("written: ")
    assert ("pairs matched", 15, 15) in counts
    with pytest.raises(caloric.InputError, match="unknown format"):
        collection.export(out, "bundler")


def test_options_are_checked_before_the_work(directory, tmp_path):
    out = tmp_path / "out"
    for call, message in (
        (lambda: ExtractOptions(descriptor="magic"), "unknown descriptor"),
        (lambda: collection.extract(directory, out, ExtractOptions(views=4)), "views"),
        (
            lambda: collection.run(
                directory,
                out,
                ExtractOptions(detector="opencv"),
                workers=Workers(device="torch:cpu"),
            ),
            "device 'cpu'|COLMAP",
        ),
        (lambda: collection.extract(directory, out, workers=Workers(-1)), "workers"),
        (lambda: collection.extract(directory, out, workers=Workers(device="x")), "device"),
        (lambda: collection.match(out), "no such store"),
        (lambda: collection.Matching(ratio=2), "ratio"),
        (lambda: collection.Matching(model="magic"), "unknown model"),
    ):
        with pytest.raises(caloric.InputError, match=message):
            call()
    assert not out.exists()


def test_skipped_images_are_logged(directory, tmp_path, caplog):
    (directory / "bad.png").write_bytes(b"not an image")
    result = collection.extract(directory, tmp_path / "out", SETTINGS, workers=HERE)
    (record,) = caplog.records
    assert record.levelno == logging.WARNING
    assert record.getMessage().startswith("skipped: bad.png: ")
    assert list(result.skipped) == ["bad.png"]
    empty = tmp_path / "empty"
    empty.mkdir()
    (empty / "bad.png").write_bytes(b"not an image")
    with pytest.raises(caloric.InputError, match="none of the images"):
        collection.extract(empty, tmp_path / "other", SETTINGS, workers=HERE)


def test_a_step_waits_for_the_lock(directory, tmp_path, caplog):
    out = tmp_path / "out"
    with store.locked(out):
        step = threading.Thread(
            target=lambda: collection.extract(directory, out, SETTINGS, workers=HERE)
        )
        step.start()
        step.join(1)
        assert step.is_alive()
        assert not (out / "features").exists()
    step.join()
    assert "waiting for it" in caplog.text
    assert len(list((out / "features").iterdir())) > 0


def test_finished_work_is_kept_after_an_interrupt(directory, tmp_path, caplog, monkeypatch):
    out, done = tmp_path / "out", []

    def stop(what, count, total):
        done.append(count)
        if count >= 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        collection.extract(directory, out, SETTINGS, workers=HERE, report=Reporter(stop))
    assert "finished work is kept" in caplog.text
    assert collection.extract(directory, out, SETTINGS, workers=HERE).extracted <= 6 - done[-1]
    undisturbed = tmp_path / "undisturbed"
    collection.extract(directory, undisturbed, SETTINGS, workers=HERE)
    assert content(out) == content(undisturbed)


def test_one_process_serves_a_gpu_unless_more_are_requested(monkeypatch):
    from caloric.gpu import devices

    class Gpu:
        type = "cuda"

        def __str__(self):
            return "cuda:0"

    monkeypatch.setattr(devices, "resolve", lambda name: None if name == "cpu" else Gpu())
    assert Workers().resolved() == Workers(1, None, "cuda:0")
    assert Workers(3).resolved() == Workers(3, None, "cuda:0")
    assert Workers(device="cpu").resolved() == Workers(0, None, "cpu")
    remote = Workers(cluster="tcp://x:1")  # its workers choose their devices
    assert remote.resolved() == remote


def test_a_remote_directory_gets_a_database_and_no_model(directory, tmp_path, monkeypatch):
    fsspec = pytest.importorskip("fsspec")
    memory = fsspec.filesystem("memory")
    for path in sorted((directory / "eins").glob("*.png")):
        memory.pipe(f"/photos/{path.name}", path.read_bytes())
    (tmp_path / "out").mkdir()
    calls = []
    monkeypatch.setattr(colmap, "require", lambda: None)
    monkeypatch.setattr(
        collection.workflow, "export", lambda out, images, cameras, report: calls.append(images)
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
    steps = ["extract", "match", "verify", "refine", "export", "reconstruct", "complete"]
    assert list(result.seconds) == steps
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
    assert f"0 of {len(images)} images registered: {reason}" in result.output
    assert reason in (out / "report.html").read_text("utf-8")
    assert not (out / "colmap" / "sparse").exists()
    assert (out / "colmap" / "sparse.old" / "0").is_dir()


def test_a_store_of_other_images_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "require", lambda: None)
    first, second, out = (tmp_path / name for name in ("first", "second", "out"))
    for path in (first, second, out / "colmap" / "sparse"):
        path.mkdir(parents=True)
    (out / "report.json").write_text(json.dumps({"directory": str(first)}), "utf-8")
    with pytest.raises(caloric.InputError, match=r"contains models of .*first; specify another"):
        collection.run(second, out, SETTINGS, workers=HERE)
    with pytest.raises(caloric.InputError, match="contains no images"):  # the same directory
        collection.run(first, out, SETTINGS, workers=HERE)
    first.rename(tmp_path / "moved")
    with pytest.raises(caloric.InputError, match="contains no images"):
        collection.run(tmp_path / "moved", out, SETTINGS, workers=HERE)


def test_the_image_directory_is_no_store(directory, monkeypatch):
    monkeypatch.setattr(colmap, "require", lambda: None)
    before = sorted(directory.rglob("*"))
    for step in (collection.extract, collection.run):
        with pytest.raises(caloric.InputError, match="is the image directory"):
            step(directory, directory / "eins" / "..", SETTINGS, workers=HERE)
    assert sorted(directory.rglob("*")) == before


def test_optional_libraries_are_imported_when_used():
    code = (
        "import sys, caloric\n"
        "assert 'caloric.collection' not in sys.modules\n"
        "assert caloric.collection.run\n"
        "heavy = {'pyarrow', 'dask', 'distributed', 'torch', 'h5py', 'faiss', 'fsspec'}\n"
        "sys.exit(' '.join(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stderr.strip() == ""
    with pytest.raises(AttributeError, match="colection"):
        _ = caloric.colection


def test_the_python_examples_of_the_documentation_run(directory, tmp_path, monkeypatch, capsys):
    """Execute the steps; :func:`run` needs COLMAP and is only compiled here."""
    text = (DOCS / "collections.md").read_text("utf-8").split("## From Python")[1]
    whole, steps = re.findall(r"```python\n(.*?)```", text.split("\n## ")[0], re.S)
    compile(whole, "collections.md", "exec")
    (directory / "broken.jpg").write_bytes(b"not an image")
    monkeypatch.chdir(tmp_path)
    steps = steps.replace('"IMAGES"', repr(str(directory)))
    exec(f"from caloric import collection\n{steps}", {})
    assert " pairs have a geometry" in capsys.readouterr().out
    assert (tmp_path / "steps" / "hloc" / "matches.h5").is_file()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"options": "sift"}, "options must be an instance of ExtractOptions, got 'sift'"),
        ({"pairing": "sequential"}, "pairing must be an instance of Pairing"),
        ({"matching": {"ratio": 0.8}}, "matching must be an instance of Matching"),
        ({"workers": 2}, "workers must be an instance of Workers, got 2"),
    ],
)
def test_arguments_of_an_invalid_type_are_errors_before_the_work(
    tmp_path, monkeypatch, given, message
):
    monkeypatch.setattr(colmap, "require", lambda: None)
    with pytest.raises(caloric.InputError, match=message):
        collection.run(tmp_path, tmp_path / "out", **given)
    assert not (tmp_path / "out").exists()
