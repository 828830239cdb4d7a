"""Collections: the store, its steps, killed runs, and COLMAP reading what we write."""

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, features
from typer.testing import CliRunner

import caloric
import photographs
from caloric import cli
from caloric.collection import (
    engines,
    exporting,
    extraction,
    index,
    matching,
    pairing,
    retrieval,
    sources,
    store,
)
from caloric.interop import colmap, colmap_command, conversion
from tools import models
from tools.drills import kills

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)

SETTINGS = extraction.Settings(max_features=120)
HERE = engines.InProcess()


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """Two scenes of three views each, in folders, with names that are not plain."""
    folder = tmp_path_factory.mktemp("photos")
    for name, place in (("astronaut", "eins"), ("coffee", "zwei und drei")):
        (folder / place).mkdir()
        whole = photographs.grey(name, (200, 220))
        for i, degrees in enumerate((0, 6, 12)):
            moved = photographs.similarity(1.0, degrees, (2 * i, i), (100, 110))
            cv2.imwrite(str(folder / place / f"bild ä {i}.png"), photographs.warp(whole, moved))
    return folder


@pytest.fixture
def folder(originals, tmp_path):
    target = tmp_path / "photos"
    subprocess.run(["cp", "-r", str(originals), str(target)], check=True)
    return target


content = kills.content


def extract(folder, out, engine=HERE, **options):
    return extraction.extract(str(folder), out, SETTINGS, engine, **options)


def test_features_are_kept_and_made_once(folder, tmp_path):
    out = tmp_path / "out"
    first = extract(folder, out)
    assert len(first.found) == first.extracted == 6
    assert not first.skipped
    assert all("ä" in name for name in first.found)
    before = content(out)
    again = extract(folder, out)
    assert (again.made, again.extracted) == (0, 0)
    assert again.found == first.found
    assert content(out) == before
    rows = dict(exporting.images(out))
    image = caloric.read_image(folder / "eins" / "bild ä 0.png")
    expected = caloric.extract(image, max_features=120, dtype="uint8", contrast=0.02)
    found = rows["eins/bild ä 0.png"]
    np.testing.assert_array_equal(found.descriptors, expected.descriptors)
    np.testing.assert_allclose(found.frames.maps, expected.frames.maps, rtol=1e-6, atol=1e-5)
    assert found.recipe == expected.recipe


def test_only_what_changed_is_made_again(folder, tmp_path):
    out = tmp_path / "out"
    extract(folder, out)
    cv2.imwrite(str(folder / "eins" / "bild ä 1.png"), photographs.grey("camera", (200, 200)))
    (folder / "zwei und drei" / "bild ä 2.png").unlink()
    cv2.imwrite(str(folder / "new.png"), photographs.grey("rocket", (200, 200)))
    again = extract(folder, out)
    assert again.extracted == 2
    assert set(again.found) == set(sources.names(str(folder)))
    fresh = tmp_path / "fresh"
    extract(folder, fresh)
    assert content(out) == content(fresh)
    other = extraction.extract(str(folder), out, extraction.Settings(max_features=50), HERE)
    assert other.extracted == 6


def test_processes_make_the_same_store(folder, tmp_path):
    extract(folder, tmp_path / "one")
    with engines.Processes(2) as engine:
        extract(folder, tmp_path / "two", engine)
    assert content(tmp_path / "one") == content(tmp_path / "two")


