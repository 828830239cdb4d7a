"""One owner of threads; start-up; the benchmark of speed in its small form."""

import json
import os
import subprocess
import sys
import threading
import time

import cv2
import numpy as np
import pytest
from threadpoolctl import threadpool_info

import caloric
import photographs
from caloric.bench import speed
from caloric.cli import app
from caloric.runtime import native, threads
from tools.pages import speed as speed_page


def test_each_keeps_the_order(monkeypatch):
    for number in "124":
        monkeypatch.setenv(threads.SETTING, number)
        assert threads.each(lambda i: i * i, range(50)) == [i * i for i in range(50)]
        assert threads.each(lambda i: i, []) == []


def test_each_uses_several_threads_and_no_more(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "3")
    busy, most, lock = 0, 0, threading.Lock()

    def work(_):
        nonlocal busy, most
        with lock:
            busy += 1
            most = max(most, busy)
        # Work within work stays on its thread.
        assert (
            threads.each(lambda i: threading.get_ident(), range(4)) == [threading.get_ident()] * 4
        )
        time.sleep(0.01)
        with lock:
            busy -= 1

    threads.each(work, range(12))
    assert most == 3


@pytest.mark.parametrize("number", ["1", "3"])
def test_an_error_in_one_block_is_the_callers(number, monkeypatch):
    monkeypatch.setenv(threads.SETTING, number)
    done = []

    def work(i):
        if i == 3:
            raise KeyError("three")
        done.append(i)

    with pytest.raises(KeyError, match="three"):
        threads.each(work, range(1000))
    assert len(done) < 1000  # the rest is not worked through
    assert threads.each(lambda i: i, range(5)) == list(range(5))


@pytest.mark.parametrize("wrong", ["0", "-1", "two", "1.5"])
def test_the_setting_is_a_number(wrong, monkeypatch):
    monkeypatch.setenv(threads.SETTING, wrong)
    with pytest.raises(caloric.InputError, match="CALORIC_THREADS must be a whole number"):
        caloric.extract(photographs.grey("camera"))


def test_others_threads_rest_meanwhile_and_are_put_back(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "2")
    before = cv2.getNumThreads()
    cv2.setNumThreads(2)
    try:

        @threads.single_threaded_blas
        def inside():
            # NumPy's and SciPy's: what others bring along later is theirs.
            own = [p for p in threadpool_info() if p["user_api"] == "blas"]
            own = [p for p in own if "numpy" in p["filepath"] or "scipy" in p["filepath"]]
            return cv2.getNumThreads(), [p["num_threads"] for p in own]

        opencv, blas = inside()
        assert opencv == 1
        assert blas
        assert set(blas) == {1}
        assert cv2.getNumThreads() == 2
    finally:
        cv2.setNumThreads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_after_a_fork():
    code = """
import multiprocessing, numpy as np, caloric
image = np.random.default_rng(0).random((200, 200))
whole = caloric.extract(image).descriptors
def again(_): return caloric.extract(image).descriptors
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        assert all((found == whole).all() for found in pool.map(again, range(4)))
    print("the same")
"""
    env = {**os.environ, threads.SETTING: "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "the same", done.stderr


def test_several_callers_at_once(monkeypatch):
    """Calls from several threads of the user's, each with our threads: none waits for ever."""
    monkeypatch.setenv(threads.SETTING, "2")
    image = photographs.grey("camera")
    expected = caloric.extract(image, max_features=100).descriptors
    found = {}

    def work(i):
        found[i] = caloric.extract(image, max_features=100).descriptors

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(found) == 4
    assert all((values == expected).all() for values in found.values())


def test_import_is_light():
    code = "import caloric, sys; print({'scipy', 'PIL', 'torch', 'tifffile'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


# ---- caloric bench speed


@pytest.fixture(scope="module")
def image_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("speed") / "camera.png"
    cv2.imwrite(str(path), photographs.grey("camera")[:200, :240])
    return path


@pytest.mark.slow
def test_bench_speed(image_file, tmp_path, monkeypatch):
    from typer.testing import CliRunner

    monkeypatch.setattr(speed, "MATCHED", 300)
    monkeypatch.setattr(speed, "SIZES", (0.05,))
    before = dict(os.environ), cv2.getNumThreads()
    plot, results = tmp_path / "speed.png", tmp_path / "speed.json"
    arguments = ["bench", "speed", str(image_file), "--rounds", "1", "--threads", "1,2"]
    arguments += ["--max-features", "100", "--large", "0.2", "--json", str(results)]
    done = CliRunner().invoke(app, [*arguments, "--plot", str(plot)], catch_exceptions=False)
    assert done.exit_code == 0
    report = json.loads(results.read_text())
    paths = ["plain"] if native.core() is None else ["core", "plain"]
    for number in ("1", "2"):
        tasks = report["threads"][number]
        assert set(tasks) == {"extract", "detect", "describe", "closed forms", "match"}
        for path in paths:
            assert tasks["extract"][f"caloric, {path}"]["ratio"] > 0
            assert tasks["describe"][f"heat, {path}"]["seconds"] > 0
        assert set(tasks["closed forms"]) == {"sift", "dsp-inner", "dsp-both"}
        for names in tasks.values():
            assert next(iter(names.values()))["ratio"] == 1
    assert report["large"][0]["peak bytes"] > 1e7
    assert report["side by side"]["gain"] > 0
    assert set(report["with OpenCV alone"]["2"]["extract"]) >= {"OpenCV SIFT", "caloric, plain"}
    assert report["versions"]["opencv"] == cv2.__version__
    assert "## Side by side" in speed_page.page(report)
    assert plot.stat().st_size > 10_000
    assert (dict(os.environ), cv2.getNumThreads()) == before
    for line in ("extract", "match", "megapixels"):
        assert line in done.stdout


def test_bench_speed_says_what_is_wrong(image_file):
    from typer.testing import CliRunner

    for arguments, message in (
        ([str(image_file), "--threads", "two"], "--threads must be numbers"),
        (["none.png"], "no such file"),
    ):
        done = CliRunner().invoke(app, ["bench", "speed", *arguments])
        assert isinstance(done.exception, caloric.InputError)
        assert message in str(done.exception)


def test_the_same_matches_as_faiss():
    pytest.importorskip("faiss")
    assert speed.same_matches(1000) == 1


def test_large_images_of_the_benchmark():
    pixels = np.arange(12, dtype=np.uint8).reshape(3, 4)
    large = speed._scaled(pixels, 0.01)
    assert abs(large.size - 10_000) < 200
    assert (large[:3, :4] == pixels).all()
