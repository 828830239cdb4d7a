"""The evaluation of methods on pairs, and its cache."""

import cv2
import numpy as np

import photographs
from caloric.bench import datasets, evaluate, methods
from homography_scenes import write_scene


def test_images_of_16_bits_and_without_keypoints_have_finite_metrics(tmp_path):
    write_scene(tmp_path, "oxford")
    for k in range(1, 7):
        pixels = np.full((80, 80), 100, np.uint8) if k % 2 else photographs.gray("camera", (80, 80))
        cv2.imwrite(str(tmp_path / "graf" / f"img{k}.png"), pixels.astype(np.uint16) * 257)
    chosen = [
        m for m in methods.fixed() + methods.pipelines() if "caloric" in m.name or "CV" in m.name
    ]
    for result in evaluate.evaluate(datasets.oxford(tmp_path), chosen):
        assert all(np.isfinite(values).all() for values in result.metrics.values())


def test_a_damaged_cache_entry_is_recomputed(tmp_path):
    store = evaluate.Cache(tmp_path)
    store.get("a", lambda: {"x": np.arange(3)})
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"half")
    np.testing.assert_array_equal(store.get("a", lambda: {"x": np.arange(4)})["x"], np.arange(4))
