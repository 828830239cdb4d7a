"""Counts in messages."""

import pytest

from caloric.runtime.words import counted


@pytest.mark.parametrize(
    ("count", "noun", "text"),
    [
        (1, "image", "1 image"), (0, "pair", "0 pairs"), (2000, "match", "2,000 matches"),
        (1, "match", "1 match"),
    ],
)  # fmt: skip
def test_nouns_agree_with_their_counts(count, noun, text):
    assert counted(count, noun) == text
