"""Durations of steps."""

import pytest

from caloric.collection.reporter import Times


def failing():
    raise RuntimeError("killed")


def test_durations_of_interrupted_runs_are_added(tmp_path):
    shards, file = ["a"], tmp_path / "unfinished.json"
    first = Times({"extract": 50.0}, lambda: shards, file)
    with pytest.raises(RuntimeError, match="killed"):
        first.resumed("extract", failing)()
    file.write_text('{"extract": 7.0}', "utf-8")
    second = Times({"extract": 50.0}, lambda: shards, file)
    second.resumed("extract", lambda: None)()
    assert second.seconds["extract"] == pytest.approx(7, abs=1)
    second.finish()
    assert not file.exists()
    third = Times({"extract": 50.0, "export": 3.0}, lambda: shards, file)
    third.resumed("extract", lambda: None)()
    third.keep()
    assert third.seconds == {"extract": 50.0, "export": 3.0}


@pytest.mark.parametrize("content", ["", "[1]", '{"extract": null}'])
def test_a_damaged_file_counts_as_none(tmp_path, content):
    file = tmp_path / "unfinished.json"
    file.write_text(content, "utf-8")
    times = Times({}, lambda: ["a"], file)
    times("extract", lambda: None)()
    assert times.seconds["extract"] < 1


def test_nothing_is_written_to_a_store_without_results(tmp_path):
    times = Times({}, list, tmp_path / "unfinished.json")
    times("extract", lambda: None)()
    assert list(tmp_path.iterdir()) == []


def test_the_error_of_a_step_counts_if_durations_cannot_be_written(tmp_path):
    times = Times({}, lambda: ["a"], tmp_path / "missing" / "unfinished.json")
    with pytest.raises(RuntimeError, match="killed"):
        times("extract", failing)()
