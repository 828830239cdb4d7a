"""The contenders of the speed benchmark, and their timing."""

import os

import pytest

import photographs
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


def test_kinds_of_the_core_search_the_same_neighbors():
    core = pytest.importorskip("caloric_native")
    contenders = speed_contenders.searching(photographs.gray("camera")[:256, :256], 300)
    names = [contender.name for contender in contenders]
    assert names[0].endswith(", float32 products")
    assert set(names) - set(core.kinds()) <= {
        "faiss, exact, both ways",
        *(f"{kind}, float32 products" for kind in core.kinds()),
    }
    for contender in contenders:
        contender.run()
    assert core.kind() == core.kinds()[0]


def test_environment_variables_are_restored(monkeypatch):
    monkeypatch.setenv("CALORIC_THREADS", "3")
    monkeypatch.delenv("CALORIC_NATIVE", raising=False)
    with speed_contenders.setting(CALORIC_THREADS="1", CALORIC_NATIVE="0"):
        assert (os.environ["CALORIC_THREADS"], os.environ["CALORIC_NATIVE"]) == ("1", "0")
    assert os.environ["CALORIC_THREADS"] == "3"
    assert "CALORIC_NATIVE" not in os.environ