def test_bad_images_are_skipped_and_told_again(folder, tmp_path):
    good = (folder / "eins" / "bild ä 0.png").read_bytes()
    (folder / "short.png").write_bytes(good[: len(good) // 2])
    (folder / "empty.jpg").write_bytes(b"")
    cv2.imwrite(str(folder / "dot.png"), np.zeros((1, 1), np.uint8))
    outside = tmp_path / "outside.png"
    outside.write_bytes(good)
    (folder / "link.png").symlink_to(outside)
    for _ in range(2):
        found = extract(folder, tmp_path / "out")
        assert set(found.skipped) == {"short.png", "empty.jpg", "link.png"}
        assert "leads out of the folder" in found.skipped["link.png"]
        assert found.found["dot.png"] == 0
    assert found.extracted == 0
    with pytest.raises(caloric.InputError, match="no images"):
        extract(tmp_path / "out", tmp_path / "x")
    with pytest.raises(caloric.InputError, match="no such folder"):
        extract(tmp_path / "nowhere", tmp_path / "x")


def test_what_is_broken_is_made_again(folder, tmp_path):
    out = tmp_path / "out"
    extract(folder, out)
    before = content(out)
    shard = extraction.shards(out).all()[0]
    shard.write_bytes(shard.read_bytes()[:100])
    dead = subprocess.Popen([sys.executable, "-c", "pass"])
    dead.wait()
    left = shard.with_name(f"x.parquet.{store._host()}.{dead.pid}.0{store._UNFINISHED}")
    left.write_bytes(b"half")
    again = extract(folder, out)
    assert again.made == 1
    assert content(out) == before
    shard.write_bytes(b"nothing")
    with pytest.raises(caloric.InputError, match=r"broken .* run again"):
        list(extraction.shards(out).read(shard))
    assert not shard.exists()
    extract(folder, out)
    assert content(out) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root writes anywhere")
def test_a_folder_that_cannot_be_written_is_told(folder, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    out.chmod(0o500)
    with pytest.raises(caloric.InputError, match="cannot be written"):
        extract(folder, out)


def test_a_full_disk_is_told_and_nothing_is_left(folder, tmp_path, monkeypatch):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.os, "fsync", full)
    with pytest.raises(caloric.InputError, match="No space left"):
        extract(folder, tmp_path / "out")
    assert content(tmp_path / "out") == {}


@pytest.fixture(scope="module")
def matched(originals, tmp_path_factory):
    out = tmp_path_factory.mktemp("store")
    extract(originals, out)
    pairs = pairing.pairs(out, pairing.Pairing(), HERE)
    how = matching.Matching()
    assert matching.match(out, pairs, how, HERE) == 15
    assert matching.match(out, pairs, how, HERE) == 0
    good, every = matching.verify(out, how, HERE)
    assert matching.verify(out, how, HERE) == (good, every)
    return out, good


def test_pairs_of_one_scene_have_a_geometry(matched):
    out, good = matched
    assert 6 <= good <= 8
    for pair in exporting.two_views(out):
        same = pair.name_a.split("/")[0] == pair.name_b.split("/")[0]
        if same:
            assert pair.matrix is not None
            assert len(pair.inliers) > 30


def test_matches_of_a_device_are_those_of_the_cpu(matched, tmp_path):
    pytest.importorskip("torch")
    out, again = matched[0], tmp_path / "again"
    shutil.copytree(out, again)
    shutil.rmtree(again / "matches")
    pairs = pairing.pairs(again, pairing.Pairing(), HERE)
    assert matching.match(again, pairs, matching.Matching(), HERE, device="torch:cpu") == 15

    def rows(where):
        stored = matching.shards(where)
        return {
            (row["name_a"], row["name_b"]): row["indices"].tolist()
            for path in stored.all()
            for row in stored.read(path)
        }

    assert rows(again) == rows(out)


def test_pairs_in_sequence_and_by_what_they_show(matched):
    out, _ = matched
    near = pairing.pairs(out, pairing.Pairing("retrieval", nearest=2), HERE)
    assert all(a.split("/")[0] == b.split("/")[0] for a, b in near)
    assert len(near) == 6
    row = pairing.pairs(out, pairing.Pairing("sequential", overlap=1, nearest=1), HERE)
    names = sorted(name for name, _ in exporting.images(out))
    assert set(pairwise(names)) <= set(row)
    pairing.pairs(out, pairing.Pairing(), HERE)
    with pytest.raises(caloric.InputError, match="unknown pairs"):
        pairing.Pairing("some")
    with pytest.raises(caloric.InputError, match="from 1"):
        pairing.Pairing(nearest=0)
    one = retrieval.vlad(np.eye(4, dtype=np.float32), np.eye(4, dtype=np.float32)[:2])
    assert np.linalg.norm(one) == pytest.approx(1)


def test_colmap_reads_the_database(matched, originals):
    pycolmap = pytest.importorskip("pycolmap")
    out, good = matched
    path = exporting.export_colmap(out, originals)
    database = pycolmap.Database.open(str(path))
    try:
        assert database.num_images() == 6
        assert database.num_verified_image_pairs() == good
        own = dict(exporting.images(out))
        for image in database.read_all_images():
            keypoints = database.read_keypoints(image.image_id)
            np.testing.assert_allclose(keypoints[:, :2] - 0.5, own[image.name].frames.xy, atol=1e-3)
            assert keypoints.shape[1] == 6
            descriptors = database.read_descriptors(image.image_id)
            expected = conversion.sift_bytes(own[image.name])
            np.testing.assert_array_equal(np.asarray(descriptors.data), expected)
    finally:
        database.close()
    frames = colmap.read_frames(path)
    for name, found in own.items():
        np.testing.assert_allclose(frames[name].maps, found.frames.maps, atol=1e-3)
    with pytest.raises(caloric.InputError, match="no such database"):
        colmap.read_frames(out / "none.db")


def test_hloc_and_text_hold_the_same(matched):
    h5py = pytest.importorskip("h5py")
    out, good = matched
    features, matches = exporting.export_hloc(out)
    own = dict(exporting.images(out))
    with h5py.File(features) as file:
        name = "eins/bild ä 0.png"
        np.testing.assert_allclose(file[name]["keypoints"][:], own[name].frames.xy, atol=1e-3)
    pairs = [pair for pair in exporting.two_views(out) if pair.matrix is not None]
    with h5py.File(matches) as file:
        assert sum(len(group) for group in file.values()) == good
        for pair in pairs:
            a, b = (n.replace("/", "-") for n in (pair.name_a, pair.name_b))
            nearest = file[a][b]["matches0"][:]
            assert len(nearest) == len(own[pair.name_a])
            kept = pair.matches[pair.inliers]
            np.testing.assert_array_equal(nearest[kept[:, 0]], kept[:, 1])
            assert (nearest >= 0).sum() == len(kept)
    with pytest.raises(caloric.InputError, match="up to the first space"):
        exporting.export_text(out)
    assert not (out / "text").exists()


@pytest.fixture(scope="module")
def plainly_named(originals, tmp_path_factory):
    """One scene under names without spaces, matched and verified: its folder and store."""
    folder, out = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("plain_store")
    (folder / "scene").mkdir()
    for i, path in enumerate(sorted((originals / "eins").glob("*.png"))):
        (folder / "scene" / f"{i}.png").write_bytes(path.read_bytes())
    extract(folder, out)
    how = matching.Matching()
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), how, HERE)
    lines = exporting.export_text(out)[1].read_text().splitlines()
    assert "scene/0.png scene/1.png" in lines
    matching.verify(out, how, HERE)
    return folder, out


