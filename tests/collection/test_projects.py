"""``caloric refine``: keypoints of hloc and COLMAP projects are refined, all else is unchanged."""

import hashlib
from itertools import combinations

import cv2
import numpy as np
import pytest
from typer.testing import CliRunner

import colmap_project
import photographs
from caloric import cli
from caloric.collection import projects, store
from caloric.collection.image_cache import Views
from caloric.interop import colmap_command, colmap_tables

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)
h5py = pytest.importorskip("h5py")

MAPS = {
    f"day/view {i}.png": photographs.similarity(scale, degrees, (3.3 * i, -1.2 * i), (160, 160))
    for i, (scale, degrees) in enumerate(((1.0, 0), (0.93, 5), (1.06, -6)))
}


def run(*words):
    return CliRunner().invoke(cli.app, ["refine", *map(str, words)])


@pytest.fixture(scope="module")
def directory(tmp_path_factory):
    images = tmp_path_factory.mktemp("images")
    (images / "day").mkdir()
    whole = photographs.gray("astronaut", (320, 320))
    for name, moved in MAPS.items():
        cv2.imwrite(str(images / name), photographs.warp(whole, moved))
    return images


@pytest.fixture(scope="module")
def sift_matches(directory):
    """Keypoints and matches of OpenCV's SIFT, as another tool would have them."""
    sift = cv2.SIFT_create(400)
    features = {
        name: sift.detectAndCompute(cv2.imread(str(directory / name), cv2.IMREAD_GRAYSCALE), None)
        for name in MAPS
    }
    keypoints = {
        name: np.array([k.pt for k in kp], np.float32) for name, (kp, _) in features.items()
    }
    matches = {}
    for a, b in combinations(MAPS, 2):
        pairs = cv2.BFMatcher(crossCheck=True).match(features[a][1], features[b][1])
        pairs = np.array([(m.queryIdx, m.trainIdx) for m in pairs])
        p = photographs.apply(cv2.invertAffineTransform(MAPS[a]), keypoints[a][pairs[:, 0]])
        q = photographs.apply(cv2.invertAffineTransform(MAPS[b]), keypoints[b][pairs[:, 1]])
        matches[a, b] = pairs[np.linalg.norm(p - q, axis=1) < 3]
    return keypoints, matches


def median_error(keypoints, matches):
    """Return the median distance of matched keypoints, mapped to the original image."""
    errors = []
    for (a, b), pairs in matches.items():
        p, q = (
            photographs.apply(cv2.invertAffineTransform(MAPS[name]), keypoints[name][rows])
            for name, rows in zip((a, b), pairs.T, strict=True)
        )
        errors.append(np.linalg.norm(p - q, axis=1))
    return float(np.median(np.concatenate(errors)))


@pytest.fixture
def hloc(sift_matches, tmp_path):
    """Files as hloc writes them: float16 keypoints, pair names with dashes."""
    keypoints, matches = sift_matches
    features, pairs = tmp_path / "feats.h5", tmp_path / "matches.h5"
    with h5py.File(features, "w") as file:
        for name, xy in keypoints.items():
            group = file.create_group(name)
            group.create_dataset("keypoints", data=xy.astype(np.float16)).attrs["uncertainty"] = 1.5
            group["descriptors"] = np.zeros((4, len(xy)), np.float16)
    with h5py.File(pairs, "w") as file:
        for (a, b), rows in matches.items():
            group = file.create_group(f"{a.replace('/', '-')}/{b.replace('/', '-')}")
            nearest = np.full(len(keypoints[a]), -1, np.int16)
            nearest[rows[:, 0]] = rows[:, 1]
            group["matches0"] = nearest
            group["matching_scores0"] = (nearest >= 0).astype(np.float16)
    return features, pairs


@pytest.fixture
def database(sift_matches, tmp_path):
    """A COLMAP database."""
    path = tmp_path / "database.db"
    colmap_project.write(path, *sift_matches)
    return path


