"""The steps of a collection from Python."""

import logging
import re
import subprocess
import sys
import threading

import pytest

import caloric
from caloric import collection
from caloric.collection import Pairing, Reporter, Workers, store
from caloric.interop import colmap
from caloric.options import ExtractOptions
from caloric.runtime import threads
from paths import DOCS
from stores import SETTINGS, content

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


def test_the_number_of_processes_of_a_gpu(monkeypatch):
    from caloric.gpu import devices

    class Gpu:
        type = "cuda"

        def __str__(self):
            return "cuda:0"

    monkeypatch.setattr(devices, "resolve", lambda name: None if name == "cpu" else Gpu())
    monkeypatch.setattr(threads, "count", lambda: 4)
    for possible, expected in ((1, 1), (3, 3), (8, 4)):  # at most one per core
        monkeypatch.setattr(devices, "processes", lambda device, possible=possible: possible)
        assert Workers().resolved() == Workers(expected, None, "cuda:0")
    assert Workers(3).resolved() == Workers(3, None, "cuda:0")
    assert Workers(device="cpu").resolved() == Workers(0, None, "cpu")
    remote = Workers(cluster="tcp://x:1")  # its workers choose their devices
    assert remote.resolved() == remote


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
