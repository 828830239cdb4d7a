"""The steps of a collection as functions, each of which locks the store.

Finished work is kept if a step is interrupted or killed: call it again to continue. Skipped images
and waiting for another run are logged as warnings of ``caloric.collection``.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from caloric.collection import (
    defaults,
    exporting,
    extraction,
    mapping,
    propagating,
    refining,
    sources,
)
from caloric.collection import matching as pair_matching
from caloric.collection import pairing as pair_choice
from caloric.collection.engines import Engine, InProcess, Workers
from caloric.collection.exporting import ExportResult
from caloric.collection.extraction import ExtractionResult
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.matching import Matching, MatchingResult, VerificationResult
from caloric.collection.pairing import Pairing, PairingResult
from caloric.collection.refining import RefinementResult
from caloric.collection.reporter import Reporter
from caloric.collection.store import locked
from caloric.errors import InputError, check_bool
from caloric.extraction import dispatch
from caloric.gpu import devices
from caloric.image import inputs
from caloric.interop.cameras import Cameras
from caloric.options import ExtractOptions
from caloric.runtime.words import counted

_log = logging.getLogger(__name__)
NONE_USED = "none of the images could be used"
KEPT = "finished work is kept: run the same command again to continue"


@dataclass(frozen=True)
class _Started(Workers):
    """Running workers of a run that has locked the store."""

    running_engine: Engine = InProcess()  # noqa: RUF009 - without state


@contextmanager
def running_workers(store: Path, workers: Workers) -> Iterator[_Started]:
    """Lock the store, start the workers and yield them; yield running workers unchanged."""
    if isinstance(workers, _Started):
        yield workers
        return
    try:
        with locked(store), workers.engine() as engine:
            yield _Started(workers.count, workers.cluster, workers.device, engine)
    except KeyboardInterrupt:
        _log.warning("interrupted; %s", KEPT)
        raise


def check_types(**given: tuple[object, type]) -> None:
    """Raise InputError for an argument of another type, such as a string instead of options."""
    for name, (value, kind) in given.items():
        if not isinstance(value, kind):
            raise InputError(f"{name} must be an instance of {kind.__name__}, got {value!r}")


def checked_workers(options: ExtractOptions, workers: Workers) -> Workers:
    """Return the resolved workers; raise an error if they do not support the options."""
    check_types(options=(options, ExtractOptions), workers=(workers, Workers))
    extraction.stored_as_bytes(options)
    if options.max_features == 0:
        raise InputError("max_features must be at least 1 in a collection")
    resolved = workers.resolved()
    if resolved.cluster is None:
        dispatch.check_device(devices.resolve(resolved.device), options, on_device=False)
    return resolved


def check_separate(folder: str | Path, out: str | Path) -> None:
    """Raise InputError if the store would be written to the image directory."""
    if Path(sources.absolute(str(folder))).resolve() == Path(out).resolve():
        raise InputError(f"{out}: is the image directory; specify another output directory")


def _existing(out: str | Path) -> Path:
    if Path(out).is_file():
        raise InputError(f"{out}: not a directory; expected a store")
    if not Path(out).is_dir():
        raise InputError(f"{out}: no such store")
    return Path(out)


def extract(
    folder: str | Path,
    out: str | Path,
    options: ExtractOptions = defaults.OPTIONS,
    *,
    white_level: float | None = None,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> ExtractionResult:
    """Extract the features of the new and changed images of a directory.

    Parameters
    ----------
    folder : str or Path
        The image directory, or a URL such as ``s3://bucket/photos``.
    out : str or Path
        The store directory; created if it does not exist.
    options : ExtractOptions
        The extraction options; descriptors are stored as bytes.
    white_level : float, optional
        The pixel value of white in all images, such as 4095 for 12-bit data: see
        :func:`caloric.read_image`. The store keeps it for the refinement.
    workers : Workers
        Processes or a cluster, and the device.
    report : Reporter
        Callbacks for progress and results.

    Returns
    -------
    ExtractionResult
        The number of features of each image; ``skipped`` has the skipped images with the reasons.
    """
    result = extracted(
        folder, out, options, white_level=white_level, workers=workers, report=report
    )
    if len(result.skipped) == len(result.found):
        raise InputError(f"{folder}: {NONE_USED}")
    return result


def extracted(
    folder: str | Path,
    out: str | Path,
    options: ExtractOptions,
    *,
    white_level: float | None,
    workers: Workers,
    report: Reporter,
) -> ExtractionResult:
    """Return the result of :func:`extract`, also if no image could be used."""
    store, name = Path(out), str(folder)
    inputs.check_white_level(white_level)
    check_separate(folder, out)
    with running_workers(store, checked_workers(options, workers)) as started:
        return report.step(
            f"extracting features of {name}",
            lambda: extraction.extract(
                name,
                store,
                options,
                started.running_engine,
                white_level=white_level,
                device=started.device,
                progress=report.progress,
            ),
        )


def pair(
    out: str | Path,
    options: Pairing | None = None,
    *,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> PairingResult:
    """Select the image pairs to match, and write them to the store.

    ``options`` None repeats the last selection; the default is all pairs.
    """
    store = _existing(out)
    with running_workers(store, workers) as started:
        return report.step(
            "selecting pairs",
            lambda: PairingResult(
                tuple(pair_choice.pairs(store, options, started.running_engine, report.progress))
            ),
        )


def match(
    out: str | Path,
    options: Matching = defaults.MATCHING,
    *,
    pairing: Pairing | None = None,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> MatchingResult:
    """Match the new and changed pairs; ``pairing`` None repeats the last selection of pairs."""
    store = _existing(out)
    with running_workers(store, workers.resolved()) as started:
        with report.working("selecting pairs"):
            pairs = pair_choice.pairs(store, pairing, started.running_engine, report.progress)
        return report.step(
            f"matching {counted(len(pairs), 'pair')}",
            lambda: pair_matching.match(
                store, pairs, options, started.running_engine, report.progress, started.device
            ),
        )


def verify(
    out: str | Path,
    options: Matching = defaults.MATCHING,
    *,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> VerificationResult:
    """Verify the matches of each pair geometrically."""
    store = _existing(out)
    with running_workers(store, workers) as started:
        return report.step(
            "verifying matches",
            lambda: pair_matching.verify(store, options, started.running_engine, report.progress),
        )


def refine(
    folder: str | Path,
    out: str | Path,
    *,
    propagate: bool = True,
    options: ExtractOptions | None = None,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> RefinementResult:
    """Refine the positions of verified features to sub-pixel accuracy.

    ``propagate`` first looks for each point in all images that show it, and adds features where it
    was not detected (:mod:`caloric.collection.propagating`). ``options`` are those with which the
    features were extracted; they are needed if they change the stored descriptor. Later exports use
    the refined positions and the added features.
    """
    store, name = _existing(out), str(folder)
    check_bool("propagate", propagate)
    with running_workers(store, workers) as started:
        engine, skipped = started.running_engine, {}
        if propagate:
            propagated = report.step(
                "propagating tracks",
                lambda: propagating.propagate(name, store, engine, report.progress, options),
            )
            skipped = propagated.skipped
        else:
            propagating.clear(store)
        result = report.step(
            "refining tracks", lambda: refining.refine(name, store, engine, report.progress)
        )
    return replace(result, skipped=skipped | result.skipped)


def export(
    out: str | Path,
    to: str = "colmap",
    *,
    images: str | Path | None = None,
    cameras: Cameras = defaults.CAMERAS,
    report: Reporter = defaults.SILENT,
) -> ExportResult:
    """Export features and matches to a format of :data:`caloric.interop.exporters.FORMATS`.

    ``images`` is the image directory, from which COLMAP's cameras are read.
    """
    store, directory = _existing(out), None if images is None else Path(images)
    with locked(store):
        return report.step(
            f"exporting to {to}", lambda: exporting.export(store, to, directory, cameras)
        )


def reconstruct(
    folder: str | Path,
    out: str | Path,
    *,
    report: Reporter = defaults.SILENT,
) -> ReconstructionResult:
    """Run COLMAP's mapper on the exported database; the models are in ``out``/colmap/sparse."""
    store = _existing(out)
    with locked(store):
        return report.step(
            "running COLMAP's mapper",
            lambda: mapping.reconstruct(store, Path(folder), report.progress),
        )
