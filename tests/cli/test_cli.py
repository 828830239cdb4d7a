"""The command line, examples of the documentation, and imports."""

import doctest
import re
import subprocess
import sys

import cv2
import pytest
from skimage import data
from typer.testing import CliRunner

import caloric
from caloric import cli, pipeline
from caloric.alignment import align, templates
from caloric.descriptor import engine
from caloric.image import inputs
from paths import README


def test_info():
    result = CliRunner().invoke(cli.app, ["info"])
    assert result.exit_code == 0
    assert f"caloric {caloric.__version__}" in result.stdout
    assert "heat" in result.stdout


def test_help_fits_one_screen():
    result = CliRunner().invoke(cli.app, ["--help"])
    assert result.exit_code == 0
    assert "paper" in result.stdout
    assert len(result.stdout.splitlines()) < 40


@pytest.mark.parametrize("arguments", [[], ["match"], ["collection", "run"], ["bench", "pairs"]])
def test_help_shows_no_type_for_flags(arguments):
    assert "bool" not in CliRunner().invoke(cli.app, [*arguments, "--help"]).stdout


@pytest.mark.parametrize("arguments", [["frobnicate"], ["paper"], ["paper", "--color", "x"]])
def test_invalid_usage_exits_with_status_2(arguments):
    assert CliRunner().invoke(cli.app, arguments).exit_code == 2


def test_optional_libraries_are_not_imported():
    """Importing the library and the command line must be fast."""
    code = (
        "import sys, caloric, caloric.cli; "
        "print([m for m in ('matplotlib', 'torch', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_code_of_the_readme_and_the_first_steps_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, image in zip("AB", data.stereo_motorcycle()[:2], strict=True):
        cv2.imwrite(f"{name}.jpg", image[..., ::-1])
    scope: dict[str, object] = {}
    for page, count in ((README, 2), (README.parent / "docs" / "start.md", 6)):
        blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.S)
        assert len(blocks) == count
        exec("\n".join(blocks), scope)
        assert len(scope["pair"].points_a) > 100
    assert scope["geometry"].inliers.sum() > 300
    assert (tmp_path / "matches.png").stat().st_size > 1000
    assert (tmp_path / "step_by_step.png").stat().st_size > 1000
    assert scope["descriptors"].shape == (100, 128)
    assert scope["maps"].shape == (8, 32, 32)


@pytest.mark.slow
def test_the_code_of_the_recipes_runs_and_finds_more_inliers():
    """Inliers of an OpenCV script with SIFT, and with Caloric instead."""
    pytest.importorskip("kornia")
    text = (README.parent / "docs/recipes.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.S)
    assert len(blocks) == 6
    scope: dict[str, object] = {}
    exec("\n".join(blocks), scope)
    assert scope["after"] > scope["before"] > 100
    assert scope["described"].shape == (1, 2, 128)
    assert len(scope["matches"]) > 200


@pytest.mark.slow
def test_user_code_passes_mypy_strict(tmp_path):
    pytest.importorskip("mypy")
    file = tmp_path / "user.py"
    file.write_text(
        "import io\n"
        "from pathlib import Path\n\n"
        "import numpy as np\n"
        "from PIL import Image\n\n"
        "import caloric\n"
        "from caloric import viz\n\n"
        "image = np.zeros((40, 50), np.uint8)\n"
        "a: caloric.Features = caloric.extract(image, max_features=10)\n"
        "both: list[caloric.Features] = caloric.extract([image, image])\n"
        "matches: caloric.Matches = caloric.match(a, a, ratio=0.8)\n"
        "geometry: caloric.Geometry = caloric.verify(a, a, matches, model='affine')\n"
        "pair: caloric.ImageMatch = caloric.match_images(image, 'b.jpg')\n"
        "alignment: caloric.Alignment = caloric.align(image, image)\n"
        "text: str = caloric.cite('heat')\n"
        "pillow = Image.open('a.png')\n"
        "images: list[caloric.ImageLike] = [\n"
        "    image, pillow, 'a.png', Path('a.png'), b'', io.BytesIO(), open('a.png', 'rb'),\n"
        "    caloric.open_image('a.tif'), image.tolist(),\n"
        "]\n"
        "one: caloric.Features = caloric.extract(pillow, mask=pillow)\n"
        "two: caloric.Features = caloric.extract('a.png')\n"
        "many: list[caloric.Features] = caloric.extract(['a.png', 'b.png'])\n"
        "more: list[caloric.Features] = caloric.extract_many([pillow, pillow])\n"
        "caloric.match_images(pillow, io.BytesIO(), white_level=4095, masks=(pillow, None))\n"
        "caloric.align(pillow, Path('a.png'))\n"
        "caloric.find_template(pillow, ['a.png', pillow])\n"
        "caloric.refine(pillow, 'b.png', [[1.0, 2.0]], [[1.0, 2.0]])\n"
        "caloric.describe(caloric.read_image(pillow), caloric.detect(b''))\n"
        "viz.draw_features(pillow, one)\n"
        "def pixels(image: caloric.ImageLike) -> int:\n"
        "    return len(caloric.read_image(image, white_level=4095))\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", str(file)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    file.write_text("import caloric\ncaloric.cite(3)\ncaloric.extract(None)\n")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--cache-dir", "cache", str(file)],
        capture_output=True, text=True, cwd=tmp_path,
    )  # fmt: skip
    assert "incompatible type" in done.stdout
    assert "No overload variant" in done.stdout


def test_citations_name_the_sources_of_a_descriptor():
    assert caloric.cite("heat").count("@") == 1
    for name, who in (("sift", "Lowe"), ("dsp-inner", "Dong"), ("distribution-field", "Sevilla")):
        assert who in caloric.cite(name)
        assert "Mobahi" in caloric.cite(name)
    with pytest.raises(caloric.InputError, match="magic"):
        caloric.cite("magic")


def test_examples_in_docstrings():
    for module in (caloric, pipeline, engine, align, templates, inputs):
        result = doctest.testmod(module)
        assert result.attempted > 0, module
        assert result.failed == 0, module


def test_the_citation_file_has_the_version():
    text = (README.parent / "CITATION.cff").read_text(encoding="utf-8")
    assert f"version: {caloric.__version__}" in text


def test_the_package_can_be_run_as_a_module():
    def run(*words):
        return subprocess.run(
            [sys.executable, "-m", "caloric", *words], capture_output=True, text=True, check=False
        )

    assert run("--version").stdout.strip() == f"caloric {caloric.__version__}"
    result = run("match", "missing.png", "missing.png")
    assert result.returncode == 2
    assert result.stderr.startswith("caloric: ")


def test_version_option(command):
    assert command("--version")[1].strip() == f"caloric {caloric.__version__}"


@pytest.mark.parametrize(
    "words",
    [
        "extract bad.png -o new/out",
        "extract bad.png -o new --to text",
        "extract bad.png -o new --to openmvg",
        "extract bad.png -o new --to opensfm",
        "extract missing.png -o new",
        "collection run missing -o new/out",
        "collection extract empty -o new/out",
        "collection export missing --to openmvg",
    ],
)
def test_failed_commands_leave_no_directories(words, command, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.png").write_bytes(b"not an image")
    (tmp_path / "empty").mkdir()
    assert command(*words.split())[0] == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.png", "empty"]
