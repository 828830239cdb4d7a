"""The search: candidates at known shifts, rotations and scales."""

from dataclasses import replace

import numpy as np
import pytest

from caloric.alignment import search, search_on_device, transforms
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Search
from caloric.descriptor import fields
from template_problems import problem, unit

ORIENTATION = fields.feature("orientation")
HOW = Search(SCHEDULE.turns, SCHEDULE.scales, 5)


def candidates(template, image, how=HOW):
    pyramids = [fields.pyramid(ORIENTATION.measure(unit(v), 12.0)) for v in (template, image)]
    columns = search.rotated_templates(pyramids[0], template.shape, ORIENTATION, how.turns)
    return search.search(pyramids[1], image.shape, [columns, columns], template.shape, how)


@pytest.mark.parametrize("move", [{}, {"degrees": 90}, {"degrees": -30, "scale": 1.26}])
def test_the_best_candidate_is_near_the_truth(move):
    template, image, truth = problem(**move)
    first, second = candidates(template, image)
    assert [c.transform.tolist() for c in first] == [c.transform.tolist() for c in second]
    assert len(first) == 5
    assert [c.score for c in first] == sorted((c.score for c in first), reverse=True)
    best, center = first[0].transform, transforms.center(template.shape)
    places = [t[:, :2] @ center + t[:, 2] for t in (best, truth)]
    assert np.linalg.norm(places[0] - places[1]) < 96 / SCHEDULE.grid * transforms.scale(truth)
    assert transforms.scale(best) == pytest.approx(transforms.scale(truth), rel=0.2)
    assert transforms.angle(best) == pytest.approx(transforms.angle(truth), abs=0.2)


def test_candidates_are_apart():
    template, image, _ = problem()
    (found, _) = candidates(template, image)
    for i, a in enumerate(found):
        assert not any(search._near(a, b, HOW.turns) for b in found[:i])
    shifts, _ = candidates(template, image, replace(HOW, turns=1, scales=(1.0,)))
    np.testing.assert_array_equal(shifts[0].transform[:, :2], np.eye(2))


def test_a_device_compares_as_the_cpu_does():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 30, 40)).astype(np.float32)
    columns = rng.standard_normal((5 * int(search.INSIDE.sum()), 3 * 24)).astype(np.float32)
    here = search.correlate(values, columns, 24)
    there = search_on_device.on(torch.device("cpu"))(values, columns, 24)
    assert here[0].shape == (3, 30 - SCHEDULE.grid + 1, 40 - SCHEDULE.grid + 1)
    np.testing.assert_allclose(here[0], there[0], atol=1e-3)
    assert (here[1] == there[1]).mean() > 0.999
