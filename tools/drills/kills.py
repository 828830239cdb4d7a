"""``python -m tools kills``: kill collection runs at random moments, and run them again.

SIGKILL is sent to the main process (with a pool, or as the client of a cluster), to a worker of the
pool or of the cluster, or to the scheduler. After the second run the store must be bit-identical to
that of an undisturbed run, and no finished shard may have been written again.
"""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from caloric.bench.report import versions
from caloric.collection import engines, extraction, matching, pairing, propagating, refining
from caloric.errors import InputError
from caloric.options import ExtractOptions
from caloric.types import Report

VICTIMS = ("process", "pool's worker", "client", "cluster's worker", "scheduler")
_OF_CLUSTER = VICTIMS[2:]
LIMIT = 300  # maximum seconds of a run
_ATTEMPTS = 5


def job(directory: str, out: str, max_features: int, cluster: str) -> None:
    """Run the steps that are killed: features, pairs, matches, geometries and tracks."""
    store, options = Path(out), matching.Matching()
    engine = engines.Cluster(cluster) if cluster else engines.Processes(2)
    try:
        extraction.extract(directory, store, ExtractOptions(max_features=max_features), engine)
        pairs = pairing.pairs(store, pairing.Pairing("retrieval", nearest=5), engine)
        matching.match(store, pairs, options, engine)
        matching.verify(store, options, engine)
        propagating.propagate(directory, store, engine)
        refining.refine(directory, store, engine)
    except InputError as error:
        sys.exit(f"error: {error}")


