"""``caloric paper OUT``: compute everything, draw it, and write one page."""

import json
from collections.abc import Callable
from html import escape
from math import degrees, exp
from pathlib import Path

import numpy as np

from caloric.errors import InputError
from caloric.paper import errata, html, side_by_side, table1
from caloric.theory import toy
from caloric.theory.continuation import Path as Solution
from caloric.theory.continuation import Step


def write(out: Path, progress: Callable[[str], None] = lambda message: None) -> Path:
    """Regenerate the paper into the directory ``out``; return the path of its index.html."""
    try:
        from caloric.paper import figures
    except ImportError as error:
        raise InputError(
            f"the figures need matplotlib ({error}); install it with: pip install 'caloric[viz]'"
        ) from error
    out.mkdir(parents=True, exist_ok=True)

    progress("the toy: signals, landscapes, Algorithm 1")
    solution, local = toy.solve(), toy.plain_descent()
    figures.signals(out / "signals.png")
    figures.landscape(out / "landscape.png", local)
    figures.diffused_landscapes(out / "diffused.png", solution)

    progress("Table 1: letters, about a minute")
    letters = table1.run()
    example = letters.examples["equal blur"]
    figures.statistics(out / "statistics.png", letters)

    progress("response maps")
    figures.letters(out / "letters.png", example)
    figures.responses(out / "response_sift.png", example, example.sift_method)
    figures.responses(out / "response_heat.png", example, example.heat_method)

    progress("the three algorithms side by side")
    three = side_by_side.run()
    figures.algorithms(out / "algorithms.png", three)

    progress("errata")
    entries = errata.all_errata()

    progress("the page")
    results = _results(letters, three, entries, solution.point.tolist(), local.point.tolist())
    (out / "results.json").write_text(json.dumps(results, indent=1), encoding="utf-8")
    page = "\n".join(
        [
            _HEAD,
            _toy_section(solution, local),
            _table_section(letters),
            _maps_section(example),
            _algorithms_section(three),
            _errata_section(entries),
            "</body></html>",
        ]
    )
    index = out / "index.html"
    index.write_text(page, encoding="utf-8")
    return index


def _results(
    letters: table1.Result,
    three: side_by_side.SideBySide,
    entries: tuple[errata.Erratum, ...],
    reached: list[float],
    local: list[float],
) -> dict[str, object]:
    """Return the numbers of the page, for results.json."""
    return {
        "toy": {"algorithm_1": reached, "plain_descent": local},
        "table_1": {
            name: {
                "letters": e.first + e.second, "strength": e.strength,
                "sift": {"method": e.sift_method.label, "correct": e.sift[0], "wrong": e.sift[1]},
                "heat": {"method": e.heat_method.label, "correct": e.heat[0], "wrong": e.heat[1]},
                "only_heat_right": e.only_heat_right, "only_sift_right": e.only_sift_right,
                "searched": e.searched,
            }
            for name, e in letters.examples.items()
        },
        "verdict": verdict(letters),
        "letters": [
            {
                "group": row.group, "method": row.method.label, "compared": row.compared,
                "share": {
                    str(s): [share.mean, share.low, share.high]
                    for s, share in zip(table1.STRENGTHS, row.shares, strict=True)
                },
            }
            for row in letters.rows
        ],
        "side_by_side": [
            {
                "algorithm": o.title, "template": side_by_side.TEMPLATES[o.template],
                "error": list(map(float, side_by_side.WHERE.error(o.where))),
            }
            for o in three.outcomes
        ],
        "errata": {str(entry.number): entry.numbers for entry in entries},
    }  # fmt: skip


