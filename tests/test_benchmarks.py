"""The benchmarks' own arithmetic, and their small forms on data made here."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import photographs
from caloric import Frames, InputError, cli, reading
from caloric.benchmarks import correspondence, fuzz, oxford


def test_average_precision_by_hand():
    distance = np.array([0.3, 0.1, 0.2, 0.4])
    right = np.array([True, True, False, False])
    # Ranked: right, wrong, right, wrong: precisions 1 and 2/3, of three that were possible.
    assert oxford.average_precision(distance, right, 3) == pytest.approx((1 + 2 / 3) / 3)
    assert oxford.average_precision(distance, right & False, 3) == 0
    assert oxford.average_precision(distance, right, 0) == 0


def test_score_of_perfect_and_of_useless_descriptors():
    rng = np.random.default_rng(0)
    a = rng.standard_normal((50, 16)).astype(np.float32)
    truth = np.column_stack([np.arange(50), np.arange(50)])
    assert oxford.score(a, a, truth) == (1.0, 1.0)
    assert oxford.score(a, rng.permutation(a), truth)[1] < 0.2


def test_overlap_of_discs():
    """Two discs of radius r at distance d: the known area of their lens."""
    r = correspondence.REGION * 2.0
    a = Frames.from_xysa([0.0], [0.0], [2.0])
    for d in (0.0, 2.0, 4.0, 5.5):
        b = Frames.from_xysa([d], [0.0], [2.0])
        lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
        expected = lens / (2 * np.pi * r**2 - lens)
        found = correspondence.corresponding(a, b, np.eye(3))
        assert len(found.overlap) == (expected > 0.5)
        if expected > 0.5:
            assert found.overlap[0] == pytest.approx(expected, abs=0.02)


def test_regions_follow_a_homography():
    H = np.array([[1.2, 0.3, 10], [-0.2, 0.9, 5], [2e-4, -1e-4, 1]])
    rng = np.random.default_rng(1)
    xy, h = rng.uniform(50, 300, (40, 2)), 1e-4
    numeric = np.stack(
        [
            (correspondence.project(H, xy + step) - correspondence.project(H, xy - step)) / (2 * h)
            for step in h * np.eye(2)
        ],
        -1,
    )
    np.testing.assert_allclose(correspondence.jacobians(H, xy), numeric, rtol=1e-6)
    a = Frames.from_xysa(xy[:, 0], xy[:, 1], 3.0)
    J = correspondence.jacobians(H, xy)
    moved = Frames(
        np.concatenate([J @ a.maps[:, :, :2], correspondence.project(H, xy)[..., None]], -1),
        a.scores,
    )
    found = correspondence.corresponding(a, moved, H, 0.9)
    assert correspondence.one_to_one(found) == 40
    same = found.indices[:, 0] == found.indices[:, 1]
    np.testing.assert_allclose(found.overlap[same], 1, atol=0.02)


def test_oxford_runs_on_a_folder_of_its_layout(tmp_path):
    folder = tmp_path / "graf"
    folder.mkdir()
    image = photographs.grey("camera", (256, 256))
    for k in range(1, 7):
        view = photographs.similarity(1 + 0.04 * (k - 1), 6 * (k - 1), (0, 0), (128, 128))
        cv2.imwrite(str(folder / f"img{k}.png"), photographs.warp(image, view))
        if k > 1:
            np.savetxt(folder / f"H1to{k}p", np.concatenate([view, [[0, 0, 1]]]))
    out = tmp_path / "report.json"
    result = CliRunner().invoke(
        cli.app,
        ["bench", "oxford", "--data", str(tmp_path), "--sequences", "graf", "--json", str(out)],
    )
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert set(report["descriptors"]) == {*oxford.PEERS, *oxford.OURS}
    for line in report["descriptors"].values():
        assert len(line["pairs"]) == 5
        assert line["mean"][0] > 0.5
    for line in report["pipelines"].values():
        assert line["repeatability"] > 0.5
        assert line["accurate"] == 1


def test_oxford_without_data_says_so(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        oxford.load(tmp_path, "graf")


def test_fuzz_a_small_share():
    report = fuzz.run(250, first=1_000_000)
    assert report.broken == []
    assert report.outcomes["error"] > 50
    assert report.outcomes["features"] > 10
    assert sum(report.outcomes.values()) == 250


def test_mutations_are_seeded_and_different():
    files = fuzz.originals()
    assert fuzz.mutated(files, 7) == fuzz.mutated(files, 7)
    assert len({fuzz.mutated(files, seed) for seed in range(50)}) > 45


def test_what_is_broken_was_whole_before():
    for data in fuzz.originals():
        assert min(reading.decode(data).shape[:2]) >= 120
