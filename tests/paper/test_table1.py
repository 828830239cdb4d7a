"""Letters compared by forced choice: seeded deformations, and counts by hand."""

import numpy as np
import pytest

from caloric.paper import table1
from caloric.paper.letters import random_move


def test_deformations_are_seeded_and_of_their_strength():
    moves = [random_move(np.random.default_rng(s), 0.3) for s in range(2000)]
    spread = np.std([m.A - np.eye(2) for m in moves])
    assert spread == pytest.approx(0.3, rel=0.05)
    again = table1.deform(3, 1, (0.2,))
    np.testing.assert_array_equal(again.copies, table1.deform(3, 1, (0.2,)).copies)


def test_forced_choice_counts_by_hand():
    """margins, choices and shares against a plain loop over pairs and draws."""
    letters = table1.deform(0, 2, (0.4,))
    how = table1.method("sift", sigma_d=0.3, sigma_r=0.8)
    margin = table1.margins(letters, how)["l2"]
    choice = table1.choices(margin)
    right = []
    raw = how.describe(np.concatenate([letters.originals, letters.copies[0].reshape(-1, 24, 24)]))
    unit = raw / np.linalg.norm(raw, axis=1, keepdims=True)
    ours, theirs = unit[:26], unit[26:].reshape(26, 2, -1)
    for number, (a, b) in enumerate(table1.PAIRS):
        for r in range(2):
            for s in range(2):
                correct = np.sum((ours[a] - theirs[a, r]) ** 2) + np.sum(
                    (ours[b] - theirs[b, s]) ** 2
                )
                wrong = np.sum((ours[a] - theirs[b, s]) ** 2) + np.sum(
                    (ours[b] - theirs[a, r]) ** 2
                )
                assert choice[0, number, r, s] == pytest.approx(wrong - correct, abs=1e-4)
                right.append(correct < wrong)
    resampled = table1.bootstrap(choice, resamples=20)
    assert resampled.shape == (21, 1)
    share = table1.intervals(resampled)[0]
    assert share.mean == pytest.approx(np.mean(right), abs=2e-3)
    assert share.low <= share.mean <= share.high