def _toy_section(solution: Solution, local: Step) -> str:
    c, theta = solution.point
    steps = "".join(
        f'<tr><td class="n">{s.sigma:g}</td><td class="n">{s.point[0]:.3f}</td>'
        f'<td class="n">{s.point[1]:.4f}</td><td class="n">{s.cost:.4f}</td></tr>'
        for s in solution.steps
    )
    return f"""<h2>1. Matching is hard: a toy</h2>
<p>A signal <i>f</i> may be slid by θ. Does it match template <i>p</i>₁ or <i>p</i>₂? The choice is
<i>c</i>₁ = 1 or 0, and the cost is eq. 12 with its constraint as a penalty.</p>
{
        html.figure(
            "signals.png",
            "Three curves; f slid by .25 coincides with the first template",
            "f slid to the right by .25 lies on p₁ (the paper says left: erratum 14). No shift brings it onto p₂.",
        )
    }
{
        html.figure(
            "landscape.png",
            "Contours of the cost with two minima",
            f"The cost over (c₁, θ). Plain descent from (0, 0) ends in the local minimum "
            f"({local.point[0]:.3f}, {local.point[1]:.3f}) with cost {local.cost:.4f}; the global one has cost 0.",
        )
    }
<h2>2. Diffusion and continuation: Algorithm 1</h2>
<p>Convolved with a wide Gaussian the cost has one minimum. Found there and followed while the
Gaussian shrinks, it arrives at ({c:.4f}, {theta:.4f}), the global minimum.</p>
{
        html.figure(
            "diffused.png",
            "Four landscapes from blurred to sharp with a path drawn on them",
            "Diffused costs from a large σ to 0, in closed form. White: the path of the minimiser so far; red: "
            "where it is.",
        )
    }
<details><summary>The path in numbers</summary><table><tr><th>σ</th><th>c₁</th><th>θ</th>
<th>diffused cost</th></tr>{steps}</table></details>"""


def _table_section(result: table1.Result) -> str:
    examples = "".join(_example_rows(title, e) for title, e in result.examples.items())
    equal = result.examples["equal blur"]
    rows = "".join(_share_row(row) for row in result.rows)
    return f"""<h2>3. Table 1: letters</h2>
<p>Image 1 shows two letters, image 2 the same two, each deformed by <i>A</i> = <i>I</i> + N(0, s²),
<i>b</i> ~ N(0, .1²). There are two ways to pair them. The distances are totals of eq. 7 (each
between 0 and 2) over 8 × 8 places and 16 directions; the smaller one is what the descriptor
prefers.</p>
{
        html.figure(
            "letters.png",
            "Two letters, twice",
            f"The example at equal blur: “{equal.first}” and “{equal.second}”, s = {equal.strength:g}.",
        )
    }
<div class="wide"><table>{html.head_row(_EXAMPLE)}{examples}</table></div>
<p class="note"><b>How the examples were found.</b> At s = .2, of {equal.searched:,} combinations of
two letters and two seeded deformations, the one is shown in which SIFT is most clearly wrong and heat
right. At equal blur (same σd, σr = σa) there are {equal.only_heat_right:,} such combinations, and
{
        equal.only_sift_right:,} in which SIFT is right and heat wrong. The paper's own table (SIFT .20 / .11, heat
1.02 / 1.19) is not at equal blur: distances of .1 to .2 belong to a very blurred SIFT, those above 1
to a sharp heat. The second example repeats that comparison. An example proves nothing either way;
the statistics follow.</p>
{
        html.figure(
            "statistics.png",
            "Share of wrong choices against strength of deformation",
            "Share of wrong choices, lower is better; 95 % intervals. Neighboring curves share their letters, so "
            "compare them by the differences in the table, not by overlapping bars.",
        )
    }
<p>Every pair of letters A to Z, every pair of {
        int((result.choices_per_share / len(table1.PAIRS)) ** 0.5)
    }
deformations each: {result.choices_per_share:,} forced choices a cell. Share right, and below it the
difference to SIFT of the same group in points of a hundred with its 95 % interval (bootstrap over
deformations, the same resamples for both). “Root” compares the square roots of the entries.
Numbers behind a name are σd, then σr or σa, then σs; the best ones were chosen on other
deformations.</p>
<div class="wide"><table>{html.head_row(_SHARES)}{rows}</table></div>
<p>In words:</p><ul>{"".join(f"<li>{line}</li>" for line in verdict(result))}</ul>"""


