"""The contenders of the speed benchmark, and their timing."""

import os

import pytest

from caloric.bench import speed_contenders
from caloric.bench.speed_contenders import Contender


def test_matches_are_the_same_as_those_of_faiss():
    pytest.importorskip("faiss")
    assert speed_contenders.match_overlap(1000) == 1


def test_times_are_relative_to_the_first_contender_of_a_task():
    calls = []
    contenders = [
        Contender("task", name, lambda name=name: calls.append(name)) for name in ("ours", "theirs")
    ]
    messages = []
    report = speed_contenders.rounds(contenders, 3, messages.append)
    assert calls == ["ours", "theirs"] * 4
    assert messages == ["warm-up", "round 1 of 3", "round 2 of 3", "round 3 of 3"]
    assert report["task"]["ours"]["ratio"] == 1
    assert report["task"]["theirs"]["ratio"] > 0


def test_environment_variables_are_restored(monkeypatch):
    monkeypatch.setenv("CALORIC_THREADS", "3")
    monkeypatch.delenv("CALORIC_NATIVE", raising=False)
    with speed_contenders.setting(CALORIC_THREADS="1", CALORIC_NATIVE="0"):
        assert (os.environ["CALORIC_THREADS"], os.environ["CALORIC_NATIVE"]) == ("1", "0")
    assert os.environ["CALORIC_THREADS"] == "3"
    assert "CALORIC_NATIVE" not in os.environ
