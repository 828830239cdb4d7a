"""The report of a run as one HTML file without scripts and external content."""

import base64
from collections.abc import Sequence
from html import escape

import cv2
import numpy as np

from caloric.interop.colmap_model import CAMERA_MODELS
from caloric.runtime.words import counted
from caloric.types import Report

_FOCAL_LENGTHS = {name: count for name, count, _ in CAMERA_MODELS.values()}
# Labels and units of the numbers of a run.
_LABELS = {"error": "mean reprojection error", "track length": "mean track length"}
_UNITS = {"error": " px"}
_LABEL = 18  # maximum number of characters of a name in the matrix
_STEPS = {
    "extract": "extract features",
    "match": "select and match pairs",
    "verify": "estimate geometries",
    "refine": "propagate and refine tracks",
    "export": "write the database",
    "reconstruct": "COLMAP's mapper",
    "separate": "compare focal lengths",
    "complete": "match missing images again",
}
_DEGREES = 60  # of the names above the matrix
_MATRIX = 1000  # maximum number of images for which the matrix of pairs is drawn
_MORE_POINTS = (
    "An image can have more points than features: propagation also finds points in images in which "
    "they were not detected."
)
_STYLE = """
:root { color-scheme: light dark; --ink: light-dark(#1b222c, #e9edf2); --soft: light-dark(#4f5a67, #a8b3c0);
  --line: light-dark(#d5dbe2, #313a45); --page: light-dark(#fff, #171c22); --field: light-dark(#f1f4f7, #232a33);
  --accent: light-dark(#a83a14, #ff9d6b); }
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--page); max-width: 72rem;
  margin: 0 auto; padding: 1.2rem 1.2rem 3rem; }
h1 { font-size: 1.5rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2rem 0 .5rem; }
.lead { font-size: 1.15rem; margin: 0 0 1rem; } .failure { color: var(--accent); font-weight: 600; }
.soft, figcaption, caption, th { color: var(--soft); }
.scroll { overflow: auto; max-height: 34rem; border: 1px solid var(--line); border-radius: .4rem; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
.scroll table { width: 100%; }
th, td { text-align: left; padding: .2rem .7rem; border-bottom: 1px solid var(--line); vertical-align: top; }
th { font-weight: 600; position: sticky; top: 0; background: var(--page); }
.n { text-align: right; white-space: nowrap; }
td { overflow-wrap: anywhere; } td:last-child { min-width: 9rem; }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin: 0; padding: 0; }
.cards div { background: var(--field); border-radius: .5rem; padding: .5rem .9rem; }
.cards dt { color: var(--soft); font-size: .87rem; } .cards dd { margin: 0; font-size: 1.25rem; font-variant-numeric: tabular-nums; }
figure { margin: .8rem 0; } figure img { display: block; max-width: 100%; height: auto; background: var(--field); border-radius: .5rem; }
.wide { overflow-x: auto; } .matrix image { image-rendering: pixelated; }
.charts { display: flex; flex-wrap: wrap; gap: 1.5rem; } .charts svg { width: 26rem; max-width: 100%; }
svg text { font: 12px system-ui, sans-serif; fill: var(--soft); } svg rect { fill: var(--accent); }
code { background: var(--field); padding: .1em .35em; border-radius: .3em; overflow-wrap: anywhere; }
"""  # noqa: E501


def _formatted(value: float) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:,.2f}"