def test_keypoints_of_hloc_are_refined(hloc, directory, sift_matches, tmp_path):
    features, matches = hloc
    before = hashlib.sha256(features.read_bytes()).hexdigest()
    result = run(features, directory, "--matches", matches, "-o", tmp_path / "refined.h5")
    assert result.exit_code == 0, result.output
    assert "keypoints refined" in result.output
    assert hashlib.sha256(features.read_bytes()).hexdigest() == before
    refined = {}
    with h5py.File(tmp_path / "refined.h5", "r") as new, h5py.File(features, "r") as old:
        for name in MAPS:
            assert set(new[name]) == set(old[name])
            assert new[name]["keypoints"].attrs["uncertainty"] == 1.5
            assert new[name]["descriptors"].dtype == old[name]["descriptors"].dtype
            refined[name] = np.asarray(new[name]["keypoints"], np.float64)
            assert refined[name].shape == sift_matches[0][name].shape
            assert np.abs(refined[name] - sift_matches[0][name]).max() < 2.5 + 0.2
    assert median_error(refined, sift_matches[1]) < 0.4 * median_error(*sift_matches)


def test_keypoints_of_colmap_are_refined(database, directory, sift_matches, tmp_path):
    before = hashlib.sha256(database.read_bytes()).hexdigest()
    result = run(database, directory, "-o", tmp_path / "refined.db")
    assert result.exit_code == 0, result.output
    assert hashlib.sha256(database.read_bytes()).hexdigest() == before
    new, old = (projects.read_colmap(p, 2.5) for p in (tmp_path / "refined.db", database))
    xy = {name: maps[:, :, 2] for name, maps in new.maps.items()}
    assert median_error(xy, sift_matches[1]) < 0.4 * median_error(*sift_matches)
    for name, maps in old.maps.items():
        np.testing.assert_allclose(new.maps[name][:, :, :2], maps[:, :, :2])
    assert [p.matches.tolist() for p in new.pairs] == [p.matches.tolist() for p in old.pairs]


def test_refinement_reduces_the_reprojection_error_of_colmap(tmp_path):
    """Features, matches and mapper are COLMAP's; keypoints are refined before mapping."""
    if colmap_command.executable() is None:
        pytest.skip("no colmap executable on the PATH")
    (tmp_path / "views").mkdir()
    for i, view in enumerate(photographs.book(4)):
        cv2.imwrite(str(tmp_path / "views" / f"{i}.png"), view)
    paths = ("--database_path", tmp_path / "colmap.db")
    colmap_command.call(
        "feature_extractor", *paths, "--image_path", tmp_path / "views",
        *colmap_command.without_gpu("feature_extractor"),
    )  # fmt: skip
    colmap_command.call(
        "exhaustive_matcher", *paths, *colmap_command.without_gpu("exhaustive_matcher")
    )
    assert run(tmp_path / "colmap.db", tmp_path / "views", "-o", tmp_path / "new.db").exit_code == 0
    errors = []
    for name in ("colmap", "new"):
        (tmp_path / name).mkdir()
        (model,) = colmap_command.map_images(
            tmp_path / f"{name}.db", tmp_path / "views", tmp_path / name
        )
        assert len(model.images) == 4
        errors.append(model.error)
    assert errors[1] < 0.8 * errors[0]


def test_image_ids_are_decoded_from_a_pair_id():
    assert colmap_tables.images_of(3 * (2**31 - 1) + 7) == (3, 7)


def test_invalid_arguments_are_errors_before_the_work(hloc, database, directory, tmp_path):
    features, matches = hloc
    out, new = tmp_path / "out.h5", tmp_path / "new.db"
    cases = {
        "needs its matches": (features, directory, "-o", out),
        "contains its matches": (database, directory, "--matches", matches, "-o", out),
        "no such directory": (database, tmp_path / "none", "-o", new),
        "contains none of the images": (database, tmp_path, "-o", new),
        "sigma": (database, directory, "-o", new, "--sigma", 0),
        "would be overwritten": (database, directory, "-o", database),
        "none.db: no such file": (tmp_path / "none.db", directory, "-o", new),
        "are for models": (database, directory, "-o", new, "--no-adjust"),
        "is a model": (directory, directory, "-o", new, "--sigma", 3),
        "not a COLMAP database": (tmp_path / "junk.db", directory, "-o", new),
        "no such file": (tmp_path / "none.h5", directory, "--matches", matches, "-o", out),
        "not an HDF5": (tmp_path / "junk.h5", directory, "--matches", matches, "-o", out),
        "no keypoints": (matches, directory, "--matches", matches, "-o", out),
    }
    for name in ("junk.db", "junk.h5"):
        (tmp_path / name).write_bytes(b"neither of these" * 100)
    for message, words in cases.items():
        result = run(*words)
        assert result.exit_code != 0
        assert message in str(result.exception), (message, result.exception)
        assert not out.exists()
        assert not new.exists()


