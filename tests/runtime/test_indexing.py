"""The first rows of cells are those of NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.runtime.indexing import first_of_cells


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10_000), count=st.integers(0, 200), columns=st.integers(1, 4),
    spread=st.sampled_from([0, 3, 1000, 2**31, 2**62]), offset=st.sampled_from([0, -(2**61)]),
)  # fmt: skip
def test_the_first_row_of_each_cell(seed, count, columns, spread, offset):
    rng = np.random.default_rng(seed)
    cells = offset + rng.integers(-spread // 2, spread // 2 + 1, (count, columns))
    cells[count // 2 :] = cells[: count - count // 2][::-1]  # some rows occur again
    expected = np.sort(np.unique(cells, axis=0, return_index=True)[1])
    np.testing.assert_array_equal(first_of_cells(cells), expected)


@pytest.mark.parametrize("columns", [1, 2])
def test_no_cells(columns):
    assert first_of_cells(np.zeros((0, columns), np.int64)).tolist() == []
