"""The steps of a collection as functions, each with the store locked; and all steps in one call.

A step that is interrupted or killed keeps what is finished: call it again to continue. Skipped
images and waiting for another run are logged as warnings of ``caloric.collection``.
"""

import logging
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from caloric.collection import exporting, extraction, refining, sources
from caloric.collection import matching as pair_matching
from caloric.collection import pairing as pair_choice
from caloric.collection.engines import Engine, InProcess, Workers
from caloric.collection.exporting import ExportResult, ReconstructionResult
from caloric.collection.extraction import ExtractionResult
from caloric.collection.matching import Matching, MatchingResult, VerificationResult
from caloric.collection.pairing import Pairing, PairingResult
from caloric.collection.refining import RefinementResult
from caloric.collection.steps import Progress, no_progress
from caloric.collection.store import locked
from caloric.errors import InputError
from caloric.extraction import dispatch
from caloric.gpu import devices
from caloric.interop import colmap
from caloric.interop.colmap_model import Reconstruction
from caloric.options import ExtractOptions

_log = logging.getLogger(__name__)
R = TypeVar("R")
KEPT = "what is finished is kept: run the same command again to go on"


@dataclass(frozen=True)
class Reporter:
    """Functions that are called during a step.

    Parameters
    ----------
    progress : callable
        Called with what is counted, how many are done, and the total.
    working : callable
        Returns a context manager for work that the text describes.
    finished : callable
        Called with the result of each step.
    """

    progress: Progress = no_progress
    working: Callable[[str], AbstractContextManager[Any]] = nullcontext
    finished: Callable[[Any], None] = lambda result: None

    def step(self, what: str, function: Callable[[], R]) -> R:
        """Return the result of a step, whose skipped images are logged."""
        with self.working(what):
            result = function()
        for name, why in getattr(result, "skipped", {}).items():
            _log.warning("skipped: %s", why if why.startswith(name) else f"{name}: {why}")
        self.finished(result)
        return result


# Defaults of the functions below.
_OPTIONS, _PAIRING, _MATCHING = ExtractOptions(), Pairing(), Matching()
_WORKERS, _SILENT = Workers(), Reporter()


@dataclass(frozen=True)
class _Started(Workers):
    """Workers that run already, with the store locked."""

    running: Engine = InProcess()  # noqa: RUF009 - without state


@contextmanager
def _started(store: Path, workers: Workers) -> Iterator[_Started]:
    """Yield workers that run, with the store locked."""
    if isinstance(workers, _Started):
        yield workers
        return
    try:
        with locked(store), workers.engine() as engine:
            yield _Started(workers.count, workers.cluster, workers.device, engine)
    except KeyboardInterrupt:
        _log.warning("interrupted; %s", KEPT)
        raise


def _check_types(**given: tuple[object, type]) -> None:
    """Raise InputError for an argument that is not of its type, such as a name of a descriptor."""
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise InputError(f"{name} must be an instance of {kind.__name__}, got {value!r}")


def _checked(options: ExtractOptions, workers: Workers) -> Workers:
    """Return the resolved workers; raise an error, before the work, of what they cannot do."""
    _check_types(options=(options, ExtractOptions), workers=(workers, Workers))
    extraction.stored_as_bytes(options)
    resolved = workers.resolved()
    if resolved.cluster is None:
        dispatch.check_device(devices.resolve(resolved.device), options, on_device=False)
    return resolved


def _existing(out: str | Path) -> Path:
    if not Path(out).is_dir():
        raise InputError(f"{out}: no such store")
    return Path(out)


