"""``caloric bench scale``: a collection of any size, from pixels to verified pairs.

The images are rendered (:mod:`caloric.bench.rendered`), so that it is known which of them overlap.
Rendering is not part of the times. A run that was interrupted continues where it ended.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caloric import collection
from caloric.bench import datasets, rendered
from caloric.bench.rendered import Rendering, Task
from caloric.bench.report import versions
from caloric.collection import pairing, summaries
from caloric.collection.engines import Workers
from caloric.collection.reporter import Reporter
from caloric.errors import InputError
from caloric.gpu import devices
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.runtime.files import check_input_directory, replacing
from caloric.types import Report

_BLOCK = 100  # images that a worker renders per task
_STEPS = "steps.json"
_INTERVAL = 1.0  # seconds between measurements of time and memory


@dataclass(frozen=True)
class Run:
    """A collection of ``count`` images with up to ``max_features`` features, in ``directory``.

    ``how`` selects the pairs: see :class:`caloric.collection.Pairing`.
    """

    photographs: Path
    directory: Path
    count: int
    max_features: int
    how: pairing.How
    nearest: int
    workers: Workers

    @property
    def images(self) -> Path:
        """The directory of the rendered images."""
        return self.directory / "images"

    @property
    def store(self) -> Path:
        """The store of the collection."""
        return self.directory / "store"


def run(settings: Run, report: Reporter) -> Report:
    """Render the images, process them, and return times, sizes, memory and recall."""
    check_input_directory(settings.photographs)
    datasets.required_photographs(settings.photographs)
    if settings.count < 2:
        raise InputError(f"a collection has at least 2 images, got {settings.count}")
    rendering = Rendering(str(settings.photographs.absolute()), settings.count)
    settings.directory.mkdir(parents=True, exist_ok=True)
    steps = _Steps(settings.directory / _STEPS)
    steps.check({"images": settings.count, "features": settings.max_features})
    _render(rendering, settings.images, report)
    options = ExtractOptions(max_features=settings.max_features)
    selection = collection.Pairing(settings.how, nearest=settings.nearest)
    store, workers = settings.store, settings.workers
    extracted = steps.timed(
        "extract",
        lambda: collection.extract(settings.images, store, options, workers=workers, report=report),
    )
    selected = steps.timed(
        "pair", lambda: collection.pair(store, selection, workers=workers, report=report)
    )
    steps.timed("match", lambda: collection.match(store, workers=workers, report=report))
    steps.timed("verify", lambda: collection.verify(store, workers=workers, report=report))
    expected = set(rendering.overlapping())
    pairs = set(selected.pairs)
    verified = {(p.name_a, p.name_b) for p in summaries.summaries(store) if p.is_verified}
    seconds = steps.seconds
    return {
        "images": settings.count, "features": extracted.features, "pairs": len(pairs),
        "verified pairs": len(verified), "overlapping pairs": len(expected),
        "recall of selected pairs": len(expected & pairs) / max(len(expected), 1),
        "recall of verified pairs": len(expected & verified) / max(len(expected), 1),
        "verified pairs of different scenes": sum(_scene(a) != _scene(b) for a, b in verified),
        "seconds": seconds, "images a second": settings.count / sum(seconds.values()),
        "interrupted": steps.interrupted,
        "bytes an image": bytes_below(store) / settings.count,
        "memory of all processes, bytes": steps.memory,
        "device": str(workers.resolved().device), "cluster": workers.cluster or "none",
        "threads": threads.count(), "gpu": devices.about(), "versions": versions(),
    }  # fmt: skip


def _render(rendering: Rendering, directory: Path, report: Reporter) -> None:
    tasks = [
        Task(rendering, str(directory), range(i, min(i + _BLOCK, rendering.count)))
        for i in range(0, rendering.count, _BLOCK)
    ]
    with report.working("rendering images"), Workers(device="cpu").engine() as engine:
        for done, _ in enumerate(engine.run(rendered.write, tasks), 1):
            report.progress("blocks of images", done, len(tasks))


class _Steps:
    """The durations of the steps of a run, and its memory, kept in a file.

    If an earlier run was interrupted, its time and memory count, too.
    """

    def __init__(self, path: Path) -> None:
        """Read what an earlier run measured."""
        self.path = path
        self._state: dict[str, Any] = {
            "seconds": {}, "attempts": {}, "settings": None, "interrupted": [], "memory": 0
        }  # fmt: skip
        if path.exists():
            self._state = json.loads(path.read_text())

    @property
    def seconds(self) -> dict[str, float]:
        """The duration of each completed step."""
        return dict(self._state["seconds"])

    @property
    def interrupted(self) -> list[str]:
        """The steps that were interrupted."""
        return list(self._state["interrupted"])

    @property
    def memory(self) -> int:
        """The largest sum of the memory of all processes, in bytes."""
        return int(self._state["memory"])

    def check(self, settings: dict[str, int]) -> None:
        """Raise InputError if an earlier run in this directory had other settings."""
        earlier = self._state["settings"]
        if earlier is not None and earlier != settings:
            raise InputError(
                f"{self.path.parent}: contains a run with other settings ({earlier}); specify "
                "another directory"
            )
        self._state["settings"] = settings
        self._write()

    def timed(self, name: str, work: Callable[[], Any]) -> Any:
        """Return the result of a step; measure it unless an earlier run completed it."""
        if name in self._state["seconds"]:
            return work()
        before, started = self._state["attempts"].get(name), time.perf_counter()
        if before is not None:
            self._state["interrupted"] = [*self.interrupted, name]

        def record() -> float:
            elapsed = (before or 0.0) + time.perf_counter() - started
            self._state["attempts"][name] = elapsed
            self._state["memory"] = max(self.memory, _memory())
            self._write()
            return elapsed

        record()
        with _repeated(record):
            result = work()
        self._state["seconds"][name] = record()
        self._write()
        return result

    def _write(self) -> None:
        with replacing(self.path) as file:
            file.write(json.dumps(self._state).encode())


@contextmanager
def _repeated(work: Callable[[], object]) -> Iterator[None]:
    """Call ``work`` at intervals, in another thread."""
    ended = threading.Event()

    def repeat() -> None:
        while not ended.wait(_INTERVAL):
            work()

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


def _scene(name: str) -> str:
    return name.rpartition("-")[0]


def bytes_below(directory: Path) -> int:
    """Return the size of all files in a directory tree."""
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _memory() -> int:
    """Return the memory of this process and its descendants, in bytes; 0 without /proc.

    Shared pages count several times.
    """
    parents, pages = {}, {}
    for directory in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError, IndexError):  # the process may have ended
            process = int(directory.name)
            text = (directory / "stat").read_text()
            parents[process] = int(text.rpartition(")")[2].split()[1])
            pages[process] = int((directory / "statm").read_text().split()[1])

    def is_ours(process: int) -> bool:
        while process not in (0, os.getpid()):
            process = parents.get(process, 0)
        return process != 0

    return os.sysconf("SC_PAGE_SIZE") * sum(n for p, n in pages.items() if is_ours(p))


def lines(report: Report) -> list[str]:
    """Return the report as lines for the terminal."""
    seconds = report["seconds"]
    steps = ", ".join(f"{name} {value:,.0f} s" for name, value in seconds.items())
    result = [
        f"{report['images']:,} images: {sum(seconds.values()):,.0f} s ({steps}), "
        f"{report['images a second']:,.1f} images per second",
        f"{report['pairs']:,} pairs, {report['verified pairs']:,} verified; of "
        f"{report['overlapping pairs']:,} overlapping pairs "
        f"{report['recall of selected pairs']:.1%} were selected and "
        f"{report['recall of verified pairs']:.1%} verified",
        f"{report['bytes an image'] / 1e3:,.0f} kB per image in the store; "
        f"{report['memory of all processes, bytes'] / 1e9:.1f} GB of memory in all processes",
    ]
    if report["interrupted"]:
        result.append(
            f"interrupted steps: {', '.join(report['interrupted'])}; their times include all "
            "attempts"
        )
    return result
