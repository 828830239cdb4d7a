"""Rows are selected as by NumPy, and the first rows of cells are those of NumPy."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.runtime import indexing
from caloric.runtime.indexing import first_of_cells, select


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
    np.testing.assert_array_equal(indexing._by_sorting(cells), expected)


@pytest.mark.parametrize("columns", [1, 2])
def test_no_cells(columns):
    for first in (first_of_cells, indexing._by_sorting):
        assert first(np.zeros((0, columns), np.int64)).tolist() == []


@pytest.mark.parametrize(
    "index",
    [
        np.array([True, False, True, True]), np.array([3, -1, 0, 0]), np.array([], np.intp),
        np.array([1], np.uint8), slice(1, 3), [0, 2], np.array([[1, 2]]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(4,), (4, 3), (4, 2, 3)])
def test_selected_rows_are_those_of_numpy(index, shape):
    values = np.arange(np.prod(shape)).reshape(shape)
    np.testing.assert_array_equal(select(values, index), values[index])


@pytest.mark.parametrize("index", [np.array([4]), np.array([-5]), np.array([True, False])])
def test_rows_that_do_not_exist_are_an_error(index):
    with pytest.raises(IndexError):
        select(np.zeros((4, 2)), index)
