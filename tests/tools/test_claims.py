"""``python -m tools claims`` on one image."""

import numpy as np

import photographs
from caloric import Frames
from tools import claims


def test_the_results_on_one_image_are_plausible(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "STRENGTHS", (0.0, 0.5))
    for name, small in {"DRAWS": 1, "_REPEATS": 2, "_FRAMES": 120}.items():
        monkeypatch.setattr(claims, name, small)
    results = claims.run(max_images=1)
    assert results.accuracy["sift"][0]["mAP"] > 0.95
    for values in results.accuracy.values():
        assert values[0]["mAP"] >= values[1]["mAP"] > 0.1
    assert results.cost["sift"] == {"median": 1, "least": 1, "most": 1}
    assert results.cost["DSP-SIFT by resampling"]["median"] > 3
    assert set(results.lead) == set(results.accuracy) - {"heat"}


def test_frames_are_moved_exactly_by_a_similarity():
    frames = Frames.from_xysa([10.0, 30], [20.0, 5], [2.0, 3], [0.3, -1])
    rotation = photographs.similarity(1.3, 25, (0, 0), (0, 0))[:, :2]
    moved = claims.move_by_similarity(frames, rotation, np.array([15.0, 15]))
    np.testing.assert_allclose(moved.maps[:, :, :2], rotation @ frames.maps[:, :, :2], atol=1e-12)
