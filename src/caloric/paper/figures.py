"""The figures of the paper, drawn from recomputed results."""

from pathlib import Path as FilePath
from typing import Any

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter

from caloric.descriptor.engine import response_map
from caloric.descriptor.recipes import Descriptor
from caloric.descriptor.sampling import SquarePatch
from caloric.kernels import kernel
from caloric.paper import side_by_side, table1
from caloric.paper.letters import render
from caloric.theory import toy
from caloric.theory.continuation import Path, Step
from caloric.types import FloatArray

BLUE, GREEN, RED, GRAY = "#1f5fa8", "#2e8b57", "#c0392b", "#888888"
SHOWN_SIGMAS = (0.8, 0.4, 0.2, 0.0)
PRINTED_BETAS = tuple(k * np.pi / 8 for k in range(8))


def _save(figure: Figure, path: FilePath) -> None:
    figure.savefig(path, dpi=110, facecolor="white")


def _grid(
    rows: int, columns: int, width: float, height: float, **options: Any
) -> tuple[Figure, Any]:
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def _bare(axes: Any) -> None:
    axes.set_xticks([])
    axes.set_yticks([])


def signals(path: FilePath) -> None:
    """Draw the signals of the toy example, before and after shifting f onto the first template."""
    x = np.linspace(-2, 2, 801)
    figure, (axes,) = _grid(1, 2, 10, 2.8, sharey=True)
    for panel, shift, title in ((axes[0], 0.0, "(a) θ = 0"), (axes[1], toy.SHIFT, "(b) θ = 0.25")):
        panel.axvspan(*toy.SUPPORT, color="#eeeeee", label="domain of comparison")
        panel.plot(x, toy.TEMPLATES[0](x), color=GREEN, lw=5, alpha=0.45, label="p₁")
        panel.plot(x, toy.TEMPLATES[1](x), color=RED, lw=2, label="p₂")
        panel.plot(x, toy.IMAGE(x - shift), color=BLUE, lw=1.6, label="f(x − θ)")
        panel.set_title(title)
        panel.set_xlabel("x")
    axes[0].legend(fontsize=8, loc="upper left")
    _save(figure, path)


def _landscape(sigma: float, side: int = 61) -> tuple[FloatArray, FloatArray, FloatArray]:
    c, theta = (np.linspace(*window, side) for window in toy.WINDOW)
    cost = np.array([[toy.cost(np.array([a, b]), sigma) for a in c] for b in theta])
    return c, theta, cost


def _contours(axes: Any, sigma: float) -> None:
    c, theta, cost = _landscape(sigma)
    low = cost.min()
    # Levels are dense at the bottom: the minima differ little compared with the range.
    levels = low + (cost.max() - low) * np.linspace(0, 1, 26) ** 3
    axes.contourf(c, theta, cost, levels, cmap="viridis")
    axes.contour(c, theta, cost, levels, colors="white", linewidths=0.3)
    axes.set_xlabel("c₁")


def landscape(path: FilePath, local: Step) -> None:
    """Draw the cost with its two minima, one of them current by plain descent from (0, 0)."""
    figure, ((axes,),) = _grid(1, 1, 6.5, 4)
    _contours(axes, 0.0)
    axes.set_ylabel("θ")
    axes.plot(*local.point, "o", color=RED, ms=9, mec="white", label="local: descent from (0, 0)")
    axes.plot(1, toy.SHIFT, "*", color="gold", ms=15, mec="black", label="global: (1, 0.25)")
    axes.legend(fontsize=9, loc="upper left")
    _save(figure, path)


def diffused_landscapes(path: FilePath, solution: Path) -> None:
    """Draw four of the diffused costs, each with the path of the minimizer so far."""
    figure, (row,) = _grid(1, 4, 13, 3.3, sharey=True)
    points = np.array([step.point for step in solution.steps])
    for axes, sigma in zip(row, SHOWN_SIGMAS, strict=True):
        _contours(axes, sigma)
        current = [step.sigma for step in solution.steps].index(sigma)
        axes.plot(*points[: current + 1].T, "-", color="white", lw=1.5)
        axes.plot(*points[: current + 1].T, ".", color="white", ms=6)
        axes.plot(*points[current], "o", color=RED, ms=9, mec="white")
        axes.set_title(f"σ = {sigma:g}")
    row[0].set_ylabel("θ")
    _save(figure, path)


def _rows(example: table1.Example) -> list[tuple[str, FloatArray]]:
    a, b = example.first, example.second
    return [
        (f"image 1, {a}", render(a)),
        (f"image 2, {a}", render(a, example.deformations[0])),
        (f"image 2, {b}", render(b, example.deformations[1])),
        (f"image 1, {b}", render(b)),
    ]


