"""The search finds known shifts, rotations and scales."""

from dataclasses import replace

import numpy as np
import pytest

from caloric.alignment import search, search_on_device, transforms
from caloric.alignment.schedule import SCHEDULE
from caloric.alignment.search import Search
from caloric.descriptor import fields
from template_problems import problem, unit

ORIENTATION = fields.feature("orientation")
OPTIONS = Search(SCHEDULE.rotations, SCHEDULE.scales, 5)


def candidates(template, image, options=OPTIONS):
    pyramids = [fields.pyramid(ORIENTATION.measure(unit(v), 12.0)) for v in (template, image)]
    columns = search.rotated_templates(pyramids[0], template.shape, ORIENTATION, options.rotations)
    return search.search(pyramids[1], image.shape, [columns, columns], template.shape, options)


@pytest.mark.parametrize("move", [{}, {"degrees": 90}, {"degrees": -30, "scale": 1.26}])
def test_the_best_candidate_is_near_the_truth(move):
    template, image, truth = problem(**move)
    first, second = candidates(template, image)
    assert [c.transform.tolist() for c in first] == [c.transform.tolist() for c in second]
    assert len(first) == 5
    assert [c.score for c in first] == sorted((c.score for c in first), reverse=True)
    best, center = first[0].transform, transforms.center(template.shape)
    centers = [t[:, :2] @ center + t[:, 2] for t in (best, truth)]
    assert np.linalg.norm(centers[0] - centers[1]) < 96 / SCHEDULE.grid * transforms.scale(truth)
    assert transforms.scale(best) == pytest.approx(transforms.scale(truth), rel=0.2)
    assert transforms.angle(best) == pytest.approx(transforms.angle(truth), abs=0.2)


def test_candidates_are_distinct():
    template, image, _ = problem()
    (kept, _) = candidates(template, image)
    for i, a in enumerate(kept):
        assert not any(search._is_near(a, b, OPTIONS.rotations) for b in kept[:i])
    shifts, _ = candidates(template, image, replace(OPTIONS, rotations=1, scales=(1.0,)))
    np.testing.assert_array_equal(shifts[0].transform[:, :2], np.eye(2))


def test_a_device_gives_the_scores_of_the_cpu():
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    values = rng.standard_normal((5, 30, 40)).astype(np.float32)
    columns = rng.standard_normal((5 * int(search.INSIDE.sum()), 3 * 24)).astype(np.float32)
    cpu = search.correlate(values, columns, 24)
    device = search_on_device.for_device(torch.device("cpu"))(values, columns, 24)
    assert cpu[0].shape == (3, 30 - SCHEDULE.grid + 1, 40 - SCHEDULE.grid + 1)
    np.testing.assert_allclose(cpu[0], device[0], atol=1e-3)
    assert (cpu[1] == device[1]).mean() > 0.999