def test_text_carries_the_matches(plainly_named):
    _, out = plainly_named
    blocks = exporting.export_text(out)[1].read_text().strip().split("\n\n")
    name, own = next(iter(exporting.images(out)))
    lines = (out / "text" / f"{name}.txt").read_text().splitlines()
    assert lines[0] == f"{len(own)} 128"
    row = np.array(lines[1].split(), float)
    np.testing.assert_allclose(row[:2] - 0.5, own.frames.xy[0], atol=1e-2)
    np.testing.assert_array_equal(row[4:], conversion.sift_bytes(own)[0])
    pairs = {(p.name_a, p.name_b): p for p in exporting.two_views(out) if p.matrix is not None}
    assert len(blocks) == len(pairs) == 3
    for block in blocks:
        names, *rows = block.splitlines()
        pair = pairs[tuple(names.split())]
        expected = pair.matches[pair.inliers]
        np.testing.assert_array_equal(np.array([row.split() for row in rows], int), expected)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the path")
def test_colmaps_executable_reads_what_it_is_given(plainly_named, monkeypatch):
    """Where pycolmap is not installed, COLMAP's own importers make the database."""
    folder, out = plainly_named
    monkeypatch.setattr(colmap, "available", lambda: False)
    with pytest.raises(caloric.InputError, match="--images"):
        exporting.export_colmap(out, None)
    path = exporting.export_colmap(out, folder)
    own = dict(exporting.images(out))
    pairs = [pair for pair in exporting.two_views(out) if pair.matrix is not None]
    with closing(sqlite3.connect(path)) as database:
        names = dict(database.execute("select name, image_id from images"))
        assert names.keys() == own.keys()
        for name, number in names.items():
            query = "select rows, cols, data from keypoints where image_id = ?"
            rows, columns, data = database.execute(query, (number,)).fetchone()
            keypoints = np.frombuffer(data, np.float32).reshape(rows, columns)
            np.testing.assert_allclose(keypoints[:, :2] - 0.5, own[name].frames.xy, atol=1e-2)
        counts = [row[0] for row in database.execute("select rows from two_view_geometries")]
        assert sorted(counts) == sorted(len(pair.inliers) for pair in pairs)


