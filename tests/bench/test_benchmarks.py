"""The benchmarks' own arithmetic, and their small forms on data made here."""

import json

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import photographs
from caloric import Frames, InputError, cli
from caloric.bench import correspondence, datasets, evaluate, methods, metrics
from caloric.descriptor import recipes
from caloric.image import reading
from tools import claims, patches, training
from tools.__main__ import app as tools_app
from tools.drills import fuzz
from tools.pages import accuracy


def test_average_precision_by_hand():
    distance = np.array([0.3, 0.1, 0.2, 0.4])
    right = np.array([True, True, False, False])
    # Ranked: right, wrong, right, wrong: precisions 1 and 2/3, of three that were possible.
    assert metrics.average_precision(distance, right, 3) == pytest.approx((1 + 2 / 3) / 3)
    assert metrics.average_precision(distance, right & False, 3) == 0
    assert metrics.average_precision(distance, right, 0) == 0


def test_right_matches():
    truth = np.array([[0, 2], [0, 3], [2, 0]])
    right = metrics.right_matches(np.array([3, 0, 1]), truth)
    assert right.tolist() == [True, False, False]
    assert not metrics.right_matches(np.array([3, 0, 1]), np.zeros((0, 2), int)).any()


def test_bootstrap_covers_the_mean():
    """Of 95 % intervals of samples of 40, about 95 % hold the true mean."""
    rng = np.random.default_rng(0)
    found = [metrics.bootstrap(rng.normal(1, 2, 40)) for _ in range(200)]
    assert 0.89 < np.mean([i.low <= 1 <= i.high for i in found]) < 0.985
    assert metrics.bootstrap(np.full(9, 0.25)) == metrics.Interval(0.25, 0.25, 0.25)
    # Pairs of a scene that say the same thing count once.
    values, scenes = np.repeat(rng.normal(0, 1, 6), 20), [str(k // 20) for k in range(120)]
    alone, whole = metrics.bootstrap(values), metrics.bootstrap(values, scenes)
    assert whole.high - whole.low > 2 * (alone.high - alone.low)
    assert whole.mean == pytest.approx(alone.mean)


def test_corner_error_and_matching_accuracy():
    shifted = np.array([[1.0, 0, 3], [0, 1, 4], [0, 0, 1]])
    assert metrics.corner_error(shifted, np.eye(3), (100, 200)) == pytest.approx(5)
    assert metrics.corner_error(None, np.eye(3), (100, 200)) == np.inf
    p = np.array([[0.0, 0], [10, 10], [20, 20]])
    shares = metrics.matching_accuracy(
        p, p + np.array([[0.5, 0], [2, 0], [9, 0]]), np.eye(3), (1, 3, 5)
    )
    assert shares == pytest.approx([1 / 3, 2 / 3, 2 / 3])
    assert metrics.matching_accuracy(p[:0], p[:0], np.eye(3), (1, 3)) == [0, 0]


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


def test_nothing_corresponds_to_nothing():
    some = Frames.from_xysa([0.0, 9.0], [0.0, 3.0], [2.0, 1.0])
    for a, b in ((some, Frames.empty()), (Frames.empty(), some)):
        assert correspondence.one_to_one(correspondence.corresponding(a, b, np.eye(3))) == 0


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


def test_normalised_regions_forgive_small_frames():
    a = Frames.from_xysa([0.0], [0.0], [1.0])
    b = Frames.from_xysa([4.0], [0.0], [1.0])
    assert len(correspondence.corresponding(a, b, np.eye(3)).overlap) == 0
    r, d = 30.0, 4.0
    lens = 2 * r**2 * np.arccos(d / (2 * r)) - d / 2 * np.sqrt(4 * r**2 - d**2)
    found = correspondence.corresponding(a, b, np.eye(3), normalised=r)
    assert found.overlap[0] == pytest.approx(lens / (2 * np.pi * r**2 - lens), abs=0.02)


LAYOUTS = {
    "oxford": ("graf", "img{}", "H1to{}p"),
    "hpatches": ("v_graf", "{}", "H_1_{}"),
    "fischer": ("01_graf", "zoom{}", "H_zoom{}.txt"),
}


def write_scene(root, name, suffix=".png"):
    scene, image, matrix = LAYOUTS[name]
    folder = root / scene
    folder.mkdir()
    pixels = photographs.grey("camera", (200, 200))
    for k in range(1, 7):
        view = photographs.similarity(1 + 0.04 * (k - 1), 6 * (k - 1), (0, 0), (100, 100))
        first = name == "fischer" and k == 1
        path = folder / f"{'original' if first else image.format(k)}{suffix}"
        colour = cv2.cvtColor(photographs.warp(pixels, view), cv2.COLOR_GRAY2BGR)
        cv2.imwrite(str(path), colour)
        if k > 1:
            np.savetxt(folder / matrix.format(k), np.concatenate([view, [[0, 0, 1]]]))


@pytest.mark.parametrize("name", LAYOUTS)
def test_each_layout_is_read(name, tmp_path):
    write_scene(tmp_path, name, ".ppm")
    pairs = datasets.DATASETS[name](tmp_path)
    assert len(pairs) == 5
    assert all(p.first.exists() and p.second.exists() for p in pairs)
    group = {"oxford": "graf", "hpatches": "viewpoint", "fischer": "zoom"}[name]
    assert {p.group for p in pairs} == {group}


def test_images_without_keypoints_and_of_16_bits(tmp_path):
    write_scene(tmp_path, "oxford")
    for k in range(1, 7):
        pixels = np.full((80, 80), 100, np.uint8) if k % 2 else photographs.grey("camera", (80, 80))
        cv2.imwrite(str(tmp_path / "graf" / f"img{k}.png"), pixels.astype(np.uint16) * 257)
    some = [
        m for m in methods.fixed() + methods.pipelines() if "caloric" in m.name or "CV" in m.name
    ]
    for result in evaluate.evaluate(datasets.oxford(tmp_path), some):
        assert all(np.isfinite(values).all() for values in result.figures.values())


def test_a_benchmark_and_its_second_run(tmp_path, monkeypatch):
    data = tmp_path / "data"
    data.mkdir()
    write_scene(data, "oxford")
    out, plot, cache = data / "report.json", tmp_path / "plot.png", tmp_path / "cache"
    arguments = ["bench", "oxford", "--data", str(data), "--only", "graf"]
    arguments += ["--json", str(out), "--plot", str(plot), "--cache", str(cache)]
    result = CliRunner().invoke(cli.app, arguments)
    assert result.exit_code == 0, result.output
    report = json.loads(out.read_text())
    assert next(iter(report["same keypoints"])) == "caloric"
    assert {"OpenCV SIFT, root", methods.RESAMPLED, "heat"} <= set(report["same keypoints"])
    for method in report["same keypoints"].values():
        value = method["figures"]["mAP"]
        assert 0.5 < value["low"] <= value["mean"] <= value["high"] <= 1
        assert method["figures"]["corners 3"]["mean"] == 1
    for method in report["own detectors"].values():
        assert method["figures"]["repeatability"]["mean"] > 0.5
    assert "default ahead by" in result.output
    assert cv2.imread(str(plot)).std() > 10

    def never(*_):
        raise AssertionError("computed again")

    monkeypatch.setattr(evaluate._Images, "run", never)
    assert CliRunner().invoke(cli.app, arguments).exit_code == 0
    assert json.loads(out.read_text()) == report
    text = accuracy.page([out], None, None)
    assert (
        f"| caloric | 128 | {report['same keypoints']['caloric']['figures']['mAP']['mean']:.3f}"
        in text
    )
    assert "### Losses" in text
    out.write_text("{}")
    with pytest.raises(InputError, match="not results of this version"):
        accuracy.page([out], None, None)


def test_damaged_cache_is_made_again(tmp_path):
    store = evaluate.Cache(tmp_path)
    store.get("a", lambda: {"x": np.arange(3)})
    (file,) = tmp_path.iterdir()
    file.write_bytes(b"half")
    np.testing.assert_array_equal(store.get("a", lambda: {"x": np.arange(4)})["x"], np.arange(4))


def test_benchmarks_without_data_say_so(tmp_path):
    with pytest.raises(InputError, match="no such folder"):
        datasets.oxford(tmp_path / "none")
    with pytest.raises(InputError, match="is this the data set"):
        datasets.hpatches(tmp_path)
    write_scene(tmp_path, "oxford")
    (tmp_path / "graf" / "H1to3p").write_text("1 2 3")
    with pytest.raises(InputError, match="not a homography"):
        datasets.oxford(tmp_path)
    np.savetxt(tmp_path / "graf" / "H1to3p", np.ones((3, 3)))
    with pytest.raises(InputError, match="cannot be inverted"):
        datasets.oxford(tmp_path)
    (tmp_path / "graf" / "img2.png").unlink()
    with pytest.raises(InputError, match="no image img2"):
        datasets.oxford(tmp_path)


def write_strecha(folder):
    """A slanted plane at depth 4 seen by three cameras; image 0 is the photograph itself."""
    (folder / "images").mkdir(parents=True)
    k = np.array([[700.0, 0, 256], [0, 700, 256], [0, 0, 1]])
    image, cameras = photographs.grey("camera", (512, 512)), {}
    normal, depth = np.array([0.2, 0.1, 1.0]), 4.0
    for i in range(3):
        turn = cv2.Rodrigues(np.array([0.0, 0.06 * i, 0.02 * i]))[0]
        centre = np.array([0.3 * i, 0.05 * i, 0.0])
        moved = turn - np.outer(turn @ centre, normal) / depth
        view = k @ moved @ np.linalg.inv(k)
        cv2.imwrite(
            str(folder / "images" / f"{i}.png"), cv2.warpPerspective(image, view, (512, 512))
        )
        cameras[f"{i}.png"] = {
            "K": k.tolist(), "R_world_to_cam": turn.tolist(), "centre": centre.tolist()
        }  # fmt: skip
    (folder / "cameras.json").write_text(json.dumps(cameras))


def test_a_scene_with_cameras(tmp_path):
    write_strecha(tmp_path / "plane")
    scene = training.Scene(tmp_path / "plane", 300)
    recipe = recipes.descriptor("caloric-unlearned")
    values = [training.plain(view, recipe) for view in scene.views]
    right = scene.score(values)
    rng = np.random.default_rng(0)
    assert right > 0.35
    assert scene.score([rng.permutation(v) for v in values]) < 0.1 * right
    with pytest.raises(InputError, match=r"no cameras\.json"):
        training.Scene(tmp_path)


def test_claims_in_their_small_form(tmp_path, monkeypatch):
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
    turn = photographs.similarity(1.3, 25, (0, 0), (0, 0))[:, :2]
    moved = claims.follow(frames, turn, np.array([15.0, 15]))
    np.testing.assert_allclose(moved.maps[:, :, :2], turn @ frames.maps[:, :, :2], atol=1e-12)


def test_patches_of_hpatches(tmp_path):
    rng = np.random.default_rng(0)
    for scene in ("i_a", "v_b"):
        folder = tmp_path / scene
        folder.mkdir()
        base = [cv2.GaussianBlur(rng.random((65, 65)), (0, 0), 3) for _ in range(12)]
        base = np.concatenate([(b - b.min()) / (b.max() - b.min()) for b in base])
        for name in ("ref", *(f"{letter}{k}" for letter in "eht" for k in range(1, 6))):
            noise = 0 if name == "ref" else {"e": 0.02, "h": 0.1, "t": 0.4}[name[0]]
            column = np.clip(base + noise * rng.standard_normal(base.shape), 0, 1)
            cv2.imwrite(str(folder / f"{name}.png"), np.rint(255 * column).astype(np.uint8))
    lines = {line.method: line.figures for line in patches.run(tmp_path, 100)}
    for figures in lines.values():
        for task in ("verification", "matching", "retrieval"):
            assert figures[f"{task} easy"].mean > 0.9
            assert figures[f"{task} easy"].mean >= figures[f"{task} tough"].mean > 0.1
    out = tmp_path / "patches.json"
    result = CliRunner().invoke(
        tools_app, ["patches", "--data", str(tmp_path), "--json", str(out), "--most", "5"]
    )
    assert result.exit_code == 0, result.output
    assert "verification easy" in result.output
    methods_found = json.loads(out.read_text())["methods"]
    assert {"caloric", "OpenCV SIFT, root", "heat"} <= set(methods_found)
    assert methods_found["caloric"]["matching hard"]["default ahead by"]["mean"] == 0
    same = np.zeros((3, 4))
    assert patches._verification(same, [same], same, rng) < 0.5
    assert patches._retrieval(same, [same], np.zeros((50, 4))) < 0.1
    with pytest.raises(InputError, match="at least 2 places"):
        patches.load(tmp_path, 0)
    with pytest.raises(InputError, match="is this HPatches' patches"):
        patches.load(tmp_path / "i_a", 10)


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
