"""Progress of long computations, and their cancellation."""

import threading

import numpy as np
import pytest

import caloric
from caloric.runtime import progress, threads


def test_observers_receive_steps_on_all_threads(monkeypatch):
    monkeypatch.setenv(threads.SETTING, "3")
    progress.report("nobody observes")
    received = []
    with progress.observed(lambda step: received.append((step, threading.get_ident()))):
        threads.each(progress.report, [f"step {i}" for i in range(40)])
        with progress.observed(None):
            progress.report("hidden")
    progress.report("nobody observes")
    assert sorted({step for step, _ in received} - {""}) == sorted(f"step {i}" for i in range(40))
    assert sum(step == "" for step, _ in received) == 40  # a check before each


@pytest.mark.parametrize("count", ["1", "3"])
def test_a_cancelled_loop_stops_and_the_pool_stays_usable(monkeypatch, count):
    monkeypatch.setenv(threads.SETTING, count)
    done = []

    def cancel(step):
        if len(done) >= 5:
            raise progress.CancellationError

    with progress.observed(cancel), pytest.raises(progress.CancellationError):
        threads.each(done.append, range(1000))
    assert 5 <= len(done) < 20
    assert threads.each(str, range(10)) == [str(i) for i in range(10)]


def steps_of(work):
    """The steps that a computation reports, in order, and the number of checks."""
    received = []
    with progress.observed(received.append):
        work()
    return [step for step in received if step], received.count("")


def test_matching_reports_every_level_of_views(monkeypatch):
    monkeypatch.setattr("caloric.image_pair._MIN_SUPPORT", {})  # all levels are tried
    rng = np.random.default_rng(0)
    a, b = rng.random((2, 150, 200))
    steps, checks = steps_of(lambda: caloric.match_images(a, b, max_features=200))
    assert steps == [
        "extracting features", "comparing descriptors",
        *(f"simulated views, tilt {tilt}" for tilt in (2, 4, 8)),
    ]  # fmt: skip
    assert checks > 50
    steps, _ = steps_of(lambda: caloric.match_images(a, a, max_features=200, views=2))
    assert steps[0] == "simulated views up to tilt 2"


def test_cancelling_stops_at_the_next_step():
    a, b = np.random.default_rng(1).random((2, 150, 200))
    reported = []

    def cancel(step):
        if step:
            reported.append(step)
        if reported[-1:] == ["simulated views, tilt 2"]:
            raise progress.CancellationError

    with progress.observed(cancel), pytest.raises(progress.CancellationError):
        caloric.match_images(a, b, max_features=200)
    assert "simulated views, tilt 4" not in reported


def test_an_alignment_reports_its_steps_and_can_be_cancelled():
    a, b = np.random.default_rng(2).random((2, 120, 160))
    steps, checks = steps_of(lambda: caloric.align(a[:64, :64], b))
    assert steps == [
        "searching the whole image", "refining the position", "trying other starting points",
    ]  # fmt: skip
    assert checks > 20
    remaining = iter(range(20))

    def cancel(step):
        if next(remaining, None) is None:
            raise progress.CancellationError

    with progress.observed(cancel), pytest.raises(progress.CancellationError):
        caloric.align(a[:64, :64], b)


def test_results_do_not_depend_on_an_observer():
    image = np.random.default_rng(3).random((120, 160))
    expected = caloric.match_images(image, image[5:, 7:])
    with progress.observed(lambda step: None):
        observed = caloric.match_images(image, image[5:, 7:])
    np.testing.assert_array_equal(observed.points_b, expected.points_b)
