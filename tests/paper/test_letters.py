import numpy as np
import pytest

from caloric.paper.letters import ALPHABET, AffineMap, render


def test_a_shift_of_the_map_moves_the_letter_the_other_way():
    """The patch shows f ∘ τ: shifting τ by +b moves the letter by −b."""
    original = render("L")
    shifted = render("L", AffineMap(np.eye(2), np.array([2 / 32, 0.0])))
    np.testing.assert_allclose(shifted[:, :-1], original[:, 1:], atol=1e-6)
    assert 0 < original.min() < 0.2
    assert original.max() == pytest.approx(1, abs=1e-3)
    assert len({render(c).tobytes() for c in ALPHABET}) == 26
