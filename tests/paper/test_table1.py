"""Forced choices between letters: seeded deformations, and counts."""

import numpy as np
import pytest

from caloric.paper import table1
from caloric.paper.letters import random_deformation


def test_deformations_are_seeded_and_have_the_given_strength():
    deformations = [random_deformation(np.random.default_rng(s), 0.3) for s in range(2000)]
    spread = np.std([m.A - np.eye(2) for m in deformations])
    assert spread == pytest.approx(0.3, rel=0.05)
    again = table1.deform(3, 1, (0.2,))
    np.testing.assert_array_equal(again.copies, table1.deform(3, 1, (0.2,)).copies)


def test_forced_choices_agree_with_a_loop():
    """Margins, choices and shares, compared with a loop over pairs and draws."""
    letters = table1.deform(0, 2, (0.4,))
    method = table1.method("sift", sigma_d=0.3, sigma_r=0.8)
    margin = table1.margins(letters, method)["l2"]
    choice = table1.choices(margin)
    is_correct = []
    raw = method.describe(
        np.concatenate([letters.originals, letters.copies[0].reshape(-1, 24, 24)])
    )
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    originals, copies = unit[:26], unit[26:].reshape(26, 2, -1)
    for number, (a, b) in enumerate(table1.PAIRS):
        for r in range(2):
            for s in range(2):
                correct = np.sum((originals[a] - copies[a, r]) ** 2) + np.sum(
                    (originals[b] - copies[b, s]) ** 2
                )
                incorrect = np.sum((originals[a] - copies[b, s]) ** 2) + np.sum(
                    (originals[b] - copies[a, r]) ** 2
                )
                assert choice[0, number, r, s] == pytest.approx(incorrect - correct, abs=1e-4)
                is_correct.append(correct < incorrect)
    resampled = table1.bootstrap(choice, resamples=20)
    assert resampled.shape == (21, 1)
    share = table1.intervals(resampled)[0]
    assert share.mean == pytest.approx(np.mean(is_correct), abs=2e-3)
    assert share.low <= share.mean <= share.high
