"""The schedule: sequences decrease, shares are shares."""

from dataclasses import FrozenInstanceError

import pytest

from caloric.alignment.schedule import SCHEDULE


def test_sequences_of_sigmas_decrease_to_zero():
    sigmas = (*SCHEDULE.further_sigmas, *SCHEDULE.fine_sigmas)
    assert list(sigmas) == sorted(set(sigmas), reverse=True)
    assert sigmas[-1] == 0
    assert SCHEDULE.compared_at in SCHEDULE.fine_sigmas
    starts = [begin for begin, _ in (*SCHEDULE.paths, *SCHEDULE.shift_paths)]
    assert max(starts) == SCHEDULE.given_start


def test_bounds_are_ordered():
    for low, high in (SCHEDULE.coarse_ends, SCHEDULE.gains, SCHEDULE.detected):
        assert 0 < low < high
    assert SCHEDULE.stuck < SCHEDULE.at_rest < SCHEDULE.nearly_at_rest
    assert SCHEDULE.inside_at_start < SCHEDULE.inside_at_end < 1
    assert 0 < SCHEDULE.believed < SCHEDULE.sure < 1
    assert SCHEDULE.damping.lowest < SCHEDULE.damping.start < SCHEDULE.damping.raised
    with pytest.raises(FrozenInstanceError):
        SCHEDULE.grid = 3
