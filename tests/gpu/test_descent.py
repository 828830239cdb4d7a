"""Refinement on a device agrees with the CPU."""

import numpy as np
import pytest

import caloric
from caloric.gpu import descent, graphs
from caloric.matching import refinement as on_cpu
from matched_views import frames_of, matched_views
from torch_device import DEVICE, HERE, out_of_memory


@pytest.fixture(scope="module")
def pair():
    return matched_views()


def test_refined_matches_agree_with_the_cpu(pair):
    maps_a, maps_b = frames_of(pair)
    maps_a, maps_b = maps_a[:200], maps_b[:200].copy()
    maps_b[::9, :, 2] += 300  # outside the image
    refined = caloric.refine(*pair[:2], maps_a, maps_b, device=HERE)
    expected = caloric.refine(*pair[:2], maps_a, maps_b)
    assert (refined.moved == expected.moved).mean() > 0.98
    both = refined.moved & expected.moved
    assert np.quantile(np.linalg.norm(refined.xy - expected.xy, axis=1)[both], 0.98) < 1e-3
    for name in ("covariances", "total_covariances"):
        variances = [getattr(result, name)[both][:, 0, 0] for result in (refined, expected)]
        assert np.abs(np.log(np.quantile(np.divide(*variances), [0.02, 0.98]))).max() < 0.02
    assert len(caloric.refine(*pair[:2], [], [], device=HERE)) == 0


def test_results_do_not_depend_on_the_batch_size(pair, monkeypatch):
    a, b = frames_of(pair)
    pixels = [image.astype(np.float32) / 255 for image in pair[:2]]
    whole = descent.descend(*pixels, a, b, DEVICE)
    monkeypatch.setattr(descent, "_BATCH", 100)
    parts = descent.descend(*pixels, a, b, DEVICE)
    for one, other in zip(vars(whole).values(), vars(parts).values(), strict=True):
        assert one.shape == other.shape
        assert np.quantile(np.abs(one - other), 0.98) < 1e-4


def test_images_may_be_prepared(pair):
    a, b = (maps[:20] for maps in frames_of(pair))
    pixels = [image.astype(np.float32) / 255 for image in pair[:2]]
    octaves = descent.prepared_images(pair[:2], ["a", "b"], DEVICE)
    expected = descent.descend(*pixels, a, b, DEVICE)
    actual = descent.descend(*octaves, a, b, DEVICE)
    for one, other in zip(vars(expected).values(), vars(actual).values(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_out_of_memory_falls_back_to_the_cpu(pair, monkeypatch, caplog):
    a, b = (maps[:20] for maps in frames_of(pair))
    pixels = [image.astype(np.float32) / 255 for image in pair[:2]]

    octaves = [descent.prepared(v, DEVICE) for v in pixels]
    expected = on_cpu.descend(*pixels, a, b).maps
    monkeypatch.setattr(descent.torch, "cat", out_of_memory)
    np.testing.assert_array_equal(descent.descend(*octaves, a, b, DEVICE).maps, expected)
    assert "refining 20 matches" in caplog.text


def test_matches_are_refined_while_their_agreement_is_computed(pair):
    """All candidates are refined, of which the same are kept as without refinement."""
    first, second, a, b, _ = pair
    plain = caloric.match(a, b, agreement=True, device=HERE)
    both = caloric.match(a, b, agreement=True, refine=True, images=(first, second), device=HERE)
    np.testing.assert_array_equal(plain.indices, both.indices)
    np.testing.assert_array_equal(plain.origin, both.origin)
    rows, columns = plain.indices.T
    refined = caloric.refine(
        first, second, a.frames.maps[rows], b.frames.maps[columns], device=HERE
    )
    np.testing.assert_allclose(both.refined, refined.maps, atol=1e-3)
    assert refined.moved.mean() > 0.5


def test_the_result_without_matches_is_refined(pair):
    first, second, a, b, _ = pair
    for device in ("cpu", HERE):
        matches = caloric.match(
            a[:0], b, agreement=True, refine=True, images=(first, second), device=device
        )
        assert (matches.refined.shape, matches.covariances.shape) == ((0, 2, 3), (0, 2, 2))


def test_pairs_of_one_size_in_turn(pair):
    """Recorded graphs do not depend on the images for which they were recorded."""
    first, second, *_ = pair
    a, b = (maps[:100] for maps in frames_of(pair))
    moved = a.copy()
    moved[:, :, 2] += (3.0, -2.0)
    others = (second, b), (np.roll(first, (-2, 3), (0, 1)), moved)

    def refined(number, release):
        image, starts = others[number]
        octaves = [descent.prepared(i, DEVICE) for i in (first, image)]
        if release:
            graphs.clear()  # as if memory had run out before the refinement
        return descent.descend(*octaves, a, starts, DEVICE).maps

    expected = [refined(number, True) for number in range(2)]
    for release in (True, False):
        for number in (0, 0, 1, 0, 1):
            np.testing.assert_allclose(refined(number, release), expected[number], atol=1e-6)
            release = False
