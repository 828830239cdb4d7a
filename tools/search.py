"""``python -m tools search``: the time of the exact search for neighbors by each build of the core.

Each build of a processor is compared with its search in float32 and with faiss, on one thread.
"""

import statistics
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from caloric import pipeline
from caloric.bench.speed import processor
from caloric.bench.speed_contenders import faiss_matches, set_threads, setting
from caloric.errors import InputError
from caloric.image import inputs
from caloric.matching import neighbors
from caloric.runtime import native, threads
from caloric.types import Log, Report

_RATIO = 0.9
_FAISS = "faiss"
# Builds that only add products of bytes to another one.
_BASES = {"amx": "avx512", "avx512-vnni": "avx512", "avx-vnni": "avx2", "neon-dotprod": "neon"}


def _by_floats(kind: str, screened: bool, a: Any, b: Any) -> None:
    native.core().use(kind)
    neighbors.neighbors_in(a, neighbors.Reference.of(b, screened=screened), None)


def _by_bytes(kind: str, a: Any, b: Any) -> None:
    native.core().use(kind)
    neighbors.checked_neighbors(a, neighbors.checked_reference(b, None), None)


def _searches(floats: list[Any], in_bytes: list[Any]) -> dict[str, tuple[str, Callable[[], Any]]]:
    """Return by name the search that each one is compared with, and the search."""
    core = native.core()
    searches: dict[str, tuple[str, Callable[[], Any]]] = {}
    kinds = core.kinds()
    for kind in kinds:
        core.use(kind)
        base = _BASES.get(kind, kind)
        plain = f"{base}, float32"
        searches[plain] = plain, partial(_by_floats, base, False, *floats)
        if core.Columns(floats[1][:1], floats[1][0, :1].copy()).screened:
            searches[kind] = plain, partial(_by_floats, kind, True, *floats)
        searches[f"{kind}, bytes"] = plain, partial(_by_bytes, kind, *in_bytes)
    core.use(kinds[0])
    searches[_FAISS] = _FAISS, lambda: faiss_matches(floats[0], floats[1], _RATIO)
    return searches


def run(images: list[Path], count: int, rounds: int, progress: Log) -> Report:
    """Return the times for pairs of images, each with ``count`` descriptors."""
    if len(images) % 2:
        raise InputError(f"expected pairs of images, got {len(images)}")
    kinds: Report = {}
    with setting(**{threads.SETTING: "1"}):
        set_threads(1)
        for first, second in zip(images[::2], images[1::2], strict=True):
            progress(f"{first.name}, {second.name}")
            pixels = [inputs.read_image(path) for path in (first, second)]
            floats, in_bytes = (
                [
                    pipeline.extract(p, max_features=count, contrast=0.0, dtype=dtype).descriptors
                    for p in pixels
                ]
                for dtype in ("float32", "uint8")
            )
            if {len(d) for d in (*floats, *in_bytes)} != {count}:
                raise InputError(f"{first}, {second}: fewer than {count} features")
            searches = _searches(floats, in_bytes)
            seconds: dict[str, list[float]] = {name: [] for name in searches}
            for _ in range(rounds + 1):  # the first one warms up
                for name, (_, search) in searches.items():
                    started = time.perf_counter()
                    search()
                    seconds[name].append(time.perf_counter() - started)
            median = {name: statistics.median(times[1:]) for name, times in seconds.items()}
            for name, (base, _) in searches.items():
                entry = kinds.setdefault(name, {"seconds": [], "to_float32": [], "to_faiss": []})
                entry["seconds"].append(median[name])
                entry["to_float32"].append(median[name] / median[base])
                entry["to_faiss"].append(median[name] / median[_FAISS])
    native.core().use(native.core().kinds()[0])
    shown = {name: k for name, k in kinds.items() if name != _FAISS and "float32" not in name}
    machine = {"processor": processor(), "kinds": shown}
    return {
        "descriptors": count, "dimensions": 128, "rounds": rounds, "pairs": len(images) // 2,
        "machines": [machine],
    }  # fmt: skip
