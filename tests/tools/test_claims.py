"""The claims of the paper, on little data."""

import numpy as np

import photographs
from caloric import Frames
from tools import claims


def test_claims_on_little_data(tmp_path, monkeypatch):
    monkeypatch.setattr(claims, "STRENGTHS", (0.0, 0.5))
    for name, small in {"DRAWS": 1, "_REPEATS": 2, "_FRAMES": 120}.items():
        monkeypatch.setattr(claims, name, small)
    found = claims.run(pictures=1)
    assert found.accuracy["sift"][0]["mAP"] > 0.95
    for values in found.accuracy.values():
        assert values[0]["mAP"] >= values[1]["mAP"] > 0.1
    assert found.cost["sift"] == {"median": 1, "least": 1, "most": 1}
    assert found.cost["DSP-SIFT by resampling"]["median"] > 3
    assert set(found.lead) == set(found.accuracy) - {"heat"}


def test_frames_follow_a_similarity_exactly():
    frames = Frames.from_xysa([10.0, 30], [20.0, 5], [2.0, 3], [0.3, -1])
    rotation = photographs.similarity(1.3, 25, (0, 0), (0, 0))[:, :2]
    moved = claims.follow(frames, rotation, np.array([15.0, 15]))
    np.testing.assert_allclose(moved.maps[:, :, :2], rotation @ frames.maps[:, :, :2], atol=1e-12)