@pytest.mark.parametrize("by", ["pycolmap", "executable"])
def test_colmap_makes_a_model(by, tmp_path, monkeypatch):
    """Of an open book seen from five sides, with everything by default.

    One view is stored lying on its side, which EXIF says and COLMAP does not read; one name has
    spaces.
    """
    if by == "pycolmap":
        pytest.importorskip("pycolmap")
    elif colmap_command.executable() is None:
        pytest.skip("no colmap executable on the path")
    else:
        monkeypatch.setattr(colmap, "available", lambda: False)
    (tmp_path / "views").mkdir()
    for i, view in enumerate(photographs.book(5)):
        cv2.imwrite(str(tmp_path / "views" / f"view {i}.png"), view)
    (tmp_path / "views" / "view 2.png").unlink()
    lying, about = Image.fromarray(np.rot90(photographs.book(5)[2])), Image.Exif()
    about[274] = 6
    lying.save(tmp_path / "views" / "view 2.jpg", exif=about, quality=95)
    out = tmp_path / "out"
    result = run("collection", "run", tmp_path / "views", "-o", out, "--workers", "1")
    assert result.exit_code == 0, result.output
    assert "5 images placed" in result.output
    assert (out / "colmap" / "sparse" / "0" / "points3D.bin").exists()
    own = dict(exporting.images(out))
    with closing(sqlite3.connect(out / "colmap" / "database.db")) as database:
        query = (
            "select name, width, height, rows, cols, data from images "
            "join cameras using (camera_id) join keypoints using (image_id)"
        )
        for name, w, h, rows, columns, data in database.execute(query).fetchall():
            assert own[name].image_size == (h, w)
            keypoints = np.frombuffer(data, np.float32).reshape(rows, columns)
            assert (keypoints[:, :2] <= (w, h)).all()
            np.testing.assert_allclose(keypoints, own[name].frames.to_colmap(), atol=1e-4)
    assert own["view 2.jpg"].image_size == own["view 1.png"].image_size[::-1]


def test_without_any_colmap_it_is_said_first(originals, tmp_path, monkeypatch):
    monkeypatch.setattr(colmap, "available", lambda: False)
    monkeypatch.setattr(colmap_command, "executable", lambda: None)
    result = run("collection", "run", originals, "-o", tmp_path / "out")
    assert isinstance(result.exception, caloric.InputError)
    assert "apt-get install colmap" in str(result.exception)
    assert "export --to text" in str(result.exception)
    assert not (tmp_path / "out").exists()


def test_what_the_executable_cannot_do_is_said_first(plainly_named, tmp_path, monkeypatch):
    folder, out = plainly_named
    monkeypatch.setattr(colmap, "available", lambda: False)
    monkeypatch.setattr(colmap_command, "executable", lambda: "false")
    with pytest.raises(caloric.InputError, match="does not exist; name the folder"):
        exporting.export_colmap(out, tmp_path)
    with pytest.raises(caloric.InputError, match="colmap feature_importer failed"):
        exporting.export_colmap(out, folder)


@pytest.mark.skipif(colmap_command.executable() is None, reason="no colmap executable on the path")
def test_what_colmap_cannot_read_is_left_out(tmp_path, monkeypatch, caplog):
    if not features.check("avif"):
        pytest.skip("Pillow was built without AVIF")
    monkeypatch.setattr(colmap, "available", lambda: False)
    folder, out = tmp_path / "images", tmp_path / "out"
    folder.mkdir()
    first, second, third = (Image.fromarray(view) for view in photographs.book(3))
    first.save(folder / "1.png")
    second.save(folder / "2.avif", quality=95)
    third.save(folder / "3.png")
    extract(folder, out)
    matching.match(out, pairing.pairs(out, pairing.Pairing(), HERE), matching.Matching(), HERE)
    matching.verify(out, matching.Matching(), HERE)
    path = exporting.export_colmap(out, folder)
    assert "2.avif: left out of the database" in caplog.text
    with closing(sqlite3.connect(path)) as database:
        names = [row[0] for row in database.execute("select name from images order by name")]
        assert names == ["1.png", "3.png"]
        assert database.execute("select count(*) from matches").fetchone() == (1,)


def test_colmaps_reason_is_not_an_address():
    check = "E1116 file.cc:7] Check failed: image.Exists()"
    said = f"{check}\n*** Check failure stack trace: ***\n    @ 0x7f (unknown)"
    done = subprocess.CompletedProcess([], -6, "working\n", said)
    assert colmap_command._reason(done) == check
    assert colmap_command._reason(subprocess.CompletedProcess([], 1, "", "")) == "no message"


def test_names_do_not_lead_out_of_the_store(matched, tmp_path):
    out, _ = matched
    own = extraction.shards(tmp_path)
    row = next(extraction.shards(out).read(extraction.shards(out).all()[0]))
    own.write(own.path("0", "0"), [row | {"name": "../../outside"}])
    with pytest.raises(caloric.InputError, match="leads out"):
        exporting.export_text(tmp_path)
    assert not (tmp_path.parent / "outside.txt").exists()


