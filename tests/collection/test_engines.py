"""Engines: all write the same store, and survive the death of workers."""

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from pathlib import Path

import cv2
import numpy as np
import pytest

import caloric
from caloric.collection import engines, store
from caloric.errors import InputError
from stores import content, extract, run
from tools.drills import kills

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_processes_write_the_same_store(directory, tmp_path):
    extract(directory, tmp_path / "one")
    with engines.Processes(2) as engine:
        extract(directory, tmp_path / "two", engine)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def _process(_):
    return os.getpid()


def test_many_files_are_read_by_other_processes():
    with engines.Processes(2) as engine:
        few, many = engines._FEW, 10 * engines._FEW
        assert list(engine.read(_process, range(few))) == [os.getpid()] * few
        read = list(engine.read(_process, range(many)))
    assert len(read) == many
    assert os.getpid() not in read


def test_nothing_of_a_pool_is_left_after_it():
    """A thread of the pool that still runs when Python exits may print a traceback."""
    before = threading.enumerate()
    with engines.Processes(2) as engine:
        assert list(engine.run(_process, range(2)))
        assert len(threading.enumerate()) > len(before)
    assert threading.enumerate() == before


def test_an_error_does_not_wait_for_unfinished_tasks():
    started = time.monotonic()
    with suppress(InputError), engines.Processes(2) as engine:
        next(engine.run(time.sleep, [0, 600]))
        raise InputError("the disk is full")
    assert time.monotonic() - started < 60


def test_two_dask_workers_write_the_same_store(directory, tmp_path):
    distributed = pytest.importorskip("distributed")
    extract(directory, tmp_path / "one")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        engine = engines.Cluster(cluster.scheduler_address)
        extract(directory, tmp_path / "two", engine)
        engine.close()
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.slow
def test_a_run_after_a_kill_completes_the_store(directory):
    """Kill a process and the scheduler; `python -m tools kills` kills more often, and workers."""
    pytest.importorskip("distributed")
    victims = ("process", "scheduler")
    for i in range(8):  # enough images that the kill comes before the end
        for scene in ("eins", "zwei und drei"):
            for path in sorted((directory / scene).glob("bild*.png")):
                (directory / scene / f"{i} {path.name}").write_bytes(path.read_bytes())
    report = kills.run(directory, 2, 120, 0, lambda message: None, victims)
    for kill in report["kills"]:
        assert kill["the same store"], kill
        assert kill["written again"] == 0, kill
    *_, scheduler = report["kills"]
    assert not scheduler["the run went on"]
    # On a busy machine the scheduler may be killed before the client has connected to it.
    reasons = ("lost the connection to the scheduler", "no scheduler responds")
    assert any(r in line for r in reasons for line in scheduler["it said"]), scheduler["it said"]


def _die(task):
    if task == 3 and not Path(os.environ["CALORIC_TEST_DIED"]).exists():
        Path(os.environ["CALORIC_TEST_DIED"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_the_task_of_a_killed_worker_runs_again(tmp_path, monkeypatch):
    monkeypatch.setenv("CALORIC_TEST_DIED", str(tmp_path / "died"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with engines.Processes(2) as engine:
        results = list(engine.run(_die, range(8)))
    assert sorted(set(results)) == list(range(8))
    assert (tmp_path / "died").exists()


def _identify(task):
    return os.getpid()


def test_the_drill_finds_the_workers_of_a_pool(monkeypatch):
    pytest.importorskip("psutil")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with engines.Processes(2) as engine:
        workers = set(engine.run(_identify, range(4)))
        assert workers
        assert workers <= set(kills.pool(os.getpid()))


def test_a_cluster_without_workers_is_an_error(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "_WORKER_TIMEOUT", 1)
    with distributed.LocalCluster(
        n_workers=0, dashboard_address=None, silence_logs=50, processes=False
    ) as cluster:
        engine = engines.Cluster(cluster.scheduler_address)
        with pytest.raises(caloric.InputError, match="no workers"):
            list(engine.run(abs, range(3)))
        engine.close()


def test_workers_share_the_threads(monkeypatch):
    monkeypatch.setenv("CALORIC_THREADS", "8")
    assert engines.Processes(2).threads == 4
    assert engines.Processes(16).threads == 1


def test_the_command_starts_a_local_cluster(directory, tmp_path):
    pytest.importorskip("distributed")
    result = run("collection", "extract", directory, "-o", tmp_path / "out", "--cluster", "local",
                 "--max-features", 120, "--device", "cpu")  # fmt: skip
    assert result.exit_code == 0, result.output
    extract(directory, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")
    unreachable = run(
        "collection", "extract", directory, "-o", tmp_path / "out", "--cluster", "nonsense"
    )
    assert unreachable.exit_code != 0


SCRIPT = """
import logging
from caloric import collection, ExtractOptions
from caloric.collection import Workers
result = collection.extract("images", "out", ExtractOptions(max_features=20), workers=Workers(2))
print("images:", len(result.found))
"""


@pytest.mark.parametrize("given", ["script.py", "-"])
def test_a_script_needs_no_main_guard(tmp_path, given):
    """If workers imported the script, they would run it and wait for the lock of their parent."""
    (tmp_path / "images").mkdir()
    for i in range(3):
        image = np.random.default_rng(i).integers(0, 255, (60, 70), np.uint8)
        cv2.imwrite(str(tmp_path / "images" / f"{i}.png"), image)
    (tmp_path / "script.py").write_text(SCRIPT)
    result = subprocess.run(
        [sys.executable, given], input=SCRIPT, cwd=tmp_path, text=True, capture_output=True,
        timeout=100, check=False,
    )  # fmt: skip
    assert result.stdout == "images: 3\n", result.stderr


def test_no_task_is_lost_if_the_pool_breaks_while_tasks_are_submitted(monkeypatch):
    class Pool(ThreadPoolExecutor):
        def submit(self, *call):
            submitted.append(call)
            if len(submitted) in (3, 8):
                raise BrokenProcessPool
            return super().submit(*call)

    submitted = []
    monkeypatch.setattr(
        engines, "ProcessPoolExecutor", lambda workers, *_, **__: Pool(max_workers=workers)
    )
    with engines.Processes(2) as engine:
        results = list(engine.run(abs, range(-9, 0)))
    assert set(results) == set(range(1, 10))
    assert len(submitted) > 9
