"""A refinement that is interrupted continues."""

import pytest

import caloric
import rendered_models
from caloric.collection import checkpoints, model_refining
from caloric.collection.aligning import Aligner


def content(directory):
    return {path.name: path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def test_an_interrupted_call_continues(tmp_path, monkeypatch):
    scene = rendered_models.render(tmp_path, points=40)
    monkeypatch.setattr(model_refining, "_MEMORY", 1.0)  # blocks of one image
    caloric.refine_model(scene.model, scene.images, tmp_path / "whole", adjust=False)
    calls, limit = [], 4
    original = Aligner._pair

    def interrupted(self, *arguments):
        calls.append(arguments[0])
        if len(calls) > limit:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(Aligner, "_pair", interrupted)
    out = tmp_path / "out"
    with pytest.raises(KeyboardInterrupt):
        caloric.refine_model(scene.model, scene.images, out, adjust=False)
    assert {path.name for path in out.iterdir()} == {checkpoints.NAME}
    done, limit = set(calls[:4]), 1000
    calls.clear()
    caloric.refine_model(scene.model, scene.images, out, adjust=False)
    assert not done & set(calls[:3])
    assert content(out) == content(tmp_path / "whole")


def test_saved_alignments_of_another_model_are_not_used(tmp_path):
    scene = rendered_models.render(tmp_path, points=40)
    directory = tmp_path / "out" / checkpoints.NAME
    directory.mkdir(parents=True)
    (directory / "key.txt").write_text("another model")
    (directory / "0-0.npz").write_bytes(b"damaged")
    result = caloric.refine_model(scene.model, scene.images, tmp_path / "out", adjust=False)
    assert result.improved
    assert not directory.exists()