def content(store: Path) -> dict[str, str]:
    """Return the hashes of all files of a store except its lock."""
    return {
        path.relative_to(store).as_posix(): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(store.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def _finished(store: Path) -> dict[str, tuple[int, int]]:
    """Return the inode and modification time of each shard, which change if it is rewritten."""
    return {
        path.relative_to(store).as_posix(): (path.stat().st_ino, path.stat().st_mtime_ns)
        for path in store.rglob("*.parquet")
    }


@dataclass(frozen=True)
class Servers:
    """The processes of a scheduler and of the nanny of its workers, and the address."""

    scheduler: subprocess.Popen[bytes]
    nanny: subprocess.Popen[bytes]
    address: str

    def workers(self) -> list[int]:
        """Return the process ids of the workers."""
        from distributed import Client

        with Client(self.address, timeout=20, set_as_default=False) as client:
            return list(client.run(os.getpid).values())


@contextmanager
def servers(directory: Path, workers: int = 2) -> Iterator[Servers]:
    """Yield a scheduler with workers, as started by `dask scheduler` and `dask worker`."""
    file = directory / "scheduler.json"
    file.unlink(missing_ok=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": directory}
    common = ["--no-dashboard", "--scheduler-file", str(file)]
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host", "127.0.0.1"]
    scheduler = subprocess.Popen([*command, "--port", "0", *common], **quiet)  # type: ignore[call-overload]
    try:
        address = _address(file)
        command = [sys.executable, "-m", "distributed.cli.dask_worker", "--nthreads", "1"]
        nanny = subprocess.Popen([*command, "--nworkers", str(workers), *common], **quiet)  # type: ignore[call-overload]
        try:
            started = Servers(scheduler, nanny, address)
            _wait(lambda: len(started.workers()) == workers, "no workers")
            yield started
        finally:
            _end(nanny)
    finally:
        _end(scheduler)


def _address(file: Path) -> str:
    _wait(lambda: file.exists() and file.stat().st_size > 0, "no scheduler")
    return str(json.loads(file.read_text())["address"])


def _wait(ready: Callable[[], bool], why: str) -> None:
    deadline = time.monotonic() + 60
    while not ready():
        if time.monotonic() > deadline:
            raise InputError(f"Dask did not start within a minute: {why}")
        time.sleep(0.1)


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _start(directory: Path, out: Path, max_features: int, cluster: str) -> subprocess.Popen[str]:
    arguments = (str(directory), str(out), max_features, cluster)
    code = f"from tools.drills import kills\nif __name__ == '__main__': kills.job{arguments!r}"
    return subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True)


def _undisturbed(directory: Path, out: Path, max_features: int, cluster: str) -> float:
    """Complete a run without a kill; return its duration in seconds."""
    started = time.monotonic()
    process = _start(directory, out, max_features, cluster)
    _, errors = process.communicate(timeout=LIMIT)
    if process.returncode:
        raise InputError(f"a run without a kill failed: {errors.strip()}")
    return time.monotonic() - started


def pool(process: int) -> list[int]:
    """Return the process ids of the workers of a pool, which are children of a fork server."""
    import psutil

    servers = [
        child for child in psutil.Process(process).children()
        if any("forkserver" in argument for argument in child.cmdline())
    ]  # fmt: skip
    return [worker.pid for server in servers for worker in server.children()]


def _kill(victim: str, process: subprocess.Popen[str], dask: Servers | None) -> bool:
    """Kill the victim; return False if the run had already ended."""
    target: int | None = process.pid
    if victim == "scheduler" and dask is not None:
        target = dask.scheduler.pid
    elif victim == "cluster's worker" and dask is not None:
        target = next(iter(dask.workers()), None)
    elif victim == "pool's worker":
        target = next(iter(pool(process.pid)), None)
    if target is None or process.poll() is not None:
        return False
    os.kill(target, signal.SIGKILL)
    return True


def _drill(
    victim: str, directory: Path, out: Path, max_features: int, moment: float,
    expected: dict[str, str],
) -> Report | None:  # fmt: skip
    """Return the result of one kill and the run after it; None if the run ended before the kill."""
    arguments = (victim, directory, out, max_features, moment, expected)
    with tempfile.TemporaryDirectory() as temporary:
        if victim not in _OF_CLUSTER:
            return _disturbed(*arguments, None, Path(temporary))
        with servers(Path(temporary)) as dask:
            return _disturbed(*arguments, dask, Path(temporary))


def _disturbed(
    victim: str, directory: Path, out: Path, max_features: int, moment: float,
    expected: dict[str, str], dask: Servers | None, temporary: Path,
) -> Report | None:  # fmt: skip
    address = dask.address if dask is not None else ""
    process = _start(directory, out, max_features, address)
    time.sleep(moment)
    finished = _finished(out) if out.exists() else {}
    if not _kill(victim, process, dask):
        process.kill()
        process.communicate()
        return None
    _, errors = process.communicate(timeout=LIMIT)
    ended = process.returncode
    if victim == "scheduler":
        with servers(temporary) as restarted:
            _undisturbed(directory, out, max_features, restarted.address)
    else:
        _undisturbed(directory, out, max_features, address)
    after = _finished(out)
    return {
        "killed": victim,
        "seconds after the start": round(moment, 2),
        "shards finished by then": len(finished),
        "of": len(after),
        "the run went on": ended == 0,
        "it said": _messages(errors, out),
        "the same store": content(out) == expected,
        "written again": sum(after.get(name) != file for name, file in finished.items()),
    }


def _messages(errors: str, out: Path) -> list[str]:
    """Return the error messages of a run, or else its last lines, without paths of the machine."""
    # Python's resource tracker warns, with two lines, about semaphores of the process killed.
    lines = [
        line.replace(str(out), "OUT")
        for line in errors.splitlines()
        if "resource_tracker" not in line
    ]
    return [line for line in lines if line.startswith("error")] or lines[-3:]


def run(
    directory: Path, kills: int, max_features: int, seed: int, progress: Callable[[str], None],
    victims: tuple[str, ...] = VICTIMS,
) -> Report:  # fmt: skip
    """Return the results of ``kills`` kills of the victims in turn, each with a new store."""
    rng, results = random.Random(seed), []
    with tempfile.TemporaryDirectory() as temporary:
        root = Path(temporary)
        seconds = _undisturbed(directory, root / "whole", max_features, "")
        expected = content(root / "whole")
        progress(f"undisturbed: {len(expected)} files, {seconds:.1f} s")
        cluster_seconds = 0.0
        if set(victims) & set(_OF_CLUSTER):
            with servers(root) as dask:
                out = root / "cluster"
                cluster_seconds = _undisturbed(directory, out, max_features, dask.address)
            progress(f"undisturbed on a cluster: {cluster_seconds:.1f} s")
        for number in range(kills):
            victim = victims[number % len(victims)]
            for attempt in range(_ATTEMPTS):
                out = root / f"{number}.{attempt}"
                total = cluster_seconds if victim in _OF_CLUSTER else seconds
                moment = rng.uniform(0.15, 0.9) * total
                result = _drill(victim, directory, out, max_features, moment, expected)
                if result is not None:
                    break
            else:
                raise InputError(f"{victim}: every run ended before the kill; use more images")
            results.append(result)
            progress(
                f"{number + 1} of {kills}: {victim} after {moment:.1f} s, "
                f"{result['shards finished by then']} of {result['of']} shards finished, "
                f"{'identical store' if result['the same store'] else 'DIFFERENT STORE'}, "
                f"{result['written again']} written again"
            )
    return {"kills": results, "versions": versions()}
