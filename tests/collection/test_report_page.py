"""The page of a report."""

import base64
import re

import cv2
import numpy as np

from caloric.collection import report_page

IMAGE = {"features": 5, "verified pairs": 1, "points": 0, "model": None}


def report(**changes):
    images = [{**IMAGE, "name": name, "reason": "no match"} for name in ("a", "b", "c")]
    pairs = [
        {"name_a": "a", "name_b": "c", "matches": 2000, "inliers": 1500, "is_verified": True},
        {"name_a": "a", "name_b": "b", "matches": 20, "inliers": 5, "is_verified": False},
    ]
    empty = {
        "summary": "0 of 3",
        "warnings": [],
        "numbers": {"images": 3, "error": 0.5},
        "models": [],
    }
    return {**empty, "seconds": {"match": 2}, "images": images, "pairs": pairs, **changes}


def test_the_matrix_has_a_pixel_for_each_pair():
    page = report_page.page(report(), [], "set")
    (data,) = re.findall(r"base64,([^\"]+)", page)
    matrix = cv2.imdecode(np.frombuffer(base64.b64decode(data), np.uint8), cv2.IMREAD_UNCHANGED)
    np.testing.assert_array_equal(matrix[..., 3], [[255, 40, 255], [40, 255, 0], [255, 0, 255]])


def test_rows_and_columns_of_the_matrix_have_names():
    long = "directory/with a long name & more.jpg"
    names = [long, *(f"{i:03}.jpg" for i in range(200))]
    images = [{**IMAGE, "name": name, "reason": None} for name in names]
    page = report_page.page(report(images=images, pairs=[]), [], "set")
    labels = re.findall(r"<text[^>]*>([^<]+)</text>", page)
    assert labels[:2] == ["…g name &amp; more.jpg"] * 2
    assert 40 < len(labels) < 100  # some of the names, so that they do not overlap


def test_times_have_a_total_and_shares():
    page = report_page.page(report(seconds={"match": 30.0, "reconstruct": 90.0}), [], "set")
    assert '<td>COLMAP&#x27;s mapper</td><td class="n">90.00</td><td class="n">75%</td>' in page
    assert '<td>total</td><td></td><td class="n">120.00</td>' in page


def test_a_failure_is_marked_and_numbers_are_formatted():
    page = report_page.page(report(numbers={"points": 12345, "error": 0.456}), [], "set")
    assert '<p class="lead failure">0 of 3</p>' in page
    assert "<dd>12,345</dd>" in page
    assert "<dd>0.46 px</dd>" in page


def test_histograms_omit_empty_bins_at_their_ends():
    bins = [{"from": i, "to": i + 1, "count": count} for i, count in enumerate([0, 3, 0, 7, 0])]
    chart = report_page._chart("Images", bins)
    assert re.findall(r">(\d+)</text>", chart) == ["1", "3", "2", "0", "3", "7"]
    assert "<rect" not in report_page._chart("Images", [{"from": 0, "to": 1, "count": 0}])


def test_more_points_than_features_are_explained():
    assert "propagation" not in report_page.page(report(), [], "set")
    images = [{**IMAGE, "name": "a", "reason": None, "points": 6}]
    page = report_page.page(report(images=images, pairs=[]), [], "set")
    assert "more points than features: propagation" in page


def test_many_images_have_no_matrix():
    images = [{**IMAGE, "name": str(i), "reason": None} for i in range(1001)]
    page = report_page.page(report(images=images, pairs=[]), [], "set")
    assert "base64" not in page
    assert "Not registered" not in page


def test_cameras_have_their_principal_points():
    def camera(model, *parameters):
        return {
            "id": 1,
            "model": model,
            "images": 3,
            "width": 640,
            "height": 480,
            "parameters": parameters,
        }

    cameras = [
        camera("SIMPLE_RADIAL", 500, 311.5, 240, -0.12345),
        camera("OPENCV", 500, 501, 322, 244, 0, 0, 0, 0),
    ]
    model = {
        "directory": "sparse/0", "images": 3, "points": 9, "mean track length": 3.0,
        "mean reprojection error, pixels": 0.5, "images of points": [],
        "reprojection errors, pixels": [], "cameras": cameras, "georeference": {},
    }  # fmt: skip
    page = report_page.page(report(models=[model]), [b"figure"], "set")
    assert "311.5, 240.0" in page
    assert "322.0, 244.0" in page
    assert "500.0, 501.0" in page
    assert "-0.1235" in page or "-0.1234" in page
    assert "0, 0, 0, 0" in page
