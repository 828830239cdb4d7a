"""``caloric bench pairs``: its metrics, and the command on a small data set."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.bench import pair_data, pairs
from caloric.interop import hdf5


def test_the_pose_error_is_small_for_exact_points():
    rng = np.random.default_rng(1)
    k = np.array([[500.0, 0, 320], [0, 510, 240], [0, 0, 1]])
    rotation = cv2.Rodrigues(np.array([0.02, 0.2, -0.05]))[0]
    a = pair_data.Camera(k, np.eye(3), np.zeros(3))
    b = pair_data.Camera(k, rotation, np.array([0.8, 0.1, 0.05]))
    world = rng.uniform((-2, -2, 4), (2, 2, 9), (80, 3))

    def project(camera):
        z = (world - camera.center) @ camera.rotation.T @ k.T
        return z[:, :2] / z[:, 2:]

    pair = pair_data.Pair("x", "x", None, None, ("", ""), (a, b))
    p, q = project(a), project(b)
    assert pairs.pose_error(pair, p, q, 1.0) < 0.1
    noisy = q + rng.normal(0, 3, q.shape)
    assert pairs.pose_error(pair, p, noisy, 1.0) > 0.5
    assert pairs.pose_error(pair, p[:3], q[:3], 1.0) == float("inf")


def test_repeatability_auc_and_distinct_positions():
    rng = np.random.default_rng(0)
    a = rng.uniform(0, 100, (300, 2))
    shape = ((101, 101), (101, 101))
    assert pairs.repeatability(a, a + 0.5, np.eye(3), shape)[0] > 0.9
    assert pairs.repeatability(a, a + np.array([2.5, 0]), np.eye(3), shape)[0] < 0.3
    assert pairs.repeatability(a[:0], a, np.eye(3), shape) == [0, 0, 0]
    assert pairs.auc(np.array([0.0, 2.5, np.inf]), 5.0) == pytest.approx(0.5)
    twice = np.repeat(a[:10], 2, 0)
    assert len(pairs.one_per_position(twice)) == 10


@pytest.mark.slow
def test_the_command_compares_all_contenders(tmp_path):
    photographs.oxford_scene(tmp_path)
    features = {
        f"wall/img{k}.png": caloric.extract(
            caloric.read_image(tmp_path / "wall" / f"img{k}.png"), max_features=300
        )
        for k in range(1, 7)
    }
    peer, out = tmp_path / "peer.h5", tmp_path / "out.json"
    hdf5.write(peer, features.items())
    arguments = ["bench", "pairs", "--data", tmp_path, "--max-features", 300, "--json", out]
    result = CliRunner().invoke(cli.app, [str(a) for a in [*arguments, "--features", peer]])
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert {"caloric", "caloric, affine", "caloric, not refined", "OpenCV RootSIFT", "peer"} <= set(
        report["contenders"]
    )
    ours, theirs = (report["contenders"][name] for name in ("caloric", "peer"))
    assert ours["right"]["mean"] > 60
    assert ours["AUC 5 px"]["mean"] > 0.7
    # peer.h5 has the same features as Caloric.
    assert theirs["right"]["mean"] == pytest.approx(ours["right"]["mean"], rel=0.05)
    assert "repeatability 3 px" in result.output