_HEAD = f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>A Theory of Local Matching, regenerated</title><style>{html.STYLE}</style></head><body>
<h1>A Theory of Local Matching: SIFT and Beyond, regenerated</h1>
<p>Every figure and table of the paper by Mobahi and Soatto, recomputed by Caloric from the
corrected formulas. The authors' bitmaps and curves are not available; where an example had to be
found again, the search is described. All numbers of this page are in
<a href="results.json">results.json</a>.</p>"""
_EXAMPLE = ("example", "descriptor", "correct pairing", "wrong pairing", "verdict")
_SHARES = ("group", "descriptor", *(f"s = {s:g}" for s in table1.STRENGTHS))
_ALGORITHMS = ("algorithm", "how", "template", "rotation off by", "scale", "shift")
_ERRATA = ("number", "where", "printed", "correct", "shown by")


def _example_rows(title: str, e: table1.Example) -> str:
    lines = []
    for method, (right, wrong) in ((e.sift_method, e.sift), (e.heat_method, e.heat)):
        verdict = "right" if right < wrong else "wrong"
        style = "better" if right < wrong else "worse"
        lines.append(
            html.row(
                _EXAMPLE,
                [
                    f"{escape(title)}: “{e.first}”, “{e.second}”", method.label, f"{right:.2f}",
                    f"{wrong:.2f}", f'<span class="{style}">{verdict}</span>',
                ],
                2,
            )
        )  # fmt: skip
    return "".join(lines)


def _share_row(row: table1.Row) -> str:
    cells = []
    for i, share in enumerate(row.shares):
        extra = ""
        if row.against_sift is not None:
            d = row.against_sift[i]
            style = "better" if d.low > 0 else "worse" if d.high < 0 else ""
            extra = (
                f' <br><span class="{style}">{100 * d.mean:+.2f}</span> '
                f"<br><small>[{100 * d.low:+.2f}, {100 * d.high:+.2f}]</small>"
            )
        cells.append(f"{share.mean:.3f}{extra}")
    label = row.method.label + (", root" if row.compared == "root" else "")
    return html.row(_SHARES, [escape(row.group), label, *cells], 2)


def verdict(result: table1.Result) -> list[str]:
    """Return sentences that compare heat with SIFT, made from the numbers of the table."""
    lines = []
    for group in ("best", "equal blur"):
        row = next(
            r for r in result.rows
            if r.group == group and r.method.name == "heat" and r.compared == "l2"
        )  # fmt: skip
        pairs = list(zip(table1.STRENGTHS, row.against_sift or [], strict=True))
        wins = [f"{s:g}" for s, d in pairs if d.low > 0]
        losses = [f"{s:g}" for s, d in pairs if d.high < 0]
        ties = [f"{s:g}" for s, d in pairs if d.low <= 0 <= d.high]
        lines.append(
            f"{'Each at its best' if group == 'best' else 'At equal blur'}, heat is ahead of "
            f"SIFT at s = {', '.join(wins) or 'none'}, behind at {', '.join(losses) or 'none'}, "
            f"and not distinguishable at {', '.join(ties) or 'none'}."
        )
    return lines


def _maps_section(e: table1.Example) -> str:
    return f"""<h2>4. Response maps</h2>