def test_lightglues_dictionary(matched):
    from caloric.interop import lightglue

    out, _ = matched
    _, features = next(exporting.images(out))
    found = lightglue.to_lightglue(features)
    np.testing.assert_allclose(found["keypoints"][0], features.frames.xy, atol=1e-4)
    np.testing.assert_allclose(found["scales"][0], features.frames.sigma, rtol=1e-6)
    np.testing.assert_allclose(found["oris"][0], features.frames.angle, atol=1e-6)  # radians
    np.testing.assert_allclose(np.linalg.norm(found["descriptors"][0], axis=1), 1, atol=1e-5)
    np.testing.assert_array_equal(found["descriptors"][0], conversion.unit_descriptors(features))
    assert found["image_size"][0].tolist() == [features.image_size[1], features.image_size[0]]


def test_a_database_is_described_anew(matched, originals, tmp_path):
    pycolmap = pytest.importorskip("pycolmap")
    out, _ = matched
    path = tmp_path / "database.db"
    path.write_bytes(exporting.export_colmap(out, originals).read_bytes())
    result = run("collection", "describe", originals, "--database", path, "--descriptor", "heat")
    assert result.exit_code == 0, result.output
    own = dict(exporting.images(out))
    database = pycolmap.Database.open(str(path))
    try:
        assert database.num_matches() == 0
        for image in database.read_all_images():
            pixels = caloric.read_image(originals / image.name)
            frames = colmap.read_frames(path)[image.name]
            values = caloric.describe(pixels, frames, "heat")
            described = caloric.Features(frames, values, pixels.shape[:2], "heat", "")
            expected = conversion.sift_bytes(described)
            found = np.asarray(database.read_descriptors(image.image_id).data)
            np.testing.assert_array_equal(found, expected)
            assert len(found) == len(own[image.name])
    finally:
        database.close()
    assert run("collection", "describe", originals, "--database", tmp_path / "no").exit_code != 0


def test_two_dask_workers_make_the_same_store(folder, tmp_path):
    distributed = pytest.importorskip("distributed")
    extract(folder, tmp_path / "one")
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, dashboard_address=None, silence_logs=50
    ) as cluster:
        engine = engines.Cluster(cluster.scheduler_address)
        extract(folder, tmp_path / "two", engine)
        engine.close()
    assert content(tmp_path / "one") == content(tmp_path / "two")


@pytest.mark.slow
def test_killed_runs_are_finished_by_the_next(folder):
    """A process and the scheduler; twenty times, and workers too: python -m tools kills."""
    pytest.importorskip("distributed")
    victims = ("process", "scheduler")
    for i in range(4):  # enough to do that a kill comes in between
        for place in ("eins", "zwei und drei"):
            for path in sorted((folder / place).glob("bild*.png")):
                (folder / place / f"{i} {path.name}").write_bytes(path.read_bytes())
    report = kills.run(folder, 2, 120, 0, lambda message: None, victims)
    for one in report["kills"]:
        assert one["the same store"], one
        assert one["written again"] == 0, one
    *_, scheduler = report["kills"]
    assert not scheduler["the run went on"]
    # Killed in the middle, or, on a busy machine, before anybody had connected to it.
    reasons = ("scheduler was lost", "no scheduler answers")
    assert any(r in line for r in reasons for line in scheduler["it said"]), scheduler["it said"]


def _die(task):
    if task == 3 and not Path(os.environ["CALORIC_TEST_DIED"]).exists():
        Path(os.environ["CALORIC_TEST_DIED"]).touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def test_a_workers_task_is_done_by_another_when_it_dies(tmp_path, monkeypatch):
    monkeypatch.setenv("CALORIC_TEST_DIED", str(tmp_path / "died"))
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    with engines.Processes(2) as engine:
        found = list(engine.run(_die, range(8)))
    assert sorted(set(found)) == list(range(8))
    assert (tmp_path / "died").exists()


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(a) for a in arguments])


def test_commands(folder, tmp_path):
    out = tmp_path / "out"
    (folder / "bad.png").write_bytes(b"no picture")
    options = ["-o", out, "--max-features", 120, "--workers", 1]
    result = run("collection", "extract", folder, *options)
    assert result.exit_code == 1
    assert "6 of 7 images" in result.output
    assert "bad.png" in result.output
    (folder / "bad.png").unlink()
    assert run("collection", "extract", folder, *options).exit_code == 0
    assert "15 pairs" in run("collection", "pairs", out).output
    assert run("collection", "match", out, "--workers", 1).exit_code == 0
    assert "have a geometry" in run("collection", "verify", out, "--workers", 1).output
    if colmap.available():
        assert run("collection", "export", out, "--images", folder).exit_code == 0
        assert (out / "colmap" / "database.db").exists()
    for wrong in (
        ["match", out, "--ratio", 2], ["verify", out, "--model", "magic"],
        ["pairs", out, "--pairs", "magic"], ["extract", folder, "-o", out, "--workers", -1],
        ["extract", folder, "-o", out, "--descriptor", "magic"],
        ["reconstruct", folder, "-o", tmp_path / "empty"],
    ):  # fmt: skip
        assert run("collection", *wrong).exit_code != 0


