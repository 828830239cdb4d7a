"""Indexing of results that hold several arrays of the same length."""

from typing import Any

import numpy as np


def rows(index: Any, count: int) -> Any:
    """Return an index of arrays of ``count`` rows that keeps their number of axes.

    Slices, masks and lists are returned unchanged; a whole number becomes a list of one.
    """
    return [range(count)[index]] if isinstance(index, int | np.integer) else index
