"""The constants of the alignment are consistent."""

from dataclasses import FrozenInstanceError

import pytest

from caloric.alignment.schedule import SCHEDULE


def test_sequences_of_sigmas_decrease_to_zero():
    sigmas = (*SCHEDULE.further_sigmas, *SCHEDULE.fine_sigmas)
    assert list(sigmas) == sorted(set(sigmas), reverse=True)
    assert sigmas[-1] == 0
    assert SCHEDULE.comparison_sigma in SCHEDULE.fine_sigmas
    starts = [begin for begin, _ in (*SCHEDULE.paths, *SCHEDULE.shift_paths)]
    assert max(starts) == SCHEDULE.given_start


def test_bounds_are_ordered():
    for low, high in (SCHEDULE.coarse_end_range, SCHEDULE.gain_range, SCHEDULE.detector_frames):
        assert 0 < low < high
    assert SCHEDULE.stalled_step < SCHEDULE.step_tolerance < SCHEDULE.converged_step
    assert SCHEDULE.inside_at_start < SCHEDULE.inside_at_end < 1
    assert 0 < SCHEDULE.reliable_confidence < SCHEDULE.high_confidence < 1
    assert SCHEDULE.damping.minimum < SCHEDULE.damping.start < SCHEDULE.damping.min_increased
    with pytest.raises(FrozenInstanceError):
        SCHEDULE.grid = 3
