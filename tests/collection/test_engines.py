"""Engines: the same store from all of them, and workers that die."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest

import caloric
from caloric.collection import engines, store
from stores import content, extract, run
from tools.drills import kills

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_processes_make_the_same_store(directory, tmp_path):
    extract(directory, tmp_path / "one")
    with engines.Processes(2) as engine:
        extract(directory, tmp_path / "two", engine)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_two_dask_workers_make_the_same_store(directory, tmp_path):
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
def test_killed_runs_are_finished_by_the_next(directory):
    """A process and the scheduler; twenty times, and workers too: python -m tools kills."""
    pytest.importorskip("distributed")
    victims = ("process", "scheduler")
    for i in range(4):  # enough to do that a kill comes in between
        for place in ("eins", "zwei und drei"):
            for path in sorted((directory / place).glob("bild*.png")):
                (directory / place / f"{i} {path.name}").write_bytes(path.read_bytes())
    report = kills.run(directory, 2, 120, 0, lambda message: None, victims)
    for one in report["kills"]:
        assert one["the same store"], one
        assert one["written again"] == 0, one
    *_, scheduler = report["kills"]
    assert not scheduler["the run went on"]
    # Killed in the middle, or, on a busy machine, before anybody had connected to it.
    reasons = ("scheduler was lost", "no scheduler answers")
    assert any(r in line for r in reasons for line in scheduler["it said"]), scheduler["it said"]


def _die(task):
    if task == 3 and not Path(os.environ["CALORIC_TEST_DIED"]).exists():
        Path(os.environ["CALORIC_TEST_DIED"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_workers_task_is_done_by_another_when_it_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("CALORIC_TEST_DIED", str(tmp_path / "died"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with engines.Processes(2) as engine:
        found = list(engine.run(_die, range(8)))
    assert sorted(set(found)) == list(range(8))
    assert (tmp_path / "died").exists()


def test_dask_is_told_that_nobody_works(monkeypatch):
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


def test_a_cluster_of_ones_own(directory, tmp_path):
    pytest.importorskip("distributed")
    result = run("collection", "extract", directory, "-o", tmp_path / "out", "--cluster", "local",
                 "--max-features", 120, "--device", "cpu")  # fmt: skip
    assert result.exit_code == 0, result.output
    extract(directory, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")
    nobody = run(
        "collection", "extract", directory, "-o", tmp_path / "out", "--cluster", "nonsense"
    )
    assert nobody.exit_code != 0


SCRIPT = """
import logging
from caloric import collection, ExtractOptions
from caloric.collection import Workers
result = collection.extract("images", "out", ExtractOptions(max_features=20), workers=Workers(2))
print("images:", len(result.found))
"""


@pytest.mark.parametrize("given", ["script.py", "-"])
def test_a_script_needs_no_main_guard(tmp_path, given):
    """Workers would run it again, and wait for the lock of their parent."""
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