def test_garbage_in_a_shard_is_noticed(folder, tmp_path):
    out = tmp_path / "out"
    extract(folder, out)
    own = extraction.shards(out)
    shard = own.all()[0]
    whole = shard.read_bytes()
    rng, silent = np.random.default_rng(0), 0
    expected = [{k: np.asarray(v).tolist() for k, v in row.items()} for row in own.read(shard)]
    for _ in range(40):
        at = int(rng.integers(4, len(whole) - 2000))  # the pages; the footer comes after
        shard.write_bytes(whole[:at] + bytes([whole[at] ^ 0x55]) + whole[at + 1 :])
        try:
            found = [{k: np.asarray(v).tolist() for k, v in r.items()} for r in own.read(shard)]
        except caloric.InputError:
            silent += shard.exists()
        else:
            silent += found != expected
    assert silent == 0


def test_features_of_images_that_cannot_be_read_are_kept(folder, tmp_path, monkeypatch):
    out = tmp_path / "out"
    first = extract(folder, out)
    before = content(out)
    real = sources.content

    def lost(where, name):
        if "eins" in name:
            raise sources.UnreadableError(f"{name}: cannot be read (gone)")
        return real(where, name)

    monkeypatch.setattr(sources, "content", lost)
    again = extract(folder, out)
    assert len(again.skipped) == 3
    assert all("previous features are kept" in why for why in again.skipped.values())
    assert content(out) == before
    monkeypatch.setattr(sources, "content", real)
    assert extract(folder, out).extracted == 0
    assert first.found == extract(folder, out).found


def test_what_could_not_be_read_once_is_tried_again(folder, tmp_path, monkeypatch):
    """Read for its hash, and not when its features were to be made."""
    whole = tmp_path / "whole"
    extract(folder, whole)
    real = sources.pixels

    def failing(where, photograph):
        if photograph.name.endswith("eins/bild ä 1.png"):
            raise sources.UnreadableError(f"{photograph.name}: cannot be read (timed out)")
        return real(where, photograph)

    monkeypatch.setattr(sources, "pixels", failing)
    out = tmp_path / "out"
    first = extract(folder, out)
    assert [why for why in first.skipped.values() if "timed out" in why]
    assert len(extraction.listed(out)) == 5
    monkeypatch.setattr(sources, "pixels", real)
    again = extract(folder, out)
    assert again.extracted == 1
    assert not again.skipped
    assert content(out) == content(whole)


def test_an_added_image_is_matched_alone(folder, tmp_path):
    out, how = tmp_path / "out", matching.Matching()
    moved = folder / "eins" / "bild ä 0.png"
    data = moved.read_bytes()
    moved.unlink()
    extract(folder, out)
    assert matching.match(out, pairing.pairs(out, None, HERE), how, HERE) == 10
    matching.verify(out, how, HERE)
    moved.write_bytes(data)
    extract(folder, out)
    pairs = pairing.pairs(out, None, HERE)
    assert matching.match(out, pairs, how, HERE) == 5
    told = []
    good, every = matching.verify(out, how, HERE, lambda *line: told.append(line))
    assert every == len(pairs) == 15
    whole = tmp_path / "whole"
    extract(folder, whole)
    matching.match(whole, pairing.pairs(whole, None, HERE), how, HERE)
    assert matching.verify(whole, how, HERE) == (good, every)
    assert content(whole) == content(out)


def test_pairs_are_remembered(folder, tmp_path):
    out = tmp_path / "out"
    extract(folder, out)
    few = pairing.pairs(out, pairing.Pairing("retrieval", nearest=1), HERE)
    assert len(few) < 15
    assert pairing.pairs(out, None, HERE) == few
    assert pairing.chosen(out) == pairing.Pairing("retrieval", nearest=1)
    assert f"{len(few)} pairs" in run("collection", "match", out, "--workers", 1).output


