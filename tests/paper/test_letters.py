import numpy as np
import pytest

from caloric.paper.letters import ALPHABET, Move, render


def test_letters_move_as_the_theory_says():
    """The patch shows f ∘ τ: shifting τ by +b moves the picture by −b."""
    still = render("L")
    shifted = render("L", Move(np.eye(2), np.array([2 / 32, 0.0])))
    np.testing.assert_allclose(shifted[:, :-1], still[:, 1:], atol=1e-6)
    assert 0 < still.min() < 0.2
    assert still.max() == pytest.approx(1, abs=1e-3)
    assert len({render(c).tobytes() for c in ALPHABET}) == 26
