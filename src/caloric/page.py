"""One self-contained HTML page of a match: the picture, the numbers, nothing from elsewhere."""

import base64
from html import escape

import cv2
import numpy as np
from numpy.typing import NDArray

from caloric.theory.gaussians import FloatArray

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; max-width: 80rem; margin: 2rem auto;
  padding: 0 1rem; }
img { max-width: 100%; height: auto; border: 1px solid #ddd; }
dl { display: grid; grid-template-columns: max-content auto; gap: .2rem 1rem; }
dt { color: #666; } dd { margin: 0; }
.bar { display: inline-block; width: 10rem; height: .8rem; border-radius: .2rem;
  background: linear-gradient(90deg, #1eaa50, #f0c828, #eb6e1e); vertical-align: middle; }
pre { background: #f6f6f6; padding: .6rem; overflow-x: auto; }
"""


def match_page(
    picture: NDArray[np.uint8],
    title: str,
    facts: dict[str, str],
    matrix: FloatArray | None,
) -> str:
    """The page as text."""
    done, data = cv2.imencode(".png", picture[..., ::-1])
    assert done
    image = base64.b64encode(data.tobytes()).decode()
    rows = "".join(f"<dt>{escape(k)}</dt><dd>{escape(v)}</dd>" for k, v in facts.items())
    numbers = "none found"
    if matrix is not None:
        numbers = "\n".join("  ".join(f"{value: .6g}" for value in row) for row in matrix)
    return f"""<!doctype html><html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{escape(title)}</title><style>{_STYLE}</style></head><body>
<h1>{escape(title)}</h1>
<img alt="{escape(title)}: lines between matched points" src="data:image/png;base64,{image}">
<p>Inliers, coloured by residual: 0 <span class="bar"></span> the threshold.</p>
<dl>{rows}</dl><p>The estimated matrix, first image to second:</p><pre>{escape(numbers)}</pre>
</body></html>
"""