def _table(names: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a table; numbers and percentages are aligned to the right."""

    def is_number(value: object) -> bool:
        return isinstance(value, int | float) or str(value).endswith("%")

    def cell(value: object) -> str:
        text = _formatted(value) if isinstance(value, int | float) else escape(str(value))
        return f'<td class="n">{text}</td>' if is_number(value) else f"<td>{text}</td>"

    numeric = [rows and all(is_number(row[i]) for row in rows) for i in range(len(names))]
    head = "".join(
        f'<th scope="col"{" class=n" if is_number else ""}>{escape(name)}</th>'
        for name, is_number in zip(names, numeric, strict=True)
    )
    body = "".join(f"<tr>{''.join(map(cell, row))}</tr>" for row in rows)
    return f'<div class="scroll" tabindex="0"><table><tr>{head}</tr>{body}</table></div>'


def _chart(title: str, bins: list[Report], unit: str = "") -> str:
    """Return a histogram as an SVG figure, without empty bins at its ends."""
    filled = [i for i, b in enumerate(bins) if b["count"]]
    bins = bins[filled[0] : filled[-1] + 1] if filled else []
    largest = max((b["count"] for b in bins), default=0) or 1
    parts = []
    for i, b in enumerate(bins):
        y = 18 * i
        if b["to"] is None:
            label = f"{b['from']:g} or more"
        elif unit:
            label = f"{b['from']:g} to {b['to']:g}"
        else:
            label = (
                f"{b['from']:g}" if b["to"] == b["from"] + 1 else f"{b['from']:g}–{b['to'] - 1:g}"
            )
        width = 190 * b["count"] / largest
        parts.append(
            f'<text x="92" y="{y + 13}" text-anchor="end">{label}</text>'
            f'<rect x="100" y="{y + 2}" width="{width:.1f}" height="13" rx="2"/>'
            f'<text x="{width + 106:.1f}" y="{y + 13}">{b["count"]:,}</text>'
        )
    caption = f"{title}{f', {unit}' if unit else ''}"
    return (
        f'<figure><figcaption>{caption}</figcaption><svg viewBox="0 0 370 {18 * len(bins)}" '
        f'role="img" aria-label="{caption}">{"".join(parts)}</svg></figure>'
    )


def _png(data: bytes) -> str:
    return f"data:image/png;base64,{base64.b64encode(data).decode()}"


def _shortened(name: str) -> str:
    return name if len(name) <= _LABEL else f"…{name[1 - _LABEL :]}"


def _matrix(images: list[Report], pairs: list[Report]) -> str:
    """Return the matrix of pairs as an image with one pixel for each pair, and names of images."""
    number = {image["name"]: i for i, image in enumerate(images)}
    count = len(number)
    if not 1 < count <= _MATRIX:
        return ""
    pixels = np.zeros((count, count, 4), np.uint8)
    for pair in pairs:
        i, j = number[pair["name_a"]], number[pair["name_b"]]
        if pair["is_verified"]:
            # Logarithmic: 10 inliers are visible and 1,000 opaque.
            alpha = round(255 * min(1.0, np.log10(1 + pair["inliers"]) / 3))
            pixels[[i, j], [j, i]] = (30, 90, 220, alpha)  # BGR
        else:
            pixels[[i, j], [j, i]] = (128, 128, 128, 40)
    pixels[range(count), range(count)] = (128, 128, 128, 255)
    _, data = cv2.imencode(".png", pixels)
    size = float(np.clip(18 * count, 220, 560))  # of the matrix; all in pixels
    cell, left = size / count, 7.0 * min(_LABEL, max(map(len, number))) + 10
    angle, labels = np.radians(_DEGREES), []
    top = np.sin(angle) * left + 8
    for i, name in list(enumerate(number))[:: max(1, round(15 / cell))]:
        label, at = escape(_shortened(name)), (i + 0.5) * cell
        labels.append(
            f'<text x="{left - 6:.0f}" y="{top + at + 4:.1f}" text-anchor="end">{label}</text>'
            f'<text transform="translate({left + at + 4:.1f} {top - 6:.0f}) rotate(-{_DEGREES})">'
            f"{label}</text>"
        )
    width, height = left + size + np.cos(angle) * left, top + size + 2
    return (
        "<h2>Pairs</h2><figure>"
        f'<div class="wide" tabindex="0"><svg class="matrix" width="{width:.0f}" '
        f'height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="Matrix of matched pairs">'
        f'<image x="{left:.0f}" y="{top:.0f}" width="{size:.0f}" height="{size:.0f}" '
        f'href="{_png(data.tobytes())}"/>{"".join(labels)}</svg></div>'
        f"<figcaption>{counted(count, 'image')} in the order of their names. Orange: verified, "
        "stronger with more inliers. Pale gray: matched, but no reliable geometry. Empty: not "
        "matched, or no matches. Dark gray: the same image.</figcaption></figure>"
    )


def _model(number: int, model: Report, figure: bytes) -> str:
    names = ["camera", "model", "images", "width", "height", "focal length, px"]
    names += ["principal point, px", "distortion"]
    rows = []
    for c in model["cameras"]:
        x, y, *distortion = c["parameters"][_FOCAL_LENGTHS[c["model"]] :]
        focal = ", ".join(f"{v:,.1f}" for v in c["parameters"][: _FOCAL_LENGTHS[c["model"]]])
        row = [c["id"], c["model"], c["images"], c["width"], c["height"], focal]
        values = ", ".join(f"{value:.4g}" for value in distortion) or "–"
        rows.append([*row, f"{x:,.1f}, {y:,.1f}", values])
    error = model["mean reprojection error, pixels"]
    at = model["georeference"]
    coordinates = (
        f"meters to the east, to the north and up from latitude {at['latitude']:.6f}°, longitude "
        f"{at['longitude']:.6f}° and altitude {at['altitude']:.1f} m; the median distance of "
        f"cameras from their GPS positions is {at['median error, meters']:.2f} m"
        if at
        else "arbitrary orientation and scale, because GPS positions do not determine them"
    )
    return (
        f"<h2>Model {number}</h2>"
        f"<p>{counted(model['images'], 'image')}, {counted(model['points'], 'point')}, "
        f"mean track length {model['mean track length']:.2f}, mean reprojection error "
        f"{error:.2f} px: "
        f"<code>{escape(model['directory'])}</code></p>"
        f"<p>Coordinates: {coordinates}.</p>"
        f'<figure><img alt="Points and cameras of model {number}" src="{_png(figure)}"></figure>'
        '<div class="charts">'
        + _chart("Images that observe a point", model["images of points"])
        + _chart("Reprojection errors of points", model["reprojection errors, pixels"], "px")
        + f"</div>{_table(names, rows)}"
    )


def _times(seconds: dict[str, float]) -> str:
    """Return the table of durations; "–" for steps that this version does not know."""
    total = sum(seconds.values())
    rows: list[list[object]] = [
        [name, _STEPS.get(name, "–"), float(value), f"{value / max(total, 1e-9):.0%}"]
        for name, value in seconds.items()
    ]
    rows.append(["total", "", float(total), "100%"])
    return _table(["step", "what it does", "seconds", "share"], rows) + (
        '<p class="soft">With the time of runs that were interrupted. Steps in which nothing '
        "changed have the time of an earlier run.</p>"
    )


def page(report: Report, renderings: list[bytes], title: str) -> str:
    """Return the page of a report; ``renderings`` are PNG files of its models."""
    lead = "lead" if report["models"] else "lead failure"
    numbers = "".join(
        f"<div><dt>{escape(_LABELS.get(name, name))}</dt>"
        f"<dd>{_formatted(value)}{_UNITS.get(name, '')}</dd></div>"
        for name, value in report["numbers"].items()
    )
    warnings = "".join(f"<li>{escape(text)}</li>" for text in report["warnings"])
    missing = [[i["name"], i["reason"]] for i in report["images"] if i["reason"] is not None]
    parts = [
        f'<h1>{escape(title)}</h1><p class="{lead}">{escape(report["summary"])}</p>',
        f'<ul class="failure">{warnings}</ul>' if warnings else "",
        f'<dl class="cards">{numbers}</dl>',
        f"<h2>Not registered</h2>{_table(['image', 'reason'], missing)}" if missing else "",
        *(
            _model(i, model, figure)
            for i, (model, figure) in enumerate(zip(report["models"], renderings, strict=True))
        ),
        _matrix(report["images"], report["pairs"]),
        "<h2>Images</h2>",
        _table(
            ["image", "features", "verified pairs", "points", "model"],
            [
                [i["name"], i["features"], i["verified pairs"], i["points"],
                 "–" if i["model"] is None else str(i["model"])]
                for i in report["images"]
            ],
        ),
        f'<p class="soft">{_MORE_POINTS}</p>'
        if any((i["points"] or 0) > i["features"] for i in report["images"])
        else "",
        f"<h2>Time</h2>{_times(report['seconds'])}",
    ]  # fmt: skip
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "img-src data:; style-src 'unsafe-inline'\">"
        f"<title>{escape(title)}: report</title><style>{_STYLE}</style></head>\n"
        f"<body>{''.join(parts)}</body></html>"
    )
