"""Functions whose keywords are the fields of an options dataclass."""

import inspect
from dataclasses import dataclass

import pytest

import caloric
from caloric.runtime import keywords


@dataclass(frozen=True, kw_only=True)
class Options:
    """Options of a test.

    Parameters
    ----------
    size : int
        Number of ``rows``. At least 1.
    name : str
        A name.
    """

    size: int = 3
    name: str = "a"


@keywords.takes(Options)
def double(value, *, name="b", **options):
    """Return something.

    Parameters
    ----------
    value : int
        The value.
    **options
        See Options.

    Returns
    -------
    tuple
    """
    return value, name, options


def test_the_signature_and_the_docstring_list_the_fields():
    assert list(inspect.signature(double).parameters) == ["value", "name", "size"]
    assert "size : int\n    Number of ``rows``. At least 1.\n\nReturns" in double.__doc__
    assert "**options" not in double.__doc__


def test_a_misspelled_keyword_suggests_the_nearest():
    assert double(1, size=2) == (1, "b", {"size": 2})
    with pytest.raises(caloric.InputError, match="'sise'; did you mean 'size'"):
        double(1, sise=2)


def test_the_summary_is_the_first_sentence_without_markup():
    assert keywords.summary(Options, "size") == "Number of rows."


def test_public_functions_document_all_keywords():
    for function in (caloric.detect, caloric.describe, caloric.extract, caloric.match_images):
        for name, parameter in inspect.signature(function).parameters.items():
            if parameter.kind is parameter.KEYWORD_ONLY:
                text = function.__doc__
                assert f"\n{name}" in text or f", {name}" in text, (function, name)
