"""``python -m tools scale``: rates and sizes of a collection, and simulations of large ones."""

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
from caloric.collection import engines, extraction, index, matching, pairing, retrieval, sources
from caloric.collection.extraction import Kept
from caloric.collection.sources import Photograph
from caloric.image import reading
from caloric.options import ExtractOptions
from caloric.runtime import threads
from caloric.types import Log, Report
from tools.drills import kills

NEAREST = 20
_COPIES = 6
_FEATURES = 2000
_TINY = 48  # pixels
_PLANNED = 1_000_000
_PLACES, _VIEWS = 50_000, 20


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
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rates(photographs: Path, progress: Log) -> Report:
    """Return the rates and sizes of all steps, by one and by two workers of one thread each."""
    settings, options = ExtractOptions(max_features=_FEATURES), matching.Matching()
    report: Report = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        count = _copied(photographs, root / "images")
        directory = str(root / "images")
        os.environ[threads.SETTING] = "1"
        contents = {}
        for name in ("one process", "two processes", "one Dask worker", "two Dask workers"):
            workers = 2 if name.startswith("two") else 1
            out = root / name
            if "process" in name:
                engine: Any = engines.Processes(workers)
                took = _timed(lambda: extraction.extract(directory, out, settings, engine))  # noqa: B023
            else:
                (root / "dask").mkdir(exist_ok=True)
                with kills.servers(root / "dask", workers) as dask:
                    engine = engines.Cluster(dask.address)
                    took = _timed(lambda: extraction.extract(directory, out, settings, engine))  # noqa: B023
                    engine.close()
            contents[name] = kills.content(out)
            report[name] = {"images a second": count / took}
            progress(f"{name}: {count / took:.1f} images a second")
        out, serial = root / "one process", engines.InProcess()
        features = sum(image.count for image in extraction.listed(out).values())
        pixels = [reading.read_image(path) for path in datasets.photographs(photographs)]
        report |= {
            "images": count,
            "megapixels": float(np.mean([p.shape[0] * p.shape[1] / 1e6 for p in pixels])),
            "features an image": features / count,
            "the same bytes from all": len({str(c) for c in contents.values()}) == 1,
            "bytes of an image": _bytes(root / "images") / count,
            "bytes of its features": _bytes(out / "features") / count,
            "hashing, images a second": count
            / _timed(lambda: [sources.hashed(block) for block in sources.blocks(directory)]),
        }
        progress("vectors, matches, geometries")
        began = time.perf_counter()
        retrieval.codebook(out)
        report["codebook, seconds"] = time.perf_counter() - began
        vectors = _timed(lambda: retrieval.vectors(out, serial))
        pairs = pairing.pairs(out, pairing.Pairing("retrieval", nearest=NEAREST), serial)
        report |= {
            "vectors, images a second": count / vectors,
            "pairs": len(pairs),
            "matching, pairs a second": len(pairs)
            / _timed(lambda: matching.match(out, pairs, options, serial)),
            "verifying, pairs a second": len(pairs)
            / _timed(lambda: matching.verify(out, options, serial)),
            "bytes of a pair": (_bytes(out / "matches") + _bytes(out / "geometries")) / len(pairs),
            "bytes of a vector": _bytes(out / "vectors") / count,
        }
        del os.environ[threads.SETTING]
    return report


