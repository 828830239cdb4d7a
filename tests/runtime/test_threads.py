"""The thread pool, and import time."""

import os
import subprocess
import sys
import threading
import time

import cv2
import pytest
from threadpoolctl import threadpool_info

import caloric
import photographs
from caloric.runtime import threads


def test_each_keeps_the_order(monkeypatch):
    for number in "124":
        monkeypatch.setenv(threads.SETTING, number)
        assert threads.each(lambda i: i * i, range(50)) == [i * i for i in range(50)]
        assert threads.each(lambda i: i, []) == []


def test_each_uses_the_requested_number_of_threads(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "3")
    busy, max_busy, lock = 0, 0, threading.Lock()

    def work(_):
        nonlocal busy, max_busy
        with lock:
            busy += 1
            max_busy = max(max_busy, busy)
        # Nested calls stay on the calling thread.
        assert (
            threads.each(lambda i: threading.get_ident(), range(4)) == [threading.get_ident()] * 4
        )
        time.sleep(0.01)
        with lock:
            busy -= 1

    threads.each(work, range(12))
    assert max_busy == 3


@pytest.mark.parametrize("number", ["1", "3"])
def test_a_computation_starts_once_and_its_error_is_raised(number, monkeypatch):
    monkeypatch.setenv(threads.SETTING, number)
    calls = []
    result = threads.begin(lambda: calls.append(threading.get_ident()) or 5)
    assert (result(), result()) == (5, 5)
    assert (calls == [threading.get_ident()]) == (number == "1")

    def failing():
        raise KeyError("three")

    with pytest.raises(KeyError, match="three"):
        threads.begin(failing)()
    nested = [threads.begin(lambda i=i: threads.begin(lambda: i)()) for i in range(20)]
    assert [result() for result in nested] == list(range(20))


@pytest.mark.parametrize("number", ["1", "3"])
def test_an_error_in_one_block_is_raised_in_the_caller(number, monkeypatch):
    monkeypatch.setenv(threads.SETTING, number)
    done = []

    def work(i):
        if i == 3:
            raise KeyError("three")
        done.append(i)

    with pytest.raises(KeyError, match="three"):
        threads.each(work, range(1000))
    assert len(done) < 1000  # the remaining blocks are cancelled
    assert threads.each(lambda i: i, range(5)) == list(range(5))


@pytest.mark.parametrize("value", ["0", "-1", "two", "1.5"])
def test_the_setting_must_be_a_positive_integer(value, monkeypatch):
    monkeypatch.setenv(threads.SETTING, value)
    with pytest.raises(caloric.InputError, match="CALORIC_THREADS must be a positive integer"):
        caloric.extract(photographs.gray("camera"))


def test_blas_and_opencv_are_limited_to_one_thread_and_restored(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "2")
    before = cv2.getNumThreads()
    cv2.setNumThreads(2)
    try:

        @threads.single_threaded_blas
        def inside():
            # Only those of NumPy and SciPy: other libraries may be loaded later.
            pools = [p for p in threadpool_info() if p["user_api"] == "blas"]
            pools = [p for p in pools if "numpy" in p["filepath"] or "scipy" in p["filepath"]]
            return cv2.getNumThreads(), [p["num_threads"] for p in pools]

        opencv, blas = inside()
        assert opencv == 1
        assert blas
        assert set(blas) == {1}
        assert cv2.getNumThreads() == 2
    finally:
        cv2.setNumThreads(before)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_the_same_results_after_a_fork():
    code = """
import multiprocessing, numpy as np, caloric
image = np.random.default_rng(0).random((200, 200))
def features(): return caloric.extract(image, max_features=400)
a = features()
def matched():  # on threads of Python and of the compiled core
    matches = caloric.match(a, a, agreement=True)
    geometry = caloric.verify(a, a, matches)
    return np.concatenate([matches.distances, geometry.residuals])
whole = features().descriptors, matched()
def again(_): return features().descriptors, matched()
if __name__ == "__main__":
    with multiprocessing.get_context("fork").Pool(2) as pool:
        for results in pool.map(again, range(4)):
            assert all((one == other).all() for one, other in zip(results, whole, strict=True))
    print("the same")
"""
    env = {**os.environ, threads.SETTING: "2"}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code],
        env=env, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.stdout.strip() == "the same", done.stderr


def test_concurrent_callers_do_not_deadlock(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "2")
    image = photographs.gray("camera")
    expected = caloric.extract(image, max_features=100).descriptors
    results = {}

    def work(i):
        results[i] = caloric.extract(image, max_features=100).descriptors

    workers = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
    assert len(results) == 4
    assert all((values == expected).all() for values in results.values())


def test_import_loads_no_heavy_libraries():
    code = "import caloric, sys; print({'scipy', 'PIL', 'torch', 'tifffile'} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"
