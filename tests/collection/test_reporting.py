"""The report of a run."""

import json
from dataclasses import replace
from pathlib import Path

import cv2
import numpy as np

from caloric.collection import reporting
from caloric.collection.results import CollectionResult
from caloric.collection.summaries import PairSummary
from caloric.interop import colmap_model
from colmap_models import write_model

PAIRS = [
    PairSummary("a.jpg", "b.jpg", 300, 250, 1.0, True),
    PairSummary("b.jpg", "<x>.jpg", 30, 9, 0.0, False),
]
OUTCOMES = {"a.jpg": 500, "b.jpg": 400, "c.jpg": 300, "<x>.jpg": 200}


def result_in(directory, model):
    write_model(model)
    models = (colmap_model.summary(model),)
    return CollectionResult(
        models[0].images, {"<x>.jpg": "weak match"}, models, {"images": 4, "error": 0.5}, {}, "",
        {"extract": 1.25}, directory / "report.html",
    )  # fmt: skip


def test_the_report_has_the_numbers_of_the_run(tmp_path):
    result = result_in(tmp_path, tmp_path / "0")
    reporting.write(result, OUTCOMES, PAIRS, "set & more")
    report = json.loads((tmp_path / "report.json").read_text("utf-8"))
    assert report["summary"] == "3 of 4 images registered in 1 model"
    assert report["seconds"] == {"extract": 1.25}
    (model,) = report["models"]
    assert (model["images"], model["points"], model["mean track length"]) == (3, 40, 3)
    assert sum(b["count"] for b in model["images of points"]) == 40
    assert next(b for b in model["images of points"] if b["from"] == 3)["count"] == 40
    assert model["cameras"][0]["images"] == 3
    rows = {image["name"]: image for image in report["images"]}
    assert rows["a.jpg"]["verified pairs"] == 1
    assert (rows["a.jpg"]["model"], rows["a.jpg"]["points"]) == (0, 40)
    assert (rows["<x>.jpg"]["model"], rows["<x>.jpg"]["reason"]) == (None, "weak match")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "3 of 4 images registered in 1 model" in page
    assert "&lt;x&gt;.jpg" in page
    assert "<x>.jpg" not in page
    assert "<script" not in page
    assert page.count("data:image/png;base64,") == 2  # the model and the matrix


def test_an_image_with_several_observations_of_a_point_counts_once(tmp_path, monkeypatch):
    result, registered = result_in(tmp_path, tmp_path / "0"), colmap_model.registered

    def doubled(directory):
        for image in registered(directory):
            yield replace(image, points=np.r_[image.points, image.points, -1])

    monkeypatch.setattr(colmap_model, "registered", doubled)
    (model,) = reporting.content(result, OUTCOMES, PAIRS, "set")["models"]
    counts = {b["from"]: b["count"] for b in model["images of points"] if b["count"]}
    assert counts == {3: 40}


def test_the_figure_of_a_model_is_a_png(tmp_path):
    write_model(tmp_path / "0")
    data = np.frombuffer(reporting.figure(tmp_path / "0"), np.uint8)
    figure = cv2.imdecode(data, cv2.IMREAD_UNCHANGED)
    assert figure.shape[2] == 4
    assert figure[..., 3].any()


def test_a_run_without_a_model_has_a_report(tmp_path):
    failed = CollectionResult(
        (), {"a": "no match"}, (), {}, {}, "no pair", {}, tmp_path / "report.html"
    )
    reporting.write(failed, {"a": 5}, [], "set")
    assert "0 of 1 image registered: no pair" in (tmp_path / "report.html").read_text("utf-8")


def test_a_histogram_counts_each_value_once():
    bins = reporting.histogram([2, 2, 3, 40], (2, 3, 4, 10**9))
    assert [b["count"] for b in bins] == [2, 1, 1]
    assert bins[-1]["to"] is None


def test_the_page_says_where_a_model_is(tmp_path):
    result = result_in(tmp_path, tmp_path / "0")
    reporting.write(result, OUTCOMES, PAIRS, "set")
    assert "arbitrary orientation and scale" in (tmp_path / "report.html").read_text("utf-8")
    origin = {"latitude": 50.5, "longitude": 8.25, "altitude": 99.0, "median error, meters": 0.4}
    (tmp_path / "0" / "origin.json").write_text(json.dumps(origin), "utf-8")
    reporting.write(result, OUTCOMES, PAIRS, "set")
    (model,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["models"]
    assert model["georeference"] == origin
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "latitude 50.500000°, longitude 8.250000° and altitude 99.0 m" in page
    assert "from their GPS positions is 0.40 m" in page


def test_paths_of_models_do_not_depend_on_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    reporting.write(result_in(tmp_path, Path("0")), OUTCOMES, PAIRS, "set")
    (model,) = json.loads((tmp_path / "report.json").read_text("utf-8"))["models"]
    assert model["directory"] == str(tmp_path / "0")