def extract(
    folder: str | Path,
    out: str | Path,
    options: ExtractOptions = _OPTIONS,
    *,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> ExtractionResult:
    """Extract the features of the images of a directory that are new or have changed.

    Parameters
    ----------
    folder : str or Path
        The images: a directory, or an address such as ``s3://bucket/photos``.
    out : str or Path
        The store, which is created if it does not exist.
    options : ExtractOptions
        How features are extracted; descriptors are stored as bytes.
    workers : Workers
        Processes or a cluster, and the device.
    report : Reporter
        Functions that are called during the step.

    Returns
    -------
    ExtractionResult
        The number of features of each image; ``skipped`` has the reasons of those without.
    """
    store, name = Path(out), str(folder)
    with _started(store, _checked(options, workers)) as on:
        result = report.step(
            f"extracting features of {name}",
            lambda: extraction.extract(
                name, store, options, on.running, device=on.device, progress=report.progress
            ),
        )
    if len(result.skipped) == len(result.found):
        raise InputError(f"{name}: none of the images could be used")
    return result


def pair(
    out: str | Path,
    options: Pairing | None = None,
    *,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> PairingResult:
    """Choose the pairs of images to match, and write them to the store.

    Without ``options`` they are chosen as before, or all pairs at first.
    """
    store = _existing(out)
    with _started(store, workers) as on:
        return report.step(
            "choosing pairs",
            lambda: PairingResult(
                tuple(pair_choice.pairs(store, options, on.running, report.progress))
            ),
        )


def match(
    out: str | Path,
    options: Matching = _MATCHING,
    *,
    pairing: Pairing | None = None,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> MatchingResult:
    """Match the pairs that are new or have changed; ``pairing`` None chooses them as before."""
    store = _existing(out)
    with _started(store, workers.resolved()) as on:
        with report.working("choosing pairs"):
            pairs = pair_choice.pairs(store, pairing, on.running, report.progress)
        return report.step(
            f"matching {len(pairs)} pairs",
            lambda: pair_matching.match(
                store, pairs, options, on.running, report.progress, on.device
            ),
        )


def verify(
    out: str | Path,
    options: Matching = _MATCHING,
    *,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> VerificationResult:
    """Estimate a geometry from the matches of each pair."""
    store = _existing(out)
    with _started(store, workers) as on:
        return report.step(
            "verifying matches",
            lambda: pair_matching.verify(store, options, on.running, report.progress),
        )


def refine(
    folder: str | Path,
    out: str | Path,
    *,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> RefinementResult:
    """Refine the features of verified matches, so that all views of a point agree.

    Exports then have the refined positions.
    """
    store = _existing(out)
    with _started(store, workers) as on:
        return report.step(
            "refining tracks",
            lambda: refining.refine(str(folder), store, on.running, report.progress),
        )


_refine = refine  # run has a parameter of that name


def export(
    out: str | Path,
    to: str = "colmap",
    *,
    images: str | Path | None = None,
    report: Reporter = _SILENT,
) -> ExportResult:
    """Export features and matches to a format of :data:`caloric.interop.exporters.FORMATS`.

    ``images`` is the directory of the image files, from which COLMAP's cameras are read.
    """
    store, folder = _existing(out), None if images is None else Path(images)
    with locked(store):
        return report.step(f"exporting to {to}", lambda: exporting.export(store, to, folder))


def reconstruct(
    folder: str | Path,
    out: str | Path,
    *,
    report: Reporter = _SILENT,
) -> ReconstructionResult:
    """Reconstruct models by COLMAP from the exported database: OUT/colmap/sparse."""
    store = _existing(out)
    with locked(store):
        return report.step(
            "COLMAP is reconstructing a model", lambda: exporting.reconstruct(store, Path(folder))
        )


@dataclass(frozen=True)
class CollectionResult:
    """The result of :func:`run`.

    Attributes
    ----------
    registered : tuple of str
        Names of the images in the largest model.
    missing : dict
        All other images of the directory, each with the reason.
    models : tuple of Reconstruction
        The models, largest first; none if COLMAP found none, or if the images are at an address.
    numbers : dict
        What the steps counted: images, features, pairs, ..., and the error of the largest model.
    skipped : dict
        Images that could not be read by a step, with the reason.
    """

    registered: tuple[str, ...]
    missing: dict[str, str]
    models: tuple[Reconstruction, ...]
    numbers: dict[str, float]
    skipped: dict[str, str]


def run(
    folder: str | Path,
    out: str | Path,
    options: ExtractOptions = _OPTIONS,
    *,
    pairing: Pairing = _PAIRING,
    matching: Matching = _MATCHING,
    refine: bool = True,
    workers: Workers = _WORKERS,
    report: Reporter = _SILENT,
) -> CollectionResult:
    """Run all steps: features, pairs, matches, geometries, refined tracks, database and model.

    Steps that are done are not repeated. The store then has COLMAP's database and models under
    ``colmap``. Images at an address, such as ``s3://bucket/photos``, get a database only: COLMAP
    needs them on a disk.

    Parameters
    ----------
    folder : str or Path
        The images: a directory, or an address.
    out : str or Path
        The store, which is created if it does not exist.
    options : ExtractOptions
        How features are extracted; descriptors are stored as bytes.
    pairing : Pairing
        Which pairs are matched.
    matching : Matching
        How pairs are matched and verified.
    refine : bool
        Refine the positions of verified features to sub-pixel accuracy.
    workers : Workers
        Processes or a cluster, and the device.
    report : Reporter
        Functions that are called during the run.

    Returns
    -------
    CollectionResult
        Registered images, missing ones with reasons, models, and numbers.
    """
    colmap.require()
    _check_types(pairing=(pairing, Pairing), matching=(matching, Matching))
    resolved, store = _checked(options, workers), Path(out)
    with _started(store, resolved) as on:
        extracted = extract(folder, store, options, workers=on, report=report)
        matched = match(store, matching, pairing=pairing, workers=on, report=report)
        # One process served the GPU; verification uses all cores.
        more = nullcontext(on.running) if resolved.count == workers.count else workers.engine()
        with more as engine:
            on = replace(on, running=engine)
            verified = verify(store, matching, workers=on, report=report)
            refined = _refine(folder, store, workers=on, report=report) if refine else None
    if refined is None:
        refining.forget(store)
    name = sources.absolute(str(folder))
    local = None if sources.is_remote(name) else Path(name)
    export(store, images=local, report=report)
    models = () if local is None else reconstruct(local, store, report=report).models
    numbers: dict[str, float] = {
        "images": len(extracted.found), "features": extracted.features, "pairs": matched.pairs,
        "verified pairs": verified.verified, "models": len(models),
    }  # fmt: skip
    if refined is not None:
        numbers |= {"tracks": refined.tracks, "refined features": refined.moved}
    if models:
        best = models[0]
        numbers |= {"registered": len(best.images), "points": best.points, "error": best.error}
    return CollectionResult(
        models[0].images if models else (), _missing(store, extracted, models), models, numbers,
        extracted.skipped | ({} if refined is None else refined.skipped),
    )  # fmt: skip


def _missing(
    store: Path, extracted: ExtractionResult, models: tuple[Reconstruction, ...]
) -> dict[str, str]:
    """Return the images that are not in the largest model, with the reason."""
    registered = set(models[0].images) if models else set()
    others = {name: str(model.directory) for model in models[1:] for name in model.images}
    verified = pair_matching.verified_images(store)
    missing: dict[str, str] = {}
    for name, found in extracted.found.items():
        if name in registered:
            continue
        if isinstance(found, str):
            missing[name] = found
        elif found == 0:
            missing[name] = "no features"
        elif name in others:
            missing[name] = f"in another model: {others[name]}"
        elif name not in verified:
            missing[name] = "no geometry with another image"
        else:
            missing[name] = "not registered by COLMAP" if models else "no model"
    return missing
