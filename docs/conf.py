import caloric

project = "Caloric"
author = "The Caloric developers"
copyright = "The Caloric developers"
version = release = caloric.__version__
extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.viewcode",
    "sphinx-mathjax-offline",
]
myst_enable_extensions = ["dollarmath"]
autodoc_member_order = "bysource"
autodoc_typehints = "none"  # ArrayLike spelt out is unreadable
exclude_patterns = ["_build"]
html_theme = "furo"
html_title = "Caloric"
nitpicky = False


def escape_bars(app, what, name, obj, options, lines):
    """|x| is a length in our docstrings, not a substitution; literal blocks stay as they are."""
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


def setup(app):
    app.connect("autodoc-process-docstring", escape_bars)
