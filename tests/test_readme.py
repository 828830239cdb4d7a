"""Every command of the README, typed as it stands there into a shell, on small files."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import cv2
import pytest

import photographs
from caloric.bench import overview

README = Path(__file__).parents[1] / "README.md"
# Minutes, or data that is not here.
LONG = {"bench", "paper", "make", "pip"}


def lines():
    found = re.findall(
        r"^    (caloric|make|pip) (.*?)(?:  +#.*)?$", README.read_text("utf-8"), re.M
    )
    return [(name, rest.strip()) for name, rest in found]


SHORT = [rest for name, rest in lines() if name == "caloric" and rest.split()[0] not in LONG]


@pytest.fixture
def place(tmp_path):
    """A folder with the files that the commands name, and `caloric` on the path."""
    whole = photographs.grey("camera", (300, 300))
    moved = photographs.similarity(1.0, 10, (4, 3), (150, 150))
    pictures = {"A": whole, "B": photographs.warp(whole, moved), "WHOLE": whole}
    pictures |= {"PART": whole[80:200, 90:220], "PARTS1": whole[80:200, 90:220]}
    pictures["PARTS2"] = photographs.grey("coffee", (130, 120))
    for name, image in pictures.items():
        cv2.imwrite(str(tmp_path / f"{name}.jpg"), image)
    (tmp_path / "FOLDER").mkdir()
    for i, degrees in enumerate((0, 4, 8)):
        turned = photographs.warp(whole, photographs.similarity(1.0, degrees, (i, i), (150, 150)))
        cv2.imwrite(str(tmp_path / "FOLDER" / f"{i}.jpg"), turned)
    script = tmp_path / "bin" / "caloric"
    script.parent.mkdir()
    script.write_text(
        f"#!{sys.executable}\nfrom caloric.cli import main\nif __name__ == '__main__': main()\n"
    )
    script.chmod(0o755)
    return tmp_path


def shell(place, command, **options):
    path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
    return subprocess.Popen(
        ["/bin/sh", "-c", f"exec caloric {command}"], cwd=place, env=os.environ | {"PATH": path},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


@pytest.mark.parametrize("command", [c for c in SHORT if not c.startswith(("view", "collection"))])
def test_commands(command, place):
    process = shell(place, command)
    out, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert out.strip()
    target = re.search(r"-o (\S+)", command)
    if target:
        assert (place / target.group(1)).stat().st_size > 1000


def test_the_collection(place):
    """A plane gives COLMAP no model, which is said; all before it is there."""
    (command,) = (c for c in SHORT if c.startswith("collection"))
    process = shell(place, command)
    _, said = process.communicate(timeout=200)
    assert process.returncode in (0, 2), said
    assert (place / "OUT" / "colmap" / "database.db").exists()


def test_the_page(place):
    (command,) = (c for c in SHORT if c.startswith("view"))
    process = shell(place, f"{command} --port 0 --no-browser", start_new_session=True)
    try:
        address = process.stdout.readline().split()[0]
        until = time.monotonic() + 20
        while True:
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    assert b"<canvas" in answer.read()
                break
            except OSError:
                assert time.monotonic() < until
                time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode in (0, 130)


def test_the_table_is_the_benchmarks():
    results = README.parent / "docs" / "results"
    found = [json.loads((results / f"{n}.json").read_text()) for n in ("oxford", "speed", "gpu")]
    assert "\n".join(overview.lines(*found)).rstrip() in README.read_text("utf-8")


@pytest.mark.parametrize("command", [c for n, c in lines() if n == "caloric" and c not in SHORT])
def test_long_commands_are_known(command, place):
    """With their options, which --help checks before it answers; they take minutes, or data."""
    words = [w for w in command.split() if not w.isupper()]
    process = shell(place, " ".join(words).replace("--data", "") + " --help")
    out, said = process.communicate(timeout=60)
    assert process.returncode == 0, said
    assert all(w in out for w in words if w.startswith("--"))


def test_no_command_is_forgotten():
    assert {c.split()[0] for c in SHORT} == {
        "match", "view", "extract", "align", "find", "collection"
    }  # fmt: skip
    assert [rest for name, rest in lines() if name == "make"][:2] == ["demo", "test"]
