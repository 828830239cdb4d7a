import shutil
from pathlib import Path

import numpy as np
from sphinx_gallery.scrapers import figure_rst

import caloric
from caloric import demo, viz
from caloric.kernels import KERNELS
from caloric.paper import figures
from caloric.theory import toy

project = "Caloric"
author = "The Caloric developers"
copyright = "The Caloric developers"
version = release = caloric.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 2
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # ArrayLike would be expanded
exclude_patterns = ["_build", "_figures", "examples"]
html_theme = "furo"
html_static_path = ["static"]
html_css_files = ["page.css"]
html_search_scorer = str(Path(__file__).parent / "scorer.js")
html_title = "Caloric"
nitpicky = False
suppress_warnings = ["config.cache"]  # the gallery is configured by a function


def saved_images(block, block_vars, gallery_conf):
    """Show the images that a code block of an example has saved."""
    targets = []
    directory = Path(block_vars["src_file"]).parent
    for path in sorted([*directory.glob("*.png"), *directory.glob("*.jpg")]):
        targets.append(next(block_vars["image_path_iterator"]))
        shutil.move(path, targets[-1])
    return figure_rst(targets, gallery_conf["src_dir"])


sphinx_gallery_conf = {
    "examples_dirs": "examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py$",
    "within_subsection_order": "FileNameSortKey",
    "image_scrapers": ("matplotlib", saved_images),
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "show_signature": False,
    "write_computation_times": False,
    "remove_config_comments": True,
}


def escape_bars(app, what, name, obj, options, lines):
    """Escape bars outside literals: |x| is a norm in our docstrings, not a substitution."""
    literal = False
    for i, line in enumerate(lines):
        if literal and line.strip() and not line.startswith(" "):
            literal = False
        if not literal:
            parts = line.split("``")
            parts[::2] = [part.replace("|", r"\|") for part in parts[::2]]
            lines[i] = "``".join(parts)
        if line.endswith("::"):
            literal = True


def draw_figures(app):
    """Draw the figures that pages include from ``_figures``."""
    directory = Path(app.srcdir) / "_figures"
    directory.mkdir(exist_ok=True)
    figures.signals(directory / "signals.png")
    figures.diffused_landscapes(directory / "diffused.png", toy.solve())
    cat = demo.changed_view().original
    halves = np.split(demo.draw_kernels(cat), 2, axis=1)
    viz.Figure(np.concatenate(halves)).save(directory / "kernels.png")
    viz.draw_features(cat, caloric.extract(cat, max_features=150)).save(directory / "features.png")


def list_kernels(app):
    """Write the reference of all kernels, which kernels.md includes."""
    text = ""
    for name, cls in KERNELS.items():
        defaults = ", ".join(f"{key}={value}" for key, value in cls.defaults.items())
        text += f".. autoclass:: {cls.__module__}.{cls.__name__}\n\n"
        text += f'   The descriptor ``"{name}"`` has ``{defaults}``.\n\n'
    (Path(app.srcdir) / "_figures" / "kernels.rst").write_text(text, "utf-8")


def setup(app):
    app.connect("builder-inited", draw_figures)
    app.connect("builder-inited", list_kernels)
    app.connect("autodoc-process-docstring", escape_bars)
