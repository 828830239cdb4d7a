"""``caloric bench scale``: rates and sizes of a collection, and simulations of large ones."""

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
from caloric.runtime import threads
from tools.drills import kills

Report = dict[str, Any]
Told = Callable[[str], None]
NEAREST = 20
_COPIES = 6
_FEATURES = 2000
_TINY = 48  # pixels
_PLANNED = 1_000_000
_PLACES, _VIEWS = 50_000, 20


def peak(process: int) -> int:
    """The most memory a process has had, bytes."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith("VmHWM"):
            return 1024 * int(line.split()[1])
    return 0


def _copied(photographs: Path, target: Path) -> int:
    """Each photograph several times under other names: how many."""
    found = datasets.photographs(photographs)
    for copy, path in itertools.product(range(_COPIES), found):
        (target / str(copy)).mkdir(parents=True, exist_ok=True)
        shutil.copy(path, target / str(copy) / path.name)
    return _COPIES * len(found)


def _timed(work: Callable[[], Any]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


def rates(photographs: Path, told: Told) -> Report:
    """Of photographs, by one worker and by two, of one thread each."""
    settings, how = extraction.Settings(max_features=_FEATURES), matching.Matching()
    found: Report = {}
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        count = _copied(photographs, root / "images")
        folder = str(root / "images")
        os.environ[threads.SETTING] = "1"
        contents = {}
        for name in ("one process", "two processes", "one Dask worker", "two Dask workers"):
            workers = 2 if name.startswith("two") else 1
            out = root / name
            if "process" in name:
                engine: Any = engines.Processes(workers)
                took = _timed(lambda: extraction.extract(folder, out, settings, engine))  # noqa: B023
            else:
                (root / "dask").mkdir(exist_ok=True)
                with kills.servers(root / "dask", workers) as dask:
                    engine = engines.Cluster(dask.address)
                    took = _timed(lambda: extraction.extract(folder, out, settings, engine))  # noqa: B023
                    engine.close()
            contents[name] = kills.content(out)
            found[name] = {"images a second": count / took}
            told(f"{name}: {count / took:.1f} images a second")
        out, here = root / "one process", engines.Here()
        features = sum(one.count for one in extraction.listed(out).values())
        pixels = [reading.read_image(path) for path in datasets.photographs(photographs)]
        found |= {
            "images": count,
            "megapixels": float(np.mean([p.shape[0] * p.shape[1] / 1e6 for p in pixels])),
            "features an image": features / count,
            "the same bytes from all": len({str(c) for c in contents.values()}) == 1,
            "bytes of an image": _bytes(root / "images") / count,
            "bytes of its features": _bytes(out / "features") / count,
            "hashing, images a second": count
            / _timed(lambda: [sources.hashed(block) for block in sources.blocks(folder)]),
        }
        told("vectors, matches, geometries")
        began = time.perf_counter()
        retrieval.codebook(out)
        found["codebook, seconds"] = time.perf_counter() - began
        vectors = _timed(lambda: retrieval.vectors(out, here))
        pairs = pairing.pairs(out, pairing.Pairing("retrieval", nearest=NEAREST), here)
        found |= {
            "vectors, images a second": count / vectors,
            "pairs": len(pairs),
            "matching, pairs a second": len(pairs)
            / _timed(lambda: matching.match(out, pairs, how, here)),
            "verifying, pairs a second": len(pairs)
            / _timed(lambda: matching.verify(out, how, here)),
            "bytes of a pair": (_bytes(out / "matches") + _bytes(out / "geometries")) / len(pairs),
            "bytes of a vector": _bytes(out / "vectors") / count,
        }
        del os.environ[threads.SETTING]
    return found


def _bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _apart(job: Callable[..., None], *arguments: Any) -> list[str]:
    """What a function of this module writes in a process of its own, word by word."""
    code = (
        f"from tools import scale\nif __name__ == '__main__': scale.{job.__name__}(*{arguments!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


def _tiny_job(folder: str, out: str, address: str) -> None:
    """The client of the run over tiny images; says what it took."""
    engine = engines.Cluster(address)
    summary = extraction.extract(folder, Path(out), extraction.Settings(max_features=20), engine)
    engine.close()
    sys.stdout.write(f"{len(summary.found)} {len(summary.skipped)} {peak(os.getpid())}")


def tiny(photographs: Path, count: int, told: Told) -> Report:
    """So many tiny images through Dask, with the memory of its client and its scheduler."""
    image = cv2.imread(str(datasets.photographs(photographs)[0]), cv2.IMREAD_GRAYSCALE)
    if image is None:
        raise RuntimeError("the first photograph cannot be read")
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        told(f"{count} tiny images")
        for i in range(count):
            folder = root / "images" / f"{i // 1000:03d}"
            folder.mkdir(parents=True, exist_ok=True)
            y, x = (int(rng.integers(0, n - _TINY)) for n in image.shape)
            cv2.imwrite(str(folder / f"{i:06d}.png"), image[y : y + _TINY, x : x + _TINY])
        (root / "dask").mkdir()
        with kills.servers(root / "dask") as dask:
            began = time.perf_counter()
            said = _apart(_tiny_job, str(root / "images"), str(root / "out"), dask.address)
            took = time.perf_counter() - began
            images, skipped, client = map(int, said)
            scheduler = peak(dask.scheduler.pid)
        told(f"client {client / 1e6:.0f} MB, scheduler {scheduler / 1e6:.0f} MB, {took:.0f} s")
        return {
            "images": images, "skipped": skipped, "pixels": _TINY, "seconds": took,
            "shards": len(list((root / "out" / "features").iterdir())),
            "client, bytes": client, "scheduler, bytes": scheduler,
        }  # fmt: skip


def _plan_job(count: int) -> None:
    """A plan of images that are not there; says what it took."""
    photographs = [
        Photograph(f"{i // 1000:06d}/{i:09d}.jpg", hashlib.sha256(b"%d" % i).hexdigest())
        for i in range(count)
    ]
    own, key = extraction.shards(Path("nowhere")), extraction.Settings().hash()
    began = time.perf_counter()
    groups = extraction.planned(own, photographs, key)
    took = time.perf_counter() - began
    sys.stdout.write(f"{len(groups)} {took} {peak(os.getpid())}")


def plan(count: int, told: Told) -> Report:
    """What the client's plan of so many images takes."""
    told(f"a plan of {count} images")
    shards, took, memory = _apart(_plan_job, count)
    return {"images": count, "shards": int(shards), "seconds": float(took), "bytes": int(memory)}


