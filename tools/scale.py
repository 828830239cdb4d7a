"""``python -m tools scale``: measure rates and sizes of a collection, and simulate large ones."""

import hashlib
import itertools
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np

from caloric.bench import datasets
from caloric.bench.report import versions
from caloric.bench.scale import bytes_below
from caloric.collection import engines, extraction, index, matching, pairing, retrieval, sources
from caloric.collection.extraction import StoredImage
from caloric.collection.sources import ImageFile
from caloric.image import inputs
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import Log, Report
from tools.drills import kills

NEAREST = 20
_COPIES = 6
_FEATURES = 2000
_TINY = 48  # pixels
_PLANNED = 1_000_000
_SCENES, _VIEWS = 50_000, 20


def peak(process: int) -> int:
    """Return the peak memory of a process in bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    return 0


def _copied(photographs: Path, target: Path) -> int:
    """Copy each photograph several times under other names; return the number of files."""
    paths = datasets.photographs(photographs)
    for copy, path in itertools.product(range(_COPIES), paths):
        (target / str(copy)).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / str(copy) / path.name)
    return _COPIES * len(paths)


def _timed(work: Callable[[], Any]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def rates(photographs: Path, progress: Log) -> Report:
    """Return the rates and sizes of all steps, with one and two workers of one thread each."""
    settings, options = ExtractOptions(max_features=_FEATURES), matching.Matching()
    report: Report = {}
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        count = _copied(photographs, root / "images")
        directory = str(root / "images")
        os.environ[threads.SETTING] = "1"
        contents = {}
        for name in ("one process", "two processes", "one Dask worker", "two Dask workers"):
            workers = 2 if name.startswith("two") else 1
            out = root / name
            if "process" in name:
                engine: Any = engines.Processes(workers)
                seconds = _timed(lambda: extraction.extract(directory, out, settings, engine))  # noqa: B023
            else:
                (root / "dask").mkdir(exist_ok=True)
                with kills.servers(root / "dask", workers) as dask:
                    engine = engines.Cluster(dask.address)
                    seconds = _timed(lambda: extraction.extract(directory, out, settings, engine))  # noqa: B023
                    engine.close()
            contents[name] = kills.content(out)
            report[name] = {"images a second": count / seconds}
            progress(f"{name}: {count / seconds:.1f} images/s")
        out, serial = root / "one process", engines.InProcess()
        features = sum(image.count for image in extraction.stored_images(out).values())
        pixels = [inputs.read_image(path) for path in datasets.photographs(photographs)]
        report |= {
            "images": count,
            "megapixels": float(np.mean([p.shape[0] * p.shape[1] / 1e6 for p in pixels])),
            "features an image": features / count,
            "the same bytes from all": len({str(c) for c in contents.values()}) == 1,
            "bytes of an image": bytes_below(root / "images") / count,
            "bytes of its features": bytes_below(out / "features") / count,
            "hashing, images a second": count
            / _timed(lambda: [sources.hashed(block) for block in sources.blocks(directory)]),
        }
        progress("vectors, matches, geometries")
        report["codebook, seconds"] = _timed(lambda: retrieval.codebook(out))
        vectors = _timed(lambda: retrieval.vectors(out, serial))
        pairs = pairing.pairs(out, pairing.Pairing("retrieval", nearest=NEAREST), serial)
        report |= {
            "vectors, images a second": count / vectors,
            "pairs": len(pairs),
            "matching, pairs a second": len(pairs)
            / _timed(lambda: matching.match(out, pairs, options, serial)),
            "verifying, pairs a second": len(pairs)
            / _timed(lambda: matching.verify(out, options, serial)),
            "bytes of a pair": (bytes_below(out / "matches") + bytes_below(out / "geometries"))
            / len(pairs),
            "bytes of a vector": bytes_below(out / "vectors") / count,
        }
        del os.environ[threads.SETTING]
    return report


def _in_process(job: Callable[..., None], *arguments: Any) -> list[str]:
    """Return the words that a function of this module prints in a separate process."""
    code = (
        f"from tools import scale\nif __name__ == '__main__': scale.{job.__name__}(*{arguments!r})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def _tiny_job(directory: str, out: str, address: str) -> None:
    """Extract the tiny images as a Dask client; print the image counts and the peak memory."""
    engine = engines.Cluster(address)
    result = extraction.extract(directory, Path(out), ExtractOptions(max_features=20), engine)
    engine.close()
    sys.stdout.write(f"{len(result.found)} {len(result.skipped)} {peak(os.getpid())}")


def tiny(photographs: Path, count: int, progress: Log) -> Report:
    """Return the peak memory of the Dask client and scheduler for many tiny images."""
    image = cv2.imread(str(datasets.photographs(photographs)[0]), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise RuntimeError("the first photograph cannot be read")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        progress(f"{count} tiny images")
        for i in range(count):
            directory = root / "images" / f"{i // 1000:03d}"
            directory.mkdir(parents=True, exist_ok=True)
            y, x = (int(rng.integers(0, n - _TINY)) for n in image.shape)
            cv2.imwrite(str(directory / f"{i:06d}.png"), image[y : y + _TINY, x : x + _TINY])
        (root / "dask").mkdir()
        with kills.servers(root / "dask") as dask:
            started = time.perf_counter()
            printed = _in_process(_tiny_job, str(root / "images"), str(root / "out"), dask.address)
            seconds = time.perf_counter() - started
            images, skipped, client = map(int, printed)
            scheduler = peak(dask.scheduler.pid)
        progress(
            f"client {client / 1e6:.0f} MB, scheduler {scheduler / 1e6:.0f} MB, {seconds:.0f} s"
        )
        return {
            "images": images, "skipped": skipped, "pixels": _TINY, "seconds": seconds,
            "shards": len(list((root / "out" / "features").iterdir())),
            "client, bytes": client, "scheduler, bytes": scheduler,
        }  # fmt: skip


def _plan_job(count: int) -> None:
    """Plan the shards of imaginary images; print the time and the peak memory."""
    files = [
        ImageFile(f"{i // 1000:06d}/{i:09d}.jpg", hashlib.sha256(b"%d" % i).hexdigest())
        for i in range(count)
    ]
    stored, key = (
        extraction.shards(Path("nowhere")),
        extraction.settings_hash(ExtractOptions()),
    )
    started = time.perf_counter()
    groups = extraction.planned(stored, files, key)
    seconds = time.perf_counter() - started
    sys.stdout.write(f"{len(groups)} {seconds} {peak(os.getpid())}")


def plan(count: int, progress: Log) -> Report:
    """Return the cost of planning the extraction of many images."""
    progress(f"planning the extraction of {count} images")
    shards, seconds, memory = _in_process(_plan_job, count)
    return {"images": count, "shards": int(shards), "seconds": float(seconds), "bytes": int(memory)}


def _pairs_job(count: int) -> None:
    """Plan the matches of imaginary images, 12 pairs each; print the time and the peak memory."""
    depth = sources.bits(count, extraction.IMAGES_PER_SHARD)
    rng = np.random.default_rng(0)
    known = {}
    for i in range(count):
        name = f"{i // 1000:06d}/{i:09d}.jpg"
        path = Path(f"{sources.bucket(name, depth):06x}-{0:016x}.parquet")
        known[name] = StoredImage(path, f"{i:064x}", 1)
    names = sorted(known)
    others = rng.integers(1, 1000, (count, 12))
    pairs = [
        (name, names[(i + int(step)) % count]) for i, name in enumerate(names) for step in others[i]
    ]
    started = time.perf_counter()
    planned = matching.tasks(Path("nowhere"), known, pairs, matching.Matching())
    seconds = time.perf_counter() - started
    sys.stdout.write(f"{len(pairs)} {len(planned)} {seconds} {peak(os.getpid())}")


def plan_pairs(count: int, progress: Log) -> Report:
    """Return the cost of planning the matches of many images."""
    progress(f"planning the matches of {count} images")
    pairs, shards, seconds, memory = _in_process(_pairs_job, count)
    return {
        "images": count, "pairs": int(pairs), "shards": int(shards), "seconds": float(seconds),
        "bytes": int(memory),
    }  # fmt: skip


def retrieved(oxford: Path, progress: Log) -> Report:
    """Return the number of Oxford Affine images whose five related images are all retrieved."""
    progress("retrieval on Oxford Affine")
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        for scene in sorted(p for p in oxford.iterdir() if p.is_dir()):
            (root / "images" / scene.name).mkdir(parents=True)
            for path in sorted(scene.glob("img*")):
                shutil.copy(path, root / "images" / scene.name / path.name)
        settings = ExtractOptions(max_features=_FEATURES)
        engine = engines.Processes(threads.count())
        extraction.extract(str(root / "images"), root / "out", settings, engine)
        names = sorted(extraction.stored_images(root / "out"))
        nearest = retrieval.nearest(root / "out", names, 10, engine)
    complete = 0
    for name, others in nearest.items():
        complete += sum(other.split("/")[0] == name.split("/")[0] for other in others) == 5
    return {"queries": len(names), "with all five in ten": complete}


def searched(progress: Log) -> Report:
    """Return speed and recall of an exhaustive and an inverted index of a million vectors."""
    progress("searching a million vectors")
    rng = np.random.default_rng(0)
    d = retrieval.DIMENSIONS
    scenes = rng.standard_normal((_SCENES, d)).astype(np.float32)
    scenes /= np.linalg.norm(scenes, axis=1, keepdims=True)
    vectors = np.empty((_SCENES * _VIEWS, d), np.float16)
    for view in range(_VIEWS):
        # Views of a scene have a cosine of about 0.5; uniformly distributed scenes are the hardest
        # case for an inverted index.
        noisy = scenes + rng.standard_normal(scenes.shape).astype(np.float32) / np.sqrt(d)
        vectors[view::_VIEWS] = noisy / np.linalg.norm(noisy, axis=1, keepdims=True)
    queries = rng.choice(len(vectors), 2000, replace=False)
    report: Report = {"vectors": len(vectors), "dimensions": d, "threads": threads.count()}
    expected: Any = None
    for name, exact in (("all compared", len(vectors)), ("in cells", 0)):
        started = time.perf_counter()
        faiss_index = index.build(vectors, exact)
        seconds = time.perf_counter() - started
        started = time.perf_counter()
        neighbors = index.nearest(faiss_index, vectors[queries], NEAREST)
        per_query = 1e3 * (time.perf_counter() - started) / len(queries)
        expected = neighbors if expected is None else expected
        recall = [len(set(a) & set(b)) / NEAREST for a, b in zip(neighbors, expected, strict=True)]
        report[name] = {
            "build, seconds": seconds, "milliseconds a query": per_query,
            "of the exact neighbors": float(np.mean(recall)), "bytes": peak(os.getpid()),
        }  # fmt: skip
        progress(
            f"{name}: built in {seconds:.0f} s, {per_query:.2f} ms per query, "
            f"recall {np.mean(recall):.3f}"
        )
    return report


SECTIONS = ("rates", "tiny", "plan", "pairs", "index", "retrieval")


def run(
    photographs: Path, oxford: Path | None, images: int, only: list[str], progress: Log
) -> Report:
    """Return the report of the requested sections."""
    parts: dict[str, Callable[[], Report]] = {
        "rates": lambda: rates(photographs, progress),
        "tiny": lambda: tiny(photographs, images, progress),
        "plan": lambda: plan(_PLANNED, progress),
        "pairs": lambda: plan_pairs(_PLANNED // 10, progress),
        "index": lambda: searched(progress),
    }
    if oxford is not None:
        parts["retrieval"] = lambda: retrieved(oxford, progress)
    report = {name: part() for name, part in parts.items() if name in only}
    return report | {"versions": versions()}
