"""Matches and geometries of pairs."""

import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest

import caloric
from caloric.collection import extraction, matching, pairing, sources, store
from stores import HERE, content, extract

if store.fcntl is None:
    pytest.skip("collections need the file locks of Linux or macOS", allow_module_level=True)


def test_pairs_of_one_scene_have_a_geometry(matched):
    out, verified = matched
    assert 6 <= verified <= 8
    for pair in matching.two_views(out):
        is_same_scene = pair.name_a.split("/")[0] == pair.name_b.split("/")[0]
        if is_same_scene:
            assert pair.matrix is not None
            assert len(pair.inliers) > 30


def test_matches_of_torch_are_the_same_as_on_the_cpu(matched, tmp_path):
    pytest.importorskip("torch")
    out, again = matched[0], tmp_path / "again"
    shutil.copytree(out, again)
    shutil.rmtree(again / "matches")
    pairs = pairing.pairs(again, pairing.Pairing(), HERE)
    assert matching.match(again, pairs, matching.Matching(), HERE, device="torch:cpu").new == 15

    def rows(store):
        stored = matching.shards(store)
        return {
            (row["name_a"], row["name_b"]): row["indices"].tolist()
            for path in stored.all()
            for row in stored.read(path)
        }

    assert rows(again) == rows(out)


def test_agreement_keeps_more_matches(matched, tmp_path):
    out = tmp_path / "out"
    shutil.copytree(matched[0], out)
    pairs = pairing.pairs(out, pairing.Pairing(), HERE)
    before = {(p.name_a, p.name_b): set(map(tuple, p.matches)) for p in matching.two_views(out)}
    options = matching.Matching(agreement=True)
    assert matching.match(out, pairs, options, HERE).new == len(pairs)
    with pytest.raises(caloric.InputError, match="verify again"):
        list(matching.two_views(out))
    matching.verify(out, options, HERE)
    after = {(p.name_a, p.name_b): set(map(tuple, p.matches)) for p in matching.two_views(out)}
    assert all(before[pair] <= after[pair] for pair in before)
    assert sum(map(len, after.values())) > sum(map(len, before.values()))
    with pytest.raises(caloric.InputError, match="agreement"):
        matching.Matching(agreement="yes")


def test_only_pairs_of_an_added_image_are_matched(directory, tmp_path):
    out, options = tmp_path / "out", matching.Matching()
    added = directory / "eins" / "bild ä 0.png"
    data = added.read_bytes()
    added.unlink()
    extract(directory, out)
    assert matching.match(out, pairing.pairs(out, None, HERE), options, HERE).new == 10
    matching.verify(out, options, HERE)
    added.write_bytes(data)
    extract(directory, out)
    pairs = pairing.pairs(out, None, HERE)
    assert matching.match(out, pairs, options, HERE).new == 5
    result = matching.verify(out, options, HERE)
    assert result.pairs == len(pairs) == 15
    from_scratch = tmp_path / "from_scratch"
    extract(directory, from_scratch)
    matching.match(from_scratch, pairing.pairs(from_scratch, None, HERE), options, HERE)
    assert matching.verify(from_scratch, options, HERE) == result
    assert content(from_scratch) == content(out)


def test_outdated_matches_and_geometries_are_errors(directory, tmp_path):
    out, options = tmp_path / "out", matching.Matching()
    extract(directory, out)
    pairs = pairing.pairs(out, pairing.Pairing(), HERE)
    with pytest.raises(caloric.InputError, match="match first"):
        matching.verify(out, options, HERE)
    matching.match(out, pairs, options, HERE)
    matching.verify(out, options, HERE)
    assert len(list(matching.two_views(out))) == 15
    matching.match(out, pairs, matching.Matching(ratio=0.7), HERE)
    with pytest.raises(caloric.InputError, match="verify again"):
        list(matching.two_views(out))
    matching.verify(out, matching.Matching(ratio=0.7), HERE)
    changed = next(iter(sorted(directory.rglob("*.png"))))
    changed.write_bytes(cv2.imencode(".png", 255 - cv2.imread(str(changed)))[1].tobytes())
    extract(directory, out)
    with pytest.raises(caloric.InputError, match="match again"):
        list(matching.two_views(out))


def test_tasks_have_similar_numbers_of_pairs():
    known = {
        f"{i:04d}": extraction.StoredImage(
            Path(f"{sources.bucket(f'{i:04d}', 5):06x}-k.parquet"), "", 1
        )
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
