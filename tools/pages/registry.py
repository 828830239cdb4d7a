"""All generated pages, and the plots in them."""

from collections.abc import Callable
from pathlib import Path

from caloric import demo
from caloric.bench import report, speed_report
from tools.pages import (
    accuracy,
    alignment,
    collections,
    errata,
    geometry,
    gpu,
    pairs,
    platforms,
    propagation,
    speed,
    wide,
)
from tools.pages.markdown import RESULTS, results

PAGES: dict[str, Callable[[], str]] = {
    "accuracy.md": lambda: accuracy.page(
        [RESULTS / "oxford.json"], RESULTS / "claims.json", RESULTS / "ablation.json"
    ),
    "align.md": lambda: alignment.page(results("align")),
    "errata.md": errata.page,
    "gpu.md": lambda: gpu.page(results("gpu")),
    "pairs.md": pairs.page,
    "platforms.md": platforms.page,
    "scale.md": lambda: collections.page(results("scale")),
    "speed.md": lambda: speed.page(results("speed"), results("neighbors")),
    "wide.md": lambda: wide.page(
        wide.unpacked(results("wide")), results("geometry"), results("parts")
    ),
}


def draw(directory: Path) -> None:
    """Draw the plots of the pages and the image of the README into a directory."""
    report.plot(results("oxford"), directory / accuracy.plot_name("oxford"))
    pairs.draw(directory / "pairs.png")
    geometry.draw(results("geometry"), directory / geometry.PLOT)
    propagation.draw(directory / propagation.PLOT)
    propagation.draw_failures(directory / propagation.FAILURES)
    speed_report.plot(results("speed"), directory / "speed.png")
    demo.compare_oblique(demo.oblique_view())[1].save(directory / "first.jpg")
