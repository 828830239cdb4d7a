"""Comparison of features of whole images and of tiles."""

import numpy as np

from caloric.runtime import native

FOUR_TILES = 20_000_000  # bytes of memory with which a 512 x 512 image has four tiles


def agree(whole, tiled):
    """Assert that features agree: bit-identical with the compiled core, else up to rounding."""
    assert len(whole) == len(tiled)
    if len(whole) == 0:
        return
    if native.core() is not None:
        assert whole.frames.maps.tobytes() == tiled.frames.maps.tobytes()
        assert whole.descriptors.tobytes() == tiled.descriptors.tobytes()
        return
    np.testing.assert_allclose(tiled.frames.maps, whole.frames.maps, atol=1e-3)
    assert np.quantile(np.abs(whole.descriptors - tiled.descriptors).max(1), 0.99) < 1e-3