def test_one_run_waits_for_another(folder, tmp_path):
    out = tmp_path / "out"
    arguments = ["collection", "extract", str(folder), "-o", str(out), "--max-features", "60"]
    code = "from caloric.cli import main\nmain()"
    with store.locked(out):
        waiting = subprocess.Popen(
            [sys.executable, "-c", code, *arguments, "--workers", "1", "--device", "cpu"],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert "waiting for it" in waiting.stderr.readline()
        extract(folder, out)
        assert waiting.poll() is None
    assert waiting.wait(60) == 0
    waiting.stderr.close()
    assert len(extraction.listed(out)) == 6


def test_links_and_names_that_are_not_text_are_told(folder, tmp_path):
    (folder / "away").symlink_to(tmp_path)
    (folder / "gone.png").symlink_to(folder / "nothing")
    with open(os.fsencode(folder) + b"/b\xe9.png", "wb") as file:
        file.write((folder / "eins" / "bild ä 0.png").read_bytes())
    found = extract(folder, tmp_path / "out")
    assert set(found.skipped) == {"away", "gone.png", "b\\udce9.png"}
    assert "leads out" in found.skipped["away"] or "not followed" in found.skipped["away"]
    assert "rename" in found.skipped["b\\udce9.png"]
    assert len(found.found) == 9


def test_addresses_say_what_is_wrong(folder, tmp_path):
    with pytest.raises(caloric.InputError, match="cannot be opened"):
        sources.names("foo://bar")
    here = extraction.extract(f"file://{folder}", tmp_path / "a", SETTINGS, HERE)
    assert len(here.found) == 6
    assert sources.absolute("s3://bucket/x") == "s3://bucket/x"


def test_dask_is_told_that_nobody_works(monkeypatch):
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(engines, "_WORKER_TIMEOUT", 1)
    with distributed.LocalCluster(
        n_workers=0, dashboard_address=None, silence_logs=50, processes=False
    ) as cluster:
        engine = engines.Cluster(cluster.scheduler_address)
        with pytest.raises(caloric.InputError, match="no workers"):
            list(engine.run(abs, range(3)))
        engine.close()


def test_colmaps_own_matchers_find_matches(matched, originals, tmp_path):
    """By dot products, as its GPU matcher does: descriptors must not be negative."""
    pycolmap = pytest.importorskip("pycolmap")

    out, _ = matched
    path = exporting.export_colmap(out, originals)
    own = tmp_path / "database.db"
    own.write_bytes(path.read_bytes())
    result = run("collection", "describe", originals, "--database", own)
    assert result.exit_code == 0, result.output
    for brute in (True, False):
        options = pycolmap.FeatureMatchingOptions()
        options.use_gpu = False
        options.sift.cpu_brute_force_matcher = brute
        database = pycolmap.Database.open(str(own))
        database.clear_matches()
        database.clear_two_view_geometries()
        database.close()
        pycolmap.match_exhaustive(str(own), matching_options=options)
        database = pycolmap.Database.open(str(own))
        found = {i.name: i.image_id for i in database.read_all_images()}
        a, b = (found[f"eins/bild ä {k}.png"] for k in (0, 1))
        assert len(database.read_matches(a, b)) > 30
        database.close()


def test_what_colmap_cannot_do_is_one_line(matched, originals, tmp_path):
    pytest.importorskip("pycolmap")
    out, _ = matched
    with pytest.raises(caloric.InputError, match="does not exist"):
        exporting.export_colmap(out, tmp_path)
    (tmp_path / "bad.db").write_bytes(b"not a database, but long enough to look at" * 50)
    with pytest.raises(caloric.InputError, match="COLMAP"):
        colmap.read_frames(tmp_path / "bad.db")
    with pytest.raises(caloric.InputError, match="extract them first"):
        exporting.export_colmap(tmp_path / "nowhere", None)
    small = tmp_path / "small"
    settings = extraction.Settings("caloric-64", 50)
    extraction.extract(str(originals), small, settings, HERE)
    with pytest.raises(caloric.InputError, match="128 dimensions"):
        exporting.export_colmap(small, None)


def test_a_bad_image_does_not_end_the_description_of_a_database(matched, originals, tmp_path):
    pytest.importorskip("pycolmap")
    out, _ = matched
    photos = tmp_path / "photos"
    subprocess.run(["cp", "-r", str(originals), str(photos)], check=True)
    own = tmp_path / "database.db"
    own.write_bytes(exporting.export_colmap(out, originals).read_bytes())
    (photos / "eins" / "bild ä 2.png").write_bytes(b"no picture")
    result = run("collection", "describe", photos, "--database", own)
    assert result.exit_code == 1
    assert "5 images described anew" in result.output
    assert "bild ä 2.png" in result.output


def test_in_cells_the_nearest_are_mostly_found():
    rng = np.random.default_rng(0)
    places = rng.standard_normal((300, 16)).astype(np.float32)
    every = np.repeat(places, 10, 0) + 0.1 * rng.standard_normal((3000, 16)).astype(np.float32)
    every = (every / np.linalg.norm(every, axis=1)[:, None]).astype(np.float16)
    exact = index.nearest(index.build(every), every[:200], 10)
    cells = index.nearest(index.build(every, exact=0), every[:200], 10)
    np.testing.assert_array_equal(exact[:, 0] // 10, np.arange(200) // 10)
    same = [len(set(a) & set(b)) / 10 for a, b in zip(exact, cells, strict=True)]
    assert np.mean(same) > 0.9


def test_vectors_are_in_few_dimensions_and_made_once(matched, monkeypatch, tmp_path):
    out, _ = matched
    names, first = retrieval.vectors(out, HERE)
    assert names == sorted(extraction.listed(out))
    assert first.shape == (6, 6)  # as many directions as images
    np.testing.assert_allclose(np.linalg.norm(first.astype(float), axis=1), 1, atol=2e-3)
    monkeypatch.setattr(retrieval, "make", None)
    again = retrieval.vectors(out, HERE)[1]
    np.testing.assert_array_equal(first, again)
    with pytest.raises(caloric.InputError, match="extract them first"):
        retrieval.codebook(tmp_path)


def test_what_is_out_of_date_is_not_exported(folder, tmp_path):
    out, how = tmp_path / "out", matching.Matching()
    extract(folder, out)
    pairs = pairing.pairs(out, pairing.Pairing(), HERE)
    with pytest.raises(caloric.InputError, match="match first"):
        matching.verify(out, how, HERE)
    matching.match(out, pairs, how, HERE)
    matching.verify(out, how, HERE)
    assert len(list(exporting.two_views(out))) == 15
    matching.match(out, pairs, matching.Matching(ratio=0.7), HERE)
    with pytest.raises(caloric.InputError, match="verify again"):
        list(exporting.two_views(out))
    matching.verify(out, matching.Matching(ratio=0.7), HERE)
    changed = next(iter(sorted(folder.rglob("*.png"))))
    changed.write_bytes(cv2.imencode(".png", 255 - cv2.imread(str(changed)))[1].tobytes())
    extract(folder, out)
    with pytest.raises(caloric.InputError, match="match again"):
        list(exporting.two_views(out))


def test_pairs_of_many_images_are_shared_out_evenly():
    known = {
        f"{i:04d}": extraction.Kept(Path(f"{sources.bucket(f'{i:04d}', 5):06x}-k.parquet"), "", 1)
        for i in range(1000)
    }
    names = sorted(known)
    pairs = [(a, b) for i, a in enumerate(names) for b in names[i + 1 :]]
    sizes = [sum(map(len, g.values())) for g in matching._groups(known, pairs).values()]
    assert sum(sizes) == len(pairs)
    assert len(sizes) > 400
    assert max(sizes) < 6 * np.mean(sizes)
    few = [(a, b) for i, a in enumerate(names) for b in names[i + 1 : i + 6]]
    assert len(matching._groups(known, few)) < 400


def test_workers_share_the_threads(monkeypatch):
    monkeypatch.setenv("CALORIC_THREADS", "8")
    assert engines.Processes(2).threads == 4
    assert engines.Processes(16).threads == 1


def test_a_cluster_of_ones_own(folder, tmp_path):
    pytest.importorskip("distributed")
    result = run("collection", "extract", folder, "-o", tmp_path / "out", "--cluster", "local",
                 "--max-features", 120, "--device", "cpu")  # fmt: skip
    assert result.exit_code == 0, result.output
    extract(folder, tmp_path / "here")
    assert content(tmp_path / "out") == content(tmp_path / "here")
    nobody = run("collection", "extract", folder, "-o", tmp_path / "out", "--cluster", "nonsense")
    assert nobody.exit_code != 0


def test_a_real_limit_on_files_is_told(folder, tmp_path):
    """The system's own refusal, in a process of its own."""
    code = (
        "import resource, signal\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))\n"
        "from caloric.cli import main\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, "collection", "extract", str(folder), "-o",
         str(tmp_path / "out"), "--workers", "1", "--device", "cpu"],
        capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2
    assert "cannot be written (File too large)" in done.stderr.splitlines()[-1]
    assert content(tmp_path / "out") == {}


def test_centres_are_compared_after_the_best_similarity():
    rng = np.random.default_rng(0)
    points = rng.standard_normal((7, 3))
    turn, _ = np.linalg.qr(rng.standard_normal((3, 3)))
    turn *= np.sign(np.linalg.det(turn))
    np.testing.assert_allclose(models.aligned(points, 3 * points @ turn.T + 5), 0, atol=1e-12)
    off = points.copy()
    off[0] += 1
    assert models.aligned(off, points).max() > 0.3
