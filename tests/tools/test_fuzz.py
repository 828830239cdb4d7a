"""``python -m tools fuzz`` on a few damaged files."""

from caloric.image import reading
from tools.drills import fuzz


def test_damaged_files_yield_features_or_an_error():
    report = fuzz.run(250, first=1_000_000)
    assert report.broken == []
    assert report.outcomes["error"] > 50
    assert report.outcomes["features"] > 10
    assert sum(report.outcomes.values()) == 250


def test_mutations_depend_only_on_the_seed():
    files = fuzz.originals()
    assert fuzz.mutated(files, 7) == fuzz.mutated(files, 7)
    assert len({fuzz.mutated(files, seed) for seed in range(50)}) > 45


def test_original_files_are_valid():
    for data in fuzz.originals():
        assert min(reading.decode(data).shape[:2]) >= 120
