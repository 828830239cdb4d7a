"""Levenberg-Marquardt registration."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from caloric.alignment import registration, scenes, transforms
from caloric.descriptor import fields
from template_problems import problem, unit


@settings(max_examples=10, deadline=None)
@given(
    a=st.floats(-0.1, 0.1), b=st.floats(-0.1, 0.1), x=st.floats(-0.1, 0.1), y=st.floats(-0.1, 0.1)
)
def test_descent_never_raises_the_energy(a, b, x, y):
    template, image, truth = problem()
    scene = scenes.scene(unit(template), unit(image), fields.feature("orientation"))
    level = scene.level(8.0, "similarity")
    start = transforms.composed(template.shape, "similarity", truth, np.array([a, b, x, y]))
    before = scene.evaluate(level, start).energy
    after = registration.minimize(scene, level, start)
    assert after.cost <= before
