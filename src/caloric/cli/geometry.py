"""``caloric verify``: the geometry of matched points of any method."""

from pathlib import Path
from typing import Annotated

import numpy as np
import typer

from caloric.cli import console
from caloric.cli.options import Json, Model, Threshold
from caloric.errors import InputError
from caloric.matching import models
from caloric.matching.geometry import Geometry, alternative
from caloric.types import FloatArray, Report

_GRID = 20  # points across and down at which the expected error is reported
Size = tuple[int, int]


def verify(
    matches: Annotated[
        Path,
        typer.Argument(
            help="Matched points: .npz or .h5 with the arrays points_a and points_b, keypoints0 "
            "and keypoints1, or mkpts0 and mkpts1, (m, 2) each; or .csv with the columns x_a, y_a, "
            "x_b, y_b."
        ),
    ],
    model: Model = "auto",
    threshold: Threshold = None,
    seed: Annotated[int, typer.Option(help="Random seed for the robust estimator.")] = 0,
    size_a: Annotated[
        str | None,
        typer.Option(
            help="Size of the first image, WIDTHxHEIGHT; default: the extent of its points."
        ),
    ] = None,
    size_b: Annotated[
        str | None, typer.Option(help="Size of the second image, WIDTHxHEIGHT.")
    ] = None,
    images: Annotated[
        tuple[str, str] | None, typer.Option(help="The two images, to take their sizes from.")
    ] = None,
    error_map: Annotated[
        Path | None,
        typer.Option(
            help="Draw the expected error over the first image (.png). Needs "
            "--images and a homography."
        ),
    ] = None,
    json_path: Json = None,
) -> None:
    """Estimate the geometry of matched points of any method, with its confidence.

    Exits with status 1 unless the confidence exceeds 0.5. An essential matrix requires camera
    intrinsics; use caloric.verify in Python.
    """
    from caloric.interop import points
    from caloric.verification import verify as estimate

    inputs = [str(matches), *(images or ())]
    console.check_outputs(json_path, None, error_map, inputs=inputs)
    if error_map is not None and images is None:
        raise InputError("--error-map draws on the first image: pass --images A B")
    sizes = _sizes(size_a, size_b, images)
    a, b = points.read(matches)
    geometry = estimate(a, b, image_sizes=sizes, model=model, threshold=threshold, seed=seed)
    report = _report(geometry, _errors(geometry, a, b, sizes))
    if error_map is not None and images is not None:
        from caloric import viz

        viz.draw_error(images[0], geometry).save(error_map)
    console.report_results(json_path, report | {"matches": str(matches)}, _lines(report))
    if not geometry:
        raise typer.Exit(1)


def _sizes(
    size_a: str | None, size_b: str | None, images: tuple[str, str] | None
) -> tuple[Size, Size] | None:
    """Return the sizes (h, w) of both images, or None if they are not given."""
    if images is not None:
        if size_a or size_b:
            raise InputError("--images replaces --size-a and --size-b: pass either")
        return _image_size(images[0]), _image_size(images[1])
    if size_a is None and size_b is None:
        return None
    if size_a is None or size_b is None:
        raise InputError("--size-a and --size-b are needed together")
    return _parsed(size_a, "--size-a"), _parsed(size_b, "--size-b")


def _image_size(path: str) -> Size:
    from caloric.image import inputs

    h, w = inputs.read_image(path).shape[:2]
    return h, w


def _parsed(text: str, option: str) -> Size:
    width, _, height = text.lower().partition("x")
    if not (width.isdecimal() and height.isdecimal() and int(width) and int(height)):
        raise InputError(f"{option} must be WIDTHxHEIGHT, such as 1600x1200, got {text!r}")
    return int(height), int(width)


def _errors(
    geometry: Geometry, a: FloatArray, b: FloatArray, sizes: tuple[Size, Size] | None
) -> FloatArray:
    """Return expected errors in pixels: over the overlap of the images, or at the inliers.

    An epipolar geometry has an error at pairs of points only, so that it is evaluated at inliers.
    """
    if geometry.matrix is None:
        return np.zeros(0)
    if not models.is_planar(geometry.model):
        inliers = geometry.inliers
        return geometry.error_at(a[inliers], b[inliers])
    first, second = (None, None) if sizes is None else sizes
    boxes = models.Box.of(first, a), models.Box.of(second, b)
    return geometry.error_at(models.overlap(geometry.matrix, boxes, _GRID))


def _report(geometry: Geometry, errors: FloatArray) -> Report:
    has_errors = len(errors) > 0 and bool(np.isfinite(errors).all())
    matrix = geometry.matrix if geometry else None
    return {
        "model": None if geometry.matrix is None else geometry.model,
        "matrix": None if matrix is None else matrix.tolist(),
        "inliers": len(geometry),
        "sigma": geometry.sigma,
        "threshold": geometry.threshold,
        "alternative": alternative(geometry),
        "inlier": geometry.inliers.tolist(),
        "confidence": geometry.confidence,
        "reason": geometry.reason,
        "error": {"median": float(np.median(errors)), "maximum": float(errors.max())}
        if has_errors
        else None,
    }


def _lines(report: Report) -> list[str]:
    """Return the report as text."""
    lines = [
        f"model: {report['model'] or 'none'}",
        f"inliers: {report['inliers']} of {len(report['inlier'])} matches",
        f"confidence: {report['confidence']:.3f}"
        f"{'' if report['confidence'] > 0.5 else ' (not reliable)'}",
    ]
    other = report["alternative"]
    if report["model"]:
        lines.append(f"noise: {report['sigma']:.2f} px, inliers up to {report['threshold']:.2f} px")
    if other:
        counts = f"{other['inliers']} inliers, confidence {other['confidence']:.3f}"
        lines.append(f"alternative: {other['model']}, {counts}")
    if report["reason"]:
        lines.append(f"reason: {report['reason']}")
    if report["error"]:
        where = (
            "at the inliers"
            if report["model"] in ("fundamental", "essential")
            else "over the overlap"
        )
        median, maximum = report["error"]["median"], report["error"]["maximum"]
        lines.append(f"expected error {where}: median {median:.2f} px, maximum {maximum:.2f} px")
    return lines
