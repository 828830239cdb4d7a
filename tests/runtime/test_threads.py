"""One owner of threads, and start-up."""

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
        caloric.extract(photographs.gray("camera"))


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
    image = photographs.gray("camera")
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
