"""Fuzz the image decoders: every damaged file must yield features or an error of one line.

Real files are mutated by a seeded generator and read in another process. Limits: no crash, at most
10 seconds per file, at most 1 GB of memory.
"""

import io
import multiprocessing
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from caloric.errors import InputError

SECONDS = 10.0
KILOBYTES = 1_000_000
_HUGE = (100_000).to_bytes(4, "big")


def _encoded(image: Any, kind: str, **options: Any) -> bytes:
    buffer = io.BytesIO()
    image.save(buffer, format=kind, **options)
    return buffer.getvalue()


def originals() -> list[bytes]:
    """Return small PNG, JPEG, TIFF and WebP files of common kinds, and a larger JPEG file."""
    from PIL import Image
    from skimage import data

    photograph = np.asarray(data.astronaut())  # type: ignore[no-untyped-call]
    small = cv2.resize(photograph, (160, 120), interpolation=cv2.INTER_AREA)
    image = Image.fromarray(small)
    exif = Image.Exif()
    exif[0x0112] = 6
    deep = small.astype(np.uint16) * 257
    alpha = Image.fromarray(np.dstack([small, small[..., 0]]))
    return [
        _encoded(image, "PNG"),
        _encoded(image.quantize(32), "PNG"),
        _encoded(alpha, "PNG"),
        cv2.imencode(".png", deep)[1].tobytes(),
        _encoded(image, "JPEG", quality=85, exif=exif),
        _encoded(image, "JPEG", quality=60, progressive=True),
        _encoded(image.convert("L"), "JPEG"),
        _encoded(image.convert("CMYK"), "JPEG"),
        _encoded(image, "TIFF"),
        _encoded(image, "TIFF", compression="tiff_lzw"),
        cv2.imencode(".tiff", (small / 255).astype(np.float32))[1].tobytes(),
        cv2.imencode(".tiff", deep[..., 0])[1].tobytes(),
        _encoded(image, "WEBP"),
        _encoded(alpha, "WEBP", lossless=True),
        # 3.1 megapixels, to test the memory limit.
        _encoded(image.resize((2048, 1536)), "JPEG", quality=75),
    ]


def mutated(files: list[bytes], seed: int) -> bytes:
    """Return one of the files with one to four mutations, chosen by ``seed``."""
    rng = np.random.default_rng(seed)
    data = bytearray(files[int(rng.integers(len(files)))])
    for _ in range(int(rng.integers(1, 5))):
        if not data:
            break
        # Half of the mutations are in the header, which has the most fields.
        end = len(data) if rng.random() < 0.5 else min(len(data), 200)
        at = int(rng.integers(end))
        kind = int(rng.integers(7))
        if kind == 0:
            data[at] ^= 1 << int(rng.integers(8))
        elif kind == 1:
            count = int(rng.integers(1, 9))
            data[at : at + count] = rng.bytes(count)
        elif kind == 2:
            del data[at:]
        elif kind == 3:
            del data[at : at + int(rng.integers(1, 65))]
        elif kind == 4:
            data[at:at] = rng.bytes(int(rng.integers(1, 65)))
        elif kind == 5:
            other = files[int(rng.integers(len(files)))]
            data[at:] = other[int(rng.integers(len(other))) :]
        else:
            field = _HUGE if rng.random() < 0.5 else b"\xff\xff\xff\xff"
            data[at : at + 4] = field[:: 1 if rng.random() < 0.5 else -1]
    return bytes(data)


def _work(pipe: Connection) -> None:
    """Read files in the watched process, and send the outcome of each."""
    from caloric import pipeline
    from caloric.image import reading

    cv2.setNumThreads(1)
    pipeline.extract(np.random.default_rng(0).random((64, 64)), max_features=50)
    pipe.send(("ready", ""))
    while True:
        data = pipe.recv_bytes()
        try:
            features = pipeline.extract(reading.decode(data), max_features=200)
            outcome = ("features", str(len(features)))
        except InputError as error:
            outcome = ("error", str(error))
        except Exception as error:
            outcome = ("crash", f"{type(error).__name__}: {error}")
        pipe.send((*outcome, _peak()))


def _peak() -> int:
    """Return the peak memory of this process in kB."""
    status = Path("/proc/self/status")
    if status.exists():
        # getrusage would include the parent process.
        (line,) = (x for x in status.read_text().splitlines() if x.startswith("VmHWM"))
        return int(line.split()[1])
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak // 1000 if sys.platform == "darwin" else peak  # macOS counts bytes


class _Worker:
    """A watched process that can be replaced."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, child_pipe = context.Pipe()
        self.process = context.Process(target=_work, args=(child_pipe,), daemon=True)
        self.process.start()
        child_pipe.close()
        if not self.pipe.poll(120):
            raise RuntimeError("the watched process did not start")
        self.pipe.recv()

    def read(self, data: bytes) -> tuple[str, str]:
        """Return the outcome of a file; "hang", "memory" or "crash" if it violated a limit."""
        self.pipe.send_bytes(data)
        if not self.pipe.poll(SECONDS):
            return "hang", f"no result within {SECONDS:g} s"
        try:
            kind, text, peak = self.pipe.recv()
        except EOFError:
            return "crash", "the process died"
        if peak > KILOBYTES:
            return "memory", f"peak of {peak // 1000} MB"
        if kind == "error" and ("\n" in text or not text):
            return "crash", f"not an error of one line: {text!r}"
        return kind, text

    def stop(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.join()
        self.pipe.close()


@dataclass(frozen=True)
class Report:
    """The number of files by outcome, and (seed, outcome) of each file that violated a limit."""

    outcomes: dict[str, int]
    broken: list[tuple[int, str]]


def run(count: int, first: int = 0, progress: Callable[[int], None] = lambda done: None) -> Report:
    """Return the outcomes of files with seeds ``first`` to ``first + count - 1``."""
    files = originals()
    outcomes: Counter[str] = Counter()
    broken = []
    worker = _Worker()
    try:
        for seed in range(first, first + count):
            kind, text = worker.read(mutated(files, seed))
            outcomes[kind] += 1
            if kind not in ("features", "error"):
                broken.append((seed, f"{kind}: {text}"))
                worker.stop()
                worker = _Worker()
            progress(seed - first + 1)
    finally:
        worker.stop()
    return Report(dict(outcomes), broken)