def _bytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _in_process(job: Callable[..., None], *arguments: Any) -> list[str]:
    """Return the words that a function of this module prints in its own process."""
    code = (
        f"from tools import scale\nif __name__ == '__main__': scale.{job.__name__}(*{arguments!r})"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    return result.stdout.split()


def _tiny_job(directory: str, out: str, address: str) -> None:
    """Extract the tiny images as a client; print the numbers of images and the peak memory."""
    engine = engines.Cluster(address)
    summary = extraction.extract(directory, Path(out), ExtractOptions(max_features=20), engine)
    engine.close()
    sys.stdout.write(f"{len(summary.found)} {len(summary.skipped)} {peak(os.getpid())}")


def tiny(photographs: Path, count: int, progress: Log) -> Report:
    """Return the memory of client and scheduler for many tiny images through Dask."""
    image = cv2.imread(str(datasets.photographs(photographs)[0]), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise RuntimeError("the first photograph cannot be read")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        progress(f"{count} tiny images")
        for i in range(count):
            directory = root / "images" / f"{i // 1000:03d}"
            directory.mkdir(parents=True, exist_ok=True)
            y, x = (int(rng.integers(0, n - _TINY)) for n in image.shape)
            cv2.imwrite(str(directory / f"{i:06d}.png"), image[y : y + _TINY, x : x + _TINY])
        (root / "dask").mkdir()
        with kills.servers(root / "dask") as dask:
            began = time.perf_counter()
            printed = _in_process(_tiny_job, str(root / "images"), str(root / "out"), dask.address)
            took = time.perf_counter() - began
            images, skipped, client = map(int, printed)
            scheduler = peak(dask.scheduler.pid)
        progress(f"client {client / 1e6:.0f} MB, scheduler {scheduler / 1e6:.0f} MB, {took:.0f} s")
        return {
            "images": images, "skipped": skipped, "pixels": _TINY, "seconds": took,
            "shards": len(list((root / "out" / "features").iterdir())),
            "client, bytes": client, "scheduler, bytes": scheduler,
        }  # fmt: skip


def _plan_job(count: int) -> None:
    """Plan the shards of images that do not exist; print the time and the peak memory."""
    photographs = [
        Photograph(f"{i // 1000:06d}/{i:09d}.jpg", hashlib.sha256(b"%d" % i).hexdigest())
        for i in range(count)
    ]
    stored, key = (
        extraction.shards(Path("nowhere")),
        extraction.settings_hash(ExtractOptions()),
    )
    began = time.perf_counter()
    groups = extraction.planned(stored, photographs, key)
    took = time.perf_counter() - began
    sys.stdout.write(f"{len(groups)} {took} {peak(os.getpid())}")


def plan(count: int, progress: Log) -> Report:
    """Return the cost of the client's plan for many images."""
    progress(f"a plan of {count} images")
    shards, took, memory = _in_process(_plan_job, count)
    return {"images": count, "shards": int(shards), "seconds": float(took), "bytes": int(memory)}


def _pairs_job(count: int) -> None:
    """Plan the matches of images that do not exist, 12 pairs each; print time and peak memory."""
    depth = sources.bits(count, extraction.MOST)
    rng = np.random.default_rng(0)
    known = {}
    for i in range(count):
        name = f"{i // 1000:06d}/{i:09d}.jpg"
        path = Path(f"{sources.bucket(name, depth):06x}-{0:016x}.parquet")
        known[name] = Kept(path, f"{i:064x}", 1)
    names = sorted(known)
    others = rng.integers(1, 1000, (count, 12))
    pairs = [
        (name, names[(i + int(step)) % count]) for i, name in enumerate(names) for step in others[i]
    ]
    began = time.perf_counter()
    planned = matching.tasks(Path("nowhere"), known, pairs, matching.Matching())
    took = time.perf_counter() - began
    sys.stdout.write(f"{len(pairs)} {len(planned)} {took} {peak(os.getpid())}")


def plan_pairs(count: int, progress: Log) -> Report:
    """Return the cost of the client's plan of the matches of many images."""
    progress(f"a plan of the matches of {count} images")
    pairs, shards, took, memory = _in_process(_pairs_job, count)
    return {
        "images": count, "pairs": int(pairs), "shards": int(shards), "seconds": float(took),
        "bytes": int(memory),
    }  # fmt: skip


def retrieved(oxford: Path, progress: Log) -> Report:
    """Return for how many images of Oxford Affine all five of their sequence are retrieved."""
    progress("retrieval on Oxford Affine")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for scene in sorted(p for p in oxford.iterdir() if p.is_dir()):
            (root / "images" / scene.name).mkdir(parents=True)
            for path in sorted(scene.glob("img*")):
                shutil.copy(path, root / "images" / scene.name / path.name)
        settings = ExtractOptions(max_features=_FEATURES)
        engine = engines.Processes(threads.count())
        extraction.extract(str(root / "images"), root / "out", settings, engine)
        names = sorted(extraction.listed(root / "out"))
        nearest = retrieval.nearest(root / "out", names, 10, engine)
    complete = 0
    for name, others in nearest.items():
        complete += sum(other.split("/")[0] == name.split("/")[0] for other in others) == 5
    return {"queries": len(names), "with all five in ten": complete}


def searched(progress: Log) -> Report:
    """Return the speed and the recall of an index of a million vectors, exhaustive and in cells."""
    progress("an index of a million vectors")
    rng = np.random.default_rng(0)
    d = retrieval.DIMENSIONS
    places = rng.standard_normal((_PLACES, d)).astype(np.float32)
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    vectors = np.empty((_PLACES * _VIEWS, d), np.float16)
    for view in range(_VIEWS):
        # Views of a place have a cosine of about 0.5; uniformly distributed places are the hardest
        # case for cells.
        moved = places + rng.standard_normal(places.shape).astype(np.float32) / np.sqrt(d)
        vectors[view::_VIEWS] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    queries = rng.choice(len(vectors), 2000, replace=False)
    report: Report = {"vectors": len(vectors), "dimensions": d, "threads": threads.count()}
    expected: Any = None
    for name, exact in (("all compared", len(vectors)), ("in cells", 0)):
        began = time.perf_counter()
        faiss_index = index.build(vectors, exact)
        took = time.perf_counter() - began
        began = time.perf_counter()
        neighbors = index.nearest(faiss_index, vectors[queries], NEAREST)
        per_query = 1e3 * (time.perf_counter() - began) / len(queries)
        expected = neighbors if expected is None else expected
        recall = [len(set(a) & set(b)) / NEAREST for a, b in zip(neighbors, expected, strict=True)]
        report[name] = {
            "build, seconds": took, "milliseconds a query": per_query,
            "of the exact neighbors": float(np.mean(recall)), "bytes": peak(os.getpid()),
        }  # fmt: skip
        progress(
            f"{name}: built in {took:.0f} s, {per_query:.2f} ms each, recall {np.mean(recall):.3f}"
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
