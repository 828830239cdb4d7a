import numpy as np
import pytest

import caloric


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: caloric.Grid(cells=0), "cells must be a positive integer"),
        (lambda: caloric.Grid(cells=2.5), "cells must be a positive integer"),
        (lambda: caloric.Grid(directions=0), "directions must be a positive integer"),
        (lambda: caloric.Grid(extent=0.0), "extent must be a positive number"),
        (lambda: caloric.Grid(extent=np.nan), "extent must be a positive number"),
        (lambda: caloric.Grid(average="never"), "average must be True, False or 'auto'"),
        (lambda: caloric.Rings(radii=()), "radii must be distinct numbers"),
        (lambda: caloric.Rings(radii=0.3), "radii must be numbers"),
        (lambda: caloric.Rings(radii=(0.2, 0.4, 0.2)), "radii must be distinct"),
        (lambda: caloric.Rings(radii=(np.nan,)), "radii must be distinct numbers"),
        (lambda: caloric.Rings(angles=0), "angles must be a positive integer"),
        (lambda: caloric.Rings(angles=(4, 4)), "4 radii but 2 values in angles"),
    ],
)
def test_invalid_layouts_are_errors(make, message):
    with pytest.raises(caloric.InputError, match=message):
        make()


def test_radii_and_angles_may_be_lists():
    assert caloric.Rings(radii=[0, 0.3], angles=[1, 6]).dimension == 56
