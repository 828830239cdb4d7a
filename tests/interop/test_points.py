"""Matched points from files."""

import numpy as np

from caloric.interop import points

# Other files, valid and not, are tested with the command: tests/cli/test_geometry.py.


def test_a_header_gives_the_order_of_the_columns(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("x_b,y_b,x_a,y_a\n5,6,1,2\n7,8,3,4\n")
    a, b = points.read(path)
    np.testing.assert_array_equal(a, [[1, 2], [3, 4]])
    np.testing.assert_array_equal(b, [[5, 6], [7, 8]])


def test_other_headers_are_ignored(tmp_path):
    path = tmp_path / "m.csv"
    path.write_text("left x, left y, right x, right y\n1,2,5,6\n")
    a, b = points.read(path)
    np.testing.assert_array_equal(a, [[1, 2]])
    np.testing.assert_array_equal(b, [[5, 6]])