<p>h(β, ·) over the whole patch, for the directions the paper prints: β = kπ/8, which is half of the
circle (erratum 15).</p>
{
        html.figure(
            "response_sift.png",
            "Grid of response maps of SIFT",
            f"<i>h</i><sub>SIFT</sub> ({e.sift_method.label}): each direction is blurred in place.",
        )
    }
{
        html.figure(
            "response_heat.png",
            "Grid of response maps of heat",
            f"<i>h</i><sub>heat</sub> ({e.heat_method.label}): the blur grows with the distance from the center and spreads with "
            "the direction, because a gradient that an affine change turns is also one that it moves.",
        )
    }"""


def _algorithms_section(three: side_by_side.SideBySide) -> str:
    rows = ""
    notes = (
        "all variables diffused, σ shrinking",
        f"exact diffusion in rotation and translation, one σ, {len(three.exact_scores)} candidates",
        "<i>h</i><sub>SIFT</sub> of the image warped by each candidate (Lemma 1)",
    )
    for outcome, note in zip(three.outcomes, notes, strict=True):
        turn, scale, shift = side_by_side.WHERE.error(outcome.where)
        chosen_template = side_by_side.TEMPLATES[outcome.template]
        errors = f"{turn:.1f}°", f"{scale:.1%}", f"{shift:.3f}"
        rows += html.row(_ALGORITHMS, [outcome.title, note, chosen_template, *errors], 3)
    truth, where = side_by_side.TEMPLATES[side_by_side.TRUTH], side_by_side.WHERE
    turn, scale, shift = where.error(side_by_side.NEAREST)
    agreement = float(np.corrcoef(three.exact_scores.ravel(), three.sift_scores.ravel())[0, 1])
    top = side_by_side.BOUNDS[3][1]
    at_border = sum(step.point[3] >= top - 1e-6 for step in three.path.steps)
    chosen = ", ".join(f"{c:.2f}" for c in three.path.point[:3])
    return f"""<h2>5. Three algorithms side by side</h2>
<p>The paper's Table 2, run: which of “{"”, “".join(side_by_side.TEMPLATES)}” is in the image, and
where? It is “{truth}”, turned by {degrees(where.alpha):.0f}°, {
        exp(where.s):.1f} times as large, and
shifted by ({where.b[0]:g}, {where.b[1]:g}). The candidates are what a detector might give: frames
elsewhere, and one at the letter, off by {turn:.0f}°, {scale:.0%} of scale and {shift:.3f}.</p>
{
        html.figure(
            "algorithms.png",
            "The image with each algorithm's template drawn on it, and the choice c over sigma",
            "Red: the template each algorithm chose, where it puts it. Algorithm 1 starts from the identity and "
            "is not given the candidates; the other two can only be as good as the best candidate.",
        )
    }
<div class="wide"><table>{html.head_row(_ALGORITHMS)}{rows}</table></div>
<p>Over all candidates and templates the scores of the exact diffusion and of SIFT correlate by
{agreement:.2f}: what Lemma 1 neglects changes the scores, but not who wins here.</p>
<p class="note">What the paper leaves open had to be decided. Templates are scaled to equal energy with
themselves; otherwise the one with less ink fits inside another as well as the right one. The search
has a window (scale at most {top:g} along the image's axes), at whose border the first {at_border}
steps end: an unnormalized dot product grows with scale while σ is large. The penalty on c has weight
{side_by_side.PENALTY:g} and is soft: at the end c is ({
        chosen
    }), with a clear largest entry but not 0
and 1. And σ ends at {
        side_by_side.SIGMAS[-1]:g}, not at 0, where the dot product of two Dirac densities
has no value; the error of scale that Algorithm 1 keeps is the diffusion's at that σ.</p>"""


def _errata_section(entries: tuple[errata.Erratum, ...]) -> str:
    rows = "".join(
        html.row(
            _ERRATA,
            [
                str(e.number),
                escape(e.location),
                *map(html.math, (e.printed, e.correct, e.evidence)),
            ],
        )
        for e in entries
    )
    return f"""<h2>6. Errata</h2>
<p>What is printed wrong, what is right, and the number that shows it, computed when this page was
made.</p><div class="wide errata"><table>{html.head_row(_ERRATA)}{rows}</table></div>"""
