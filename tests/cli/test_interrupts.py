"""Long commands print what they do, and end on Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import cv2
import numpy as np
import pytest

import photographs
from caloric.collection import store

if sys.platform == "win32":
    pytest.skip("needs POSIX signals", allow_module_level=True)

MAIN = "from caloric.cli import main; main()"
SOON = 15  # seconds, on a machine with other work


def interrupted(*arguments):
    """Interrupt a command after its first line on stderr.

    Return that line, the rest, the exit status and the seconds until the command ended.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, arguments)],
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        started = time.monotonic()
        rest = process.communicate(timeout=30)[1]
        return first, rest, process.returncode, time.monotonic() - started
    finally:
        process.kill()


@pytest.mark.skipif(store.fcntl is None, reason="collections need file locks")
def test_an_interrupted_collection_can_be_continued(tmp_path):
    directory, out = tmp_path / "images", tmp_path / "out"
    directory.mkdir()
    image = photographs.gray("coffee")
    for i in range(40):
        cv2.imwrite(str(directory / f"{i}.png"), image[i:, i:])
    command = ("collection", "extract", directory, "-o", out, "--max-features", 2000)
    first, rest, code, waited = interrupted(*command)
    assert first.startswith("extracting features of")
    assert rest.splitlines()[-1] == (
        "caloric: interrupted; finished work is kept: run the same command again to continue"
    )
    assert code == 130
    assert waited < SOON  # finishing the current shards would take 26
    arguments = [sys.executable, "-c", MAIN, *map(str, command)]
    again = subprocess.run(arguments, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "40 of 40 images" in again.stdout


@pytest.mark.skipif(store.fcntl is None, reason="collections need file locks")
@pytest.mark.parametrize("seconds", [0.1, 0.5, 1.0])
def test_processes_that_start_are_interrupted_without_a_traceback(tmp_path, seconds):
    """A terminal sends Ctrl-C to all processes, also to those that import their modules."""
    cv2.imwrite(str(tmp_path / "a.png"), photographs.gray("coffee"))
    command = ("collection", "extract", tmp_path, "-o", tmp_path / "out")
    process = subprocess.Popen(
        [sys.executable, "-c", MAIN, *map(str, command)], start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        process.stderr.readline()
        time.sleep(seconds)
        os.killpg(process.pid, signal.SIGINT)
        rest = process.communicate(timeout=30)[1]
    finally:
        process.kill()
    assert "Traceback" not in rest


def test_a_benchmark_can_be_interrupted(tmp_path):
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), photographs.gray("brick", (200, 200)))
    first, rest, code, waited = interrupted("bench", "speed", path)
    assert "1 thread: warm-up" in first
    assert rest.splitlines()[-1] == "caloric: interrupted"
    assert code == 130
    assert waited < SOON


def test_matching_large_images_can_be_interrupted(tmp_path):
    path = tmp_path / "large.png"
    cv2.imwrite(str(path), np.tile(photographs.gray("brick", (500, 500)), (7, 8)))
    first, rest, code, waited = interrupted("match", path, path)
    assert first.startswith("matching")
    assert rest.splitlines()[-1] == "caloric: interrupted"
    assert code == 130
    assert waited < SOON
