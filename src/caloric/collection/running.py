"""All steps of a collection in one call."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

from caloric.collection import (
    completing,
    defaults,
    exporting,
    mapping,
    propagating,
    recorded,
    refining,
    reporting,
    results,
    separating,
    sources,
    summaries,
    workflow,
)
from caloric.collection.engines import Workers
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.matching import Matching
from caloric.collection.pairing import Pairing
from caloric.collection.reporter import Reporter, Times
from caloric.collection.results import CollectionResult
from caloric.collection.store import locked
from caloric.collection.summaries import PairSummary
from caloric.errors import check_bool
from caloric.interop import colmap
from caloric.interop.cameras import Cameras
from caloric.options import ExtractOptions
from caloric.runtime.files import check_input_directory
from caloric.runtime.words import counted

_REMOTE = "COLMAP needs local images; copy them and run `reconstruct`"


def run(
    folder: str | Path,
    out: str | Path,
    options: ExtractOptions = defaults.OPTIONS,
    *,
    white_level: float | None = None,
    pairing: Pairing = defaults.PAIRING,
    matching: Matching = defaults.MATCHING,
    cameras: Cameras = defaults.CAMERAS,
    refine: bool = True,
    propagate: bool = True,
    complete: bool = True,
    workers: Workers = defaults.WORKERS,
    report: Reporter = defaults.SILENT,
) -> CollectionResult:
    """Run all steps, from the images to a COLMAP database and models.

    Finished work is not repeated; if nothing has changed since the last run, neither is COLMAP's
    mapper. The database and the models are in ``out``/colmap, the report in
    ``out``/report.html and ``out``/report.json. If there is no model, earlier models are moved to
    ``out``/colmap/sparse.old. COLMAP needs local images: if ``folder`` is a URL,
    such as ``s3://bucket/photos``, there are no models.

    Parameters
    ----------
    folder : str or Path
        The image directory, or a URL.
    out : str or Path
        The store directory; created if it does not exist.
    options : ExtractOptions
        The extraction options; descriptors are stored as bytes.
    white_level : float, optional
        The pixel value of white in all images: see :func:`~caloric.collection.extract`.
    pairing : Pairing
        The selection of pairs.
    matching : Matching
        The options of matching and verification.
    cameras : Cameras
        Which images share a camera, and the camera model.
    refine : bool
        Refine the positions of verified features to sub-pixel accuracy.
    propagate : bool
        Before refinement, look for each point in all images that show it: see
        :func:`~caloric.collection.refine`. Without refinement there is no propagation.
    complete : bool
        Match images that are missing in the largest model again, with features of simulated views
        (:mod:`caloric.collection.completing`).
    workers : Workers
        Processes or a cluster, and the device.
    report : Reporter
        Callbacks for progress and results.

    Returns
    -------
    CollectionResult
        Registered images, missing ones with the reasons, models, and numbers.
    """
    if not sources.is_remote(sources.absolute(str(folder))):
        check_input_directory(folder)
    workflow.check_separate(folder, out)
    for option, value in (("refine", refine), ("propagate", propagate), ("complete", complete)):
        check_bool(option, value)
    colmap.require()
    workflow.check_types(
        pairing=(pairing, Pairing), matching=(matching, Matching), cameras=(cameras, Cameras)
    )
    resolved, store = workflow.checked_workers(options, workers), Path(out)
    name = sources.absolute(str(folder))
    local = None if sources.is_remote(name) else Path(name)
    with locked(store):
        mapping.check_owner(store, name)
        record = recorded.read(store)
        times = Times(
            record.seconds, lambda: recorded.shard_names(store), store / "unfinished.json"
        )
        with workflow.running_workers(store, resolved) as started:
            extracted = times.resumed("extract", workflow.extracted)(
                folder, store, options, white_level=white_level, workers=started, report=report
            )
            if extracted.described < 2:
                mapping.retire(store)
                is_used = len(extracted.skipped) < len(extracted.found)
                why = results.too_few(extracted.described) if is_used else workflow.NONE_USED
                models = ReconstructionResult((), why)
                result = reporting.finish(name, store, times.seconds, extracted, [], models)
                times.finish()
                return result
            matched = times.resumed("match", workflow.match)(
                store, matching, pairing=pairing, workers=started, report=report
            )
            # Few processes are enough for a GPU; verification uses all cores.
            more = (
                nullcontext(started.running_engine)
                if resolved.count == workers.count
                else workers.engine()
            )
            with more as engine:
                started = replace(started, running_engine=engine)
                verified = times.resumed("verify", workflow.verify)(
                    store, matching, workers=started, report=report
                )
                refined = (
                    times.resumed("refine", workflow.refine)(
                        folder,
                        store,
                        propagate=propagate,
                        options=options,
                        workers=started,
                        report=report,
                    )
                    if refine
                    else None
                )
        if refined is None:
            propagating.clear(store)
            refining.clear(store)
        pairs = summaries.summaries(store)
        inputs = recorded.inputs(store, cameras, complete)
        earlier = record.models(store, inputs)
        if earlier is not None:
            models, pairs = earlier, completing.summaries(pairs, record.pairs)
            times.keep()
            report.finished(models)
        else:
            times("export", workflow.export)(store, images=local, cameras=cameras, report=report)
            models = ReconstructionResult((), _REMOTE)
            if local is not None:
                models = times("reconstruct", workflow.reconstruct)(local, store, report=report)
                models, cameras = times("separate", _separated)(
                    local, store, cameras, report, models
                )
            if local is not None and complete and models.models:
                models, pairs = times("complete", _complete)(
                    local, store, options, matching, cameras, workers, report, models, pairs
                )
        counts: dict[str, float] = {"pairs": matched.pairs, "verified pairs": verified.verified}
        if refined is not None:
            counts |= {"tracks": refined.tracks, "refined features": refined.moved}
        skipped = {} if refined is None else refined.skipped
        result = reporting.finish(
            name, store, times.seconds, extracted, pairs, models, counts, skipped, inputs
        )
        times.finish()
        return result


def _separated(
    directory: Path,
    store: Path,
    cameras: Cameras,
    report: Reporter,
    models: ReconstructionResult,
) -> tuple[ReconstructionResult, Cameras]:
    """Return the models, and which images share a camera, by their focal lengths."""
    if not separating.assumed(store, cameras):
        return models, cameras
    separated = report.step(
        "comparing focal lengths",
        lambda: separating.separate(store, directory, cameras, models, report.progress),
    )
    return separated.models, separated.cameras


def _complete(
    directory: Path,
    store: Path,
    options: ExtractOptions,
    matching: Matching,
    cameras: Cameras,
    workers: Workers,
    report: Reporter,
    models: ReconstructionResult,
    pairs: list[PairSummary],
) -> tuple[ReconstructionResult, list[PairSummary]]:
    """Return the models, and summaries of pairs, after a second round for the missing images."""
    registered = set(models.models[0].images)
    work = completing.tasks(str(directory), store, options, matching, pairs, registered)
    if not work:
        return models, pairs
    with workers.engine() as engine:
        completed = report.step(
            f"matching {counted(len(work), 'missing image')} again",
            lambda: completing.complete(work, engine, report.progress),
        ).images
        pairs = completing.summaries(
            pairs, [pair for image in completed.values() for pair in image.summaries]
        )
        if completed:
            content = (
                completing.images(store, completed), completing.two_views(store, completed),
            )  # fmt: skip
            with report.working("exporting to colmap"):
                exporting.export(store, "colmap", directory, cameras, content)
            models = report.step(
                f"adding {counted(len(completed), 'image')} to the model",
                lambda: mapping.complete(store, directory, models, report.progress),
            )
    return models, pairs
