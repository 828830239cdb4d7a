"""``python -m tools patches``."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

from caloric import InputError
from tools import patches
from tools.__main__ import app as tools_app


def test_scores_fall_with_noise_and_bad_input_is_reported(tmp_path):
    rng = np.random.default_rng(0)
    for scene in ("i_a", "v_b"):
        directory = tmp_path / scene
        directory.mkdir()
        base = [cv2.GaussianBlur(rng.random((65, 65)), (0, 0), 3) for _ in range(12)]
        base = np.concatenate([(b - b.min()) / (b.max() - b.min()) for b in base])
        for name in ("ref", *(f"{letter}{k}" for letter in "eht" for k in range(1, 6))):
            noise = 0 if name == "ref" else {"e": 0.02, "h": 0.1, "t": 0.4}[name[0]]
            column = np.clip(base + noise * rng.standard_normal(base.shape), 0, 1)
            cv2.imwrite(str(directory / f"{name}.png"), np.rint(255 * column).astype(np.uint8))
    lines = {line.method: line.scores for line in patches.run(tmp_path, 100)}
    for scores in lines.values():
        for task in ("verification", "matching", "retrieval"):
            assert scores[f"{task} easy"].mean > 0.9
            assert scores[f"{task} easy"].mean >= scores[f"{task} tough"].mean > 0.1
    out = tmp_path / "patches.json"
    result = CliRunner().invoke(
        tools_app, ["patches", "--data", str(tmp_path), "--json", str(out), "--max-patches", "5"]
    )
    assert result.exit_code == 0, result.output
    assert "verification easy" in result.output
    methods = json.loads(out.read_text())["methods"]
    assert {"caloric", "OpenCV SIFT, root", "heat"} <= set(methods)
    assert methods["caloric"]["matching hard"]["lead of the default"]["mean"] == 0
    same = np.zeros((3, 4))
    assert patches._verification(same, [same], same, rng) < 0.5
    assert patches._retrieval(same, [same], np.zeros((50, 4))) < 0.1
    with pytest.raises(InputError, match="must be at least 2"):
        patches.load(tmp_path, 0)
    with pytest.raises(InputError, match="are these the patches of HPatches"):
        patches.load(tmp_path / "i_a", 10)