def test_keypoints_of_a_missing_image_are_not_moved(database, directory, sift_matches, tmp_path):
    (tmp_path / "day").mkdir()
    for name in list(MAPS)[:2]:
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    result = run(database, tmp_path, "-o", tmp_path / "refined.db")
    assert result.exit_code == 1
    assert "view 2.png" in result.output
    new = projects.read_colmap(tmp_path / "refined.db", 2.5)
    np.testing.assert_allclose(
        new.maps["day/view 2.png"][:, :, 2], sift_matches[0]["day/view 2.png"], atol=1e-4
    )


def test_a_path_may_have_characters_that_are_special_in_urls(sift_matches, directory, tmp_path):
    database = tmp_path / "50% #1?" / "a b.db"
    database.parent.mkdir()
    colmap_project.write(database, *sift_matches)
    before = sorted(tmp_path.iterdir())
    assert run(database, directory, "-o", database.with_name("new.db")).exit_code == 0
    assert sorted(tmp_path.iterdir()) == before


def test_files_of_another_type_are_errors(directory, hloc, tmp_path):
    features, matches = hloc
    assert "is it an hloc match file" in str(
        run(features, directory, "--matches", features, "-o", tmp_path / "x.h5").exception
    )
    result = run(features, directory, "--matches", matches, "-o", tmp_path / "new.db")
    assert "file type" in str(result.exception)


def test_an_image_may_have_no_keypoints(directory, hloc, tmp_path):
    features, matches = hloc
    with h5py.File(features, "r+") as file:
        file["empty.png/keypoints"] = np.zeros(0, np.float32)
    result = run(features, directory, "--matches", matches, "-o", tmp_path / "x.H5")
    assert result.exit_code == 0, result.exception


def test_an_interrupted_refinement_continues(database, directory, tmp_path, monkeypatch):
    monkeypatch.setattr(projects, "_BLOCK", 1)
    whole, new = tmp_path / "whole.db", tmp_path / "new.db"
    assert run(database, directory, "-o", whole).exit_code == 0
    calls, limit = [], 2
    original = Views.refined

    def interrupted(self, a, b, *maps):
        if len(calls) == limit:
            raise KeyboardInterrupt
        calls.append((a, b))
        return original(self, a, b, *maps)

    monkeypatch.setattr(Views, "refined", interrupted)
    assert run(database, directory, "-o", new).exit_code != 0
    assert [path.name for path in tmp_path.glob("new*")] == ["new.db.unfinished"]
    limit = 100
    assert run(database, directory, "-o", new).exit_code == 0
    assert len(calls) == len(set(calls))  # no pair was refined twice
    assert [path.name for path in tmp_path.glob("new*")] == ["new.db"]
    maps, expected = (projects.read_colmap(path, 2.5).maps for path in (new, whole))
    for name, values in expected.items():
        np.testing.assert_array_equal(maps[name], values)


@pytest.mark.parametrize("content", [None, b"no image"])
def test_other_images_are_refined_if_one_is_missing(
    content, database, directory, sift_matches, tmp_path
):
    (tmp_path / "day").mkdir()
    for name in list(MAPS)[1:]:  # the first one, a likely reference, is missing or damaged
        (tmp_path / name).write_bytes((directory / name).read_bytes())
    if content is not None:
        (tmp_path / "day/view 0.png").write_bytes(content)
    result = run(database, tmp_path, "-o", tmp_path / "refined.db")
    assert result.exit_code == 1
    assert "view 0.png" in result.output
    assert "view 1.png:" not in result.output
    new = projects.read_colmap(tmp_path / "refined.db", 2.5)
    xy = {name: maps[:, :, 2] for name, maps in new.maps.items()}
    rest = {pair: rows for pair, rows in sift_matches[1].items() if "day/view 0.png" not in pair}
    assert median_error(xy, rest) < 0.5 * median_error(sift_matches[0], rest)