def letters(path: FilePath, example: table1.Example) -> None:
    """Draw the two patches of image 1 and the two of image 2."""
    rows = _rows(example)
    figure, (row,) = _grid(1, 4, 8, 2.3)
    for axes, number in zip(row, (0, 3, 1, 2), strict=True):
        axes.imshow(rows[number][1], cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        axes.set_title(rows[number][0])
        _bare(axes)
    _save(figure, path)


def responses(path: FilePath, example: table1.Example, method: table1.Method) -> None:
    """Draw h(β, ·) of the four patches for the directions that the paper prints."""
    recipe = Descriptor(kernel(method.name, **dict(method.parameters)))
    figure, grid = _grid(4, 9, 12, 5.6)
    for row, (label, patch) in zip(grid, _rows(example), strict=True):
        maps = response_map(patch, recipe, beta=PRINTED_BETAS, size=24)
        row[0].imshow(patch, cmap="gray", vmin=0, vmax=1, interpolation="nearest")
        row[0].set_ylabel(label, fontsize=9)
        _bare(row[0])
        for axes, values in zip(row[1:], maps, strict=True):
            axes.imshow(values, cmap="inferno", vmin=0, vmax=maps.max())
            _bare(axes)
    for k, axes in enumerate(grid[0, 1:]):
        axes.set_title("β = 0" if k == 0 else f"β = {k if k > 1 else ''}π/8", fontsize=9)
    _save(figure, path)


def statistics(path: FilePath, result: table1.Result) -> None:
    """Draw the error rate over the strength of the deformation, with confidence intervals."""
    groups = ("best", "equal blur")
    figure, (row,) = _grid(1, 2, 11, 4, sharey=True)
    colors = {"sift": GRAY, "dsp-inner": GREEN, "similarity": BLUE, "heat": RED}
    for axes, group in zip(row, groups, strict=True):
        for line in result.rows:
            if line.group != group or line.compared != "l2":
                continue
            mean = np.array([share.mean for share in line.shares])
            ends = np.array([[share.low, share.high] for share in line.shares]).T
            axes.errorbar(
                table1.STRENGTHS, 1 - mean, np.maximum([ends[1] - mean, mean - ends[0]], 0),
                color=colors[line.method.name], marker="o", capsize=3, label=line.method.label,
            )  # fmt: skip
        axes.set_yscale("log")
        axes.yaxis.set_major_locator(FixedLocator([0.001, 0.003, 0.01, 0.03, 0.1]))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:.1%}"))
        axes.set_xlabel("strength of the affine deformation")
        axes.set_title({"best": "best parameters of each", "equal blur": "equal blur"}[group])
        axes.legend(fontsize=9)
        axes.grid(alpha=0.3)
    row[0].set_ylabel("error rate")
    _save(figure, path)


def algorithms(path: FilePath, result: side_by_side.SideBySide) -> None:
    """Draw the template that each of the three algorithms selects, and the path of the first."""
    figure, (row,) = _grid(1, 4, 13, 3.5)
    view = SquarePatch(128).points()
    image = side_by_side.scene(view).reshape(128, 128)
    for axes, outcome in zip(row, result.outcomes, strict=False):
        axes.imshow(image, cmap="gray", extent=(-1, 1, 1, -1), vmin=-0.6)
        letter = side_by_side.TEMPLATES[outcome.template]
        template = render(letter, size=128)
        x, y = (view @ outcome.pose.matrix.T + np.array(outcome.pose.b)).T
        axes.contour(
            x.reshape(128, 128), y.reshape(128, 128), template, [0.5], colors=RED, linewidths=1.6
        )
        angle, scale, shift = side_by_side.POSE.error(outcome.pose)
        axes.set_title(
            f"{outcome.title}: “{letter}”\nerror {angle:.1f}°, {scale:.1%} in scale, {shift:.3f}",
            fontsize=9,
        )
        axes.set_xlim(-1, 1)
        axes.set_ylim(1, -1)
        _bare(axes)
    sigmas = [step.sigma for step in result.path.steps]
    choices = np.array([step.point[:3] for step in result.path.steps])
    for letter, choice, color in zip(
        side_by_side.TEMPLATES, choices.T, (GREEN, RED, BLUE), strict=True
    ):
        row[3].plot(sigmas, choice, "o-", color=color, label=f"c of “{letter}”")
    row[3].set_xscale("log")
    row[3].xaxis.set_major_locator(FixedLocator([0.05, 0.1, 0.2, 0.4]))
    row[3].xaxis.set_minor_locator(FixedLocator([]))
    row[3].xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    row[3].invert_xaxis()
    row[3].set_xlabel("σ (decreasing)")
    row[3].set_title("Algorithm 1: the choice c", fontsize=9)
    row[3].legend(fontsize=8)
    _save(figure, path)