def _pairs_job(count: int) -> None:
    """The tasks of pairs of images that are not there, 12 each; says what it took."""
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


def plan_pairs(count: int, told: Told) -> Report:
    """What the client's plan of the matches of so many images takes, with all it holds."""
    told(f"a plan of the matches of {count} images")
    pairs, shards, took, memory = _apart(_pairs_job, count)
    return {
        "images": count, "pairs": int(pairs), "shards": int(shards), "seconds": float(took),
        "bytes": int(memory),
    }  # fmt: skip


def found_again(oxford: Path, told: Told) -> Report:
    """Of Oxford Affine's images: for how many the five of their sequence are in the ten nearest."""
    told("retrieval on Oxford Affine")
    with tempfile.TemporaryDirectory() as place:
        root = Path(place)
        for scene in sorted(p for p in oxford.iterdir() if p.is_dir()):
            (root / "images" / scene.name).mkdir(parents=True)
            for path in sorted(scene.glob("img*")):
                shutil.copy(path, root / "images" / scene.name / path.name)
        settings = extraction.Settings(max_features=_FEATURES)
        engine = engines.Processes(threads.count())
        extraction.extract(str(root / "images"), root / "out", settings, engine)
        names = sorted(extraction.listed(root / "out"))
        near = retrieval.nearest(root / "out", names, 10, engine)
    good = 0
    for name, others in near.items():
        good += sum(other.split("/")[0] == name.split("/")[0] for other in others) == 5
    return {"queries": len(names), "with all five in ten": good}


def searched(told: Told) -> Report:
    """A million vectors, 20 views of each of 50,000 places: all compared, and in cells."""
    told("an index of a million vectors")
    rng = np.random.default_rng(0)
    d = retrieval.DIMENSIONS
    places = rng.standard_normal((_PLACES, d)).astype(np.float32)
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    every = np.empty((_PLACES * _VIEWS, d), np.float16)
    for view in range(_VIEWS):
        # Views of a place have a cosine of about 0.5; places lie in all directions, which is the
        # hardest case for cells.
        moved = places + rng.standard_normal(places.shape).astype(np.float32) / np.sqrt(d)
        every[view::_VIEWS] = moved / np.linalg.norm(moved, axis=1, keepdims=True)
    asked = rng.choice(len(every), 2000, replace=False)
    report: Report = {"vectors": len(every), "dimensions": d, "threads": threads.count()}
    expected: Any = None
    for name, exact in (("all compared", len(every)), ("in cells", 0)):
        began = time.perf_counter()
        built = index.built(every, exact)
        took = time.perf_counter() - began
        began = time.perf_counter()
        found = index.nearest(built, every[asked], NEAREST)
        each = 1e3 * (time.perf_counter() - began) / len(asked)
        expected = found if expected is None else expected
        same = [len(set(a) & set(b)) / NEAREST for a, b in zip(found, expected, strict=True)]
        report[name] = {
            "build, seconds": took, "milliseconds a query": each,
            "of the exact neighbours": float(np.mean(same)), "bytes": peak(os.getpid()),
        }  # fmt: skip
        told(f"{name}: {took:.0f} s to build, {each:.2f} ms a query, {np.mean(same):.3f} found")
    return report


SECTIONS = ("rates", "tiny", "plan", "pairs", "index", "retrieval")


def run(photographs: Path, oxford: Path | None, images: int, only: list[str], told: Told) -> Report:
    """Some sections."""
    parts: dict[str, Callable[[], Report]] = {
        "rates": lambda: rates(photographs, told),
        "tiny": lambda: tiny(photographs, images, told),
        "plan": lambda: plan(_PLANNED, told),
        "pairs": lambda: plan_pairs(_PLANNED // 10, told),
        "index": lambda: searched(told),
    }
    if oxford is not None:
        parts["retrieval"] = lambda: found_again(oxford, told)
    found = {name: part() for name, part in parts.items() if name in only}
    return found | {"versions": versions()}
