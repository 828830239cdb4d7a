"""Results of match_images as files."""

import builtins
import json
import re

import cv2
import numpy as np
import pytest

import caloric
import photographs
from caloric.view import files


@pytest.fixture(scope="module")
def images(tmp_path_factory):
    directory = tmp_path_factory.mktemp("images")
    image = photographs.gray("brick", (300, 300))
    change = photographs.similarity(0.9, 20, (5, -8), (150, 150))
    paths = [directory / f"{name} <&>.png" for name in "ab"]
    for path, pixels in zip(paths, (image, photographs.warp(image, change)), strict=True):
        cv2.imwrite(str(path), pixels)
    return paths


@pytest.fixture(scope="module")
def pair(images):
    return caloric.match_images(*images, max_features=300, refine=False)


@pytest.mark.parametrize("suffix", files.SUFFIXES)
def test_every_format_can_be_written(pair, suffix, tmp_path):
    path = tmp_path / f"x{suffix.upper()}"
    pair.save(path)
    first = path.read_bytes()
    assert len(first) > 1000
    pair.save(str(path))
    assert path.read_bytes() == first  # the same input gives the same file
    assert [p.name for p in tmp_path.iterdir()] == [path.name]


def test_svg_and_pdf_have_one_vector_line_per_match(pair, tmp_path):
    pair.save(tmp_path / "x.svg")
    text = (tmp_path / "x.svg").read_text("utf-8")
    assert text.count("<image") == 1
    lines = re.findall(r'<path d="M [\d. ]+ \nL [\d. ]+ \n"', text)
    assert len(lines) == 2 * min(len(pair), 150)  # with dark edges
    pair.save(tmp_path / "x.pdf")
    assert (tmp_path / "x.pdf").read_bytes().startswith(b"%PDF")


def test_json_and_page_are_those_of_the_command(pair, images, command, tmp_path):
    pair.save(tmp_path / "x.json")
    pair.save(tmp_path / "x.html")
    options = ("--max-features", 300, "--no-refine")
    code, out, _ = command("match", *images, "--json", "-", "--html", tmp_path / "y.html", *options)
    assert code == 0
    assert json.loads((tmp_path / "x.json").read_text()) == json.loads(out)
    pages = [(tmp_path / name).read_text("utf-8") for name in ("x.html", "y.html")]
    first, second = (
        json.loads(page.split('id="embedded-data">')[1].split("</script>")[0]) for page in pages
    )
    assert first["result"].pop("command") == ""
    assert second["result"].pop("command").startswith("caloric match")
    assert first == second


def test_results_of_arrays_have_no_file_names(tmp_path):
    image = photographs.gray("brick", (200, 200))
    pair = caloric.match_images(image, image, max_features=100)
    pair.save(tmp_path / "x.html")
    assert "<title>first image and second image</title>" in (tmp_path / "x.html").read_text("utf-8")
    assert files.as_json(pair)["image_a"] == ""


def test_unknown_suffixes_list_the_known_ones(pair, command, images, tmp_path):
    for name in ("x.gif", "x", "x.eps"):
        with pytest.raises(caloric.InputError, match=r"use \.png, .*\.pdf, \.svg, \.html, \.json"):
            pair.save(tmp_path / name)
        code, _, err = command("match", *images, "-o", tmp_path / name)
        assert (code, "use .png, " in err) == (2, True)
    with pytest.raises(caloric.InputError, match="does not exist; create it first"):
        pair.save(tmp_path / "missing" / "x.svg")
    assert list(tmp_path.iterdir()) == []


def test_vector_graphics_name_the_extra(pair, tmp_path, monkeypatch):
    imported = builtins.__import__

    def without(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return imported(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    for suffix in (".pdf", ".svg"):
        with pytest.raises(caloric.InputError, match=r"caloric\[viz\]"):
            pair.save(tmp_path / f"x{suffix}")
    pair.save(tmp_path / "x.png")
    assert np.any(cv2.imread(str(tmp_path / "x.png")))
