"""Models of an earlier run, which are kept if nothing that they depend on has changed."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import caloric
from caloric.collection import positions
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.store import fingerprint
from caloric.collection.summaries import PairSummary
from caloric.interop import colmap, colmap_model
from caloric.interop.cameras import Cameras


def shard_names(store: Path) -> list[str]:
    """Return the paths of all shards of a store; their names are hashes of their inputs."""
    return sorted(path.relative_to(store).as_posix() for path in store.glob("*/*.parquet"))


def inputs(store: Path, cameras: Cameras, *options: bool) -> str:
    """Return a hash of what the models depend on: shards, options and versions."""
    versions = caloric.__version__, colmap.version()
    return fingerprint(shard_names(store), asdict(cameras), options, versions)


def outputs(store: Path) -> str:
    """Return a hash of the database and the models of a store."""
    files = [store / colmap.DATABASE, *sorted((store / colmap.MODELS).rglob("*"))]
    hashes = {}
    for path in filter(Path.is_file, files):
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        hashes[path.relative_to(store).as_posix()] = digest
    return fingerprint(hashes)


@dataclass(frozen=True)
class Record:
    """What the report of an earlier run says: hashes, durations, failure and pairs."""

    inputs: str
    outputs: str
    seconds: Mapping[str, float]
    failure: str
    pairs: tuple[PairSummary, ...]

    def models(self, store: Path, inputs: str) -> ReconstructionResult | None:
        """Return the models of the run; None if its inputs were others, or its files changed."""
        if self.inputs != inputs or self.outputs != outputs(store):
            return None
        directories = colmap_model.models(store / colmap.MODELS)
        models = (
            replace(colmap_model.summary(path), origin=positions.origin(path))
            for path in directories
        )
        return ReconstructionResult(tuple(models), self.failure, is_unchanged=True)


_NONE = Record("", "", {}, "", ())


def read(store: Path) -> Record:
    """Return the record of the last run; an empty one if there is none."""
    try:
        report: dict[str, Any] = json.loads((store / "report.json").read_text("utf-8"))
        pairs = tuple(PairSummary(**pair) for pair in report["pairs"])
        state = report["state"]
        return Record(
            state["inputs"], state["outputs"], dict(report["seconds"]), report["failure"], pairs
        )
    except (OSError, ValueError, KeyError, TypeError):
        return _NONE
