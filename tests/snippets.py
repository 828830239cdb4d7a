"""Commands, Python code and install lines of the documents, and the files that they use."""

import os
import re
import shutil
import signal
import subprocess
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import cv2
import h5py
import numpy as np

import caloric
import colmap_project
import photographs
from caloric.interop import colmap_tables
from caloric.interop.colmap_tables import CameraRow
from paths import DOCS, README

# Commands that take minutes, need other data or other machines; their options are checked instead.
LONG = (
    "caloric bench",
    "caloric paper",
    "make",
    "pip",
    "dask",
    "python",
    "cd",
    "git",
    "pre-commit",
)


@dataclass(frozen=True)
class Page:
    """A document."""

    path: Path

    @property
    def text(self):
        return self.path.read_text("utf-8")

    @property
    def lines(self):
        """Commands, one per line of an indented block, without comments."""
        code = re.sub(r"^ *```.*?^ *```", "", self.text, flags=re.S | re.M)
        programs = "caloric|colmap|dask|make|mkdir|pip|python"
        indented = re.findall(rf"^    ((?:{programs}) .*?)(?: +#.*)?$", code, re.M)
        return [line.strip() for line in indented]

    @property
    def install(self):
        """Install lines: ``pip install`` with a path, and packages after it."""
        lines = re.findall(r"pip install '?\.[^`#\n]*", self.text)
        return [line.strip() for line in lines]

    def extra(self, command):
        """Return the extra that the comment after a command names, or None."""
        match = re.search(rf"^    {re.escape(command)} +#.*caloric\[(\w+)\]", self.text, re.M)
        return match and match.group(1)

    @property
    def commands(self):
        return [c for c in self.lines if not c.startswith(LONG) and "tcp://" not in c]

    @property
    def python(self):
        return re.findall(r"```python\n(.*?)```", self.text, re.S)


PAGES = [p for p in map(Page, (README, *sorted(DOCS.glob("*.md")))) if p.python or p.commands]


def write_files(directory):
    """Write the files that the documents name."""
    whole = photographs.gray("camera", (300, 300))
    motion = photographs.similarity(1.0, 10, (4, 3), (150, 150))
    images = {"A": whole, "B": photographs.warp(whole, motion), "WHOLE": whole}
    images |= {"PART": whole[80:200, 90:220], "PARTS1": whole[80:200, 90:220]}
    images["PARTS2"] = photographs.gray("coffee", (130, 120))
    for name, image in images.items():
        cv2.imwrite(str(directory / f"{name}.jpg"), image)
    (directory / "IMAGES").mkdir()
    names = [f"{i}.jpg" for i in range(3)]
    views = photographs.book(len(names))
    for name, view in zip(names, views, strict=True):
        cv2.imwrite(str(directory / "IMAGES" / name), view)
    shutil.copytree(directory / "IMAGES", directory / "DATASETS" / "project" / "images")
    pair = caloric.match_images(*views[:2], model="fundamental", refine=False)
    keypoints = dict(zip(names, (pair.points_a, pair.points_b), strict=False))
    grid = np.stack(np.meshgrid(range(20, 280, 20), range(20, 280, 20)), -1).reshape(-1, 2)
    np.savez(directory / "matches.npz", points_a=grid, points_b=photographs.apply(motion, grid))
    points = np.concatenate([pair.points_a, pair.points_b], 1)
    np.savetxt(directory / "matches.csv", points, delimiter=",")
    rows = np.repeat(np.arange(len(pair.points_a)), 2).reshape(-1, 2)
    colmap_project.write(directory / "DATABASE.db", keypoints, {(names[0], names[1]): rows})
    h, w = views[0].shape[:2]
    camera = CameraRow(2, w, h, np.array([1.2 * w, w / 2, h / 2, 0]).tobytes(), 0)
    for name in ("FIRST.db", "SECOND.db"):
        with colmap_tables.created(directory / name) as tables:
            number = tables.add_camera(camera)
            for image, xy in keypoints.items():
                tables.add_image(image, number, (xy + 0.5).astype(np.float32))
            tables.add_matches(names[0], names[1], rows.astype(np.uint32))
    if shutil.which("colmap"):
        for step in ("feature_extractor --image_path IMAGES", "exhaustive_matcher"):
            run(f"colmap {step} --database_path database.db", directory, "")
    else:
        shutil.copy(directory / "DATABASE.db", directory / "database.db")
    with h5py.File(directory / "feats.h5", "w") as file:
        for name, xy in keypoints.items():
            file[f"{name}/keypoints"] = xy.astype(np.float32)
    with h5py.File(directory / "matches.h5", "w") as file:
        file[f"{names[0]}/{names[1]}/matches0"] = rows[:, 0].astype(np.int32)


def start(command, directory, programs, **options):
    """Start a command, with ``programs`` first on the path."""
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"} | {"PATH": path}
    return subprocess.Popen(
        ["/bin/sh", "-c", f"exec {command}"], cwd=directory, env=environment,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def run(command, directory, programs):
    """Run a command of a document, and check that it succeeds and writes what it promises."""
    if command.startswith("caloric view") and "--ply" not in command:
        serve(command, directory, programs)
        return
    if command.startswith("colmap"):
        if shutil.which("colmap") is None:
            return
        # COLMAP uses OpenGL or CUDA by default, which test machines lack.
        step = command.split()[1]
        if "extractor" in step or "match" in step:
            group = "SiftExtraction" if "extractor" in step else "SiftMatching"
            command += f" --{group}.use_gpu 0"
        pair_list = re.search(r"--match_list_path (\S+)", command)
        if pair_list and not (directory / pair_list.group(1)).exists():
            # caloric merge writes none here, because COLMAP has verified all pairs
            (directory / pair_list.group(1)).write_text("0.jpg 1.jpg\n")
    process = start(command, directory, programs)
    output, errors = process.communicate(timeout=900)  # under emulation
    # Without COLMAP's executable, or without pycolmap, which has no wheel for Linux on ARM.
    if "apt-get install colmap" in errors or "needs pycolmap" in errors:
        assert "collection" in command
        return
    assert process.returncode == 0, f"{command}\n{output}\n{errors}"
    target = re.search(r"(?:-o|--ply) (\S+)", command)
    if target:
        path = directory / target.group(1)
        assert path.is_dir() or path.stat().st_size > 1000


def serve(command, directory, programs):
    """Start the viewer, load its page and stop it."""
    command = command.replace("--number 1", "--number 0")  # there is only one model
    command = f"{command} --port 0 --no-browser"
    process = start(command, directory, programs, start_new_session=True)
    try:
        address = process.stdout.readline().split()[0]
        deadline = time.monotonic() + 30
        while True:
            try:
                with urllib.request.urlopen(address, timeout=10) as answer:
                    assert b"<canvas" in answer.read()
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
    assert process.returncode in (0, 130)
