"""The check of retired terms finds them in prose, comments and names, and nowhere else."""

import pytest

from tools import language

TERMS = language.read_terms(language.TERMS.read_text("utf-8"))


def found(text, path="a.md"):
    return [line.split(": ", 1)[1] for line in language.problems(path, text, TERMS)]


@pytest.mark.parametrize(
    "text",
    [
        "seen from 78 degrees aside",
        "verify the matches by a geometry. Exit code 1: none is believed.",
        "what an entry of a descriptor takes of a patch: SIFT's kernel stays as small far out",
        "killed three times, for want of memory perhaps",
        "the same on a local page, to look into",
        "where the one is in the other, and whether to believe it",
        "divide by 255 or by whatever white is",
        "nobody waits for this result",
        "views to tilt 8 tried in vain",
        "Arrays of any type travel as they are",
        "Beyond the rim the image goes on as it is there",
        "most pairs told apart by bytes",
        "a level that is not there",
        "Gauss and Newton's steps",
        "643 right matches within 3 px",
        "it is more likely right than not",
        "a whole number from 1",
        "# from the border of the image; a twin\n",
        "// The rest is made\n// anew.",
        "    # results to the\n    # bytes of the CPU",
    ],
)
def test_retired_phrases_are_reported(text):
    assert found(text)


@pytest.mark.parametrize(
    "text",
    [
        "the right half of the image",
        "sorted in place, to two decimal places",
        "a dark and a light theme, LightGlue",
        "all figures and tables of the paper",
        "the message says what is wrong",
        "returned, rotated, trimmed, recommended, Holden",
    ],
)
def test_ordinary_text_is_not_reported(text):
    assert found(text) == []


def test_identifiers_are_read_as_words():
    assert found("is_told(x)") == ["'told'; write: reported, notified, logged, distinguished"]


def test_uninformative_names_are_reported_where_they_are_defined():
    code = "def f(own):\n    there = own\n    return there\n"
    assert [line.split("'")[1] for line in found(code, "a.py")] == ["own", "there"]
    assert found("const found = 1;", "a.js") == ["the name 'found' says too little"]
    assert found("class Result:\n    found: int\n", "a.py") == []


def test_the_line_of_a_phrase_is_reported(monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(language, "ROOT", tmp_path)
    (tmp_path / "a.md").write_text("one\ntwo twins\n")
    assert language.main(["a.md"]) == 1
    assert capsys.readouterr().out.startswith("a.md:2: 'twins'")
    assert language.main(["missing.md"]) == 0
