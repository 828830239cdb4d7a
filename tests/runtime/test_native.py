"""The compiled core agrees with the NumPy code, and its builds are bit-identical."""

import hashlib
import math
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import caloric
import photographs
from caloric.bench.speed import setting
from caloric.descriptor import pooling, recipes, tables
from caloric.detector import extrema
from caloric.image import scalespace
from caloric.matching import neighbors, refinement_steps
from caloric.runtime import native
from marks import exact_sampling
from tools import builds

core = pytest.importorskip("caloric_native")
BUILDS = builds.distinct(core.kinds())
FAST = [kind for kind in core.kinds() if kind != "portable"]
EXTREMA = {**extrema.REFINEMENT, "contrast": 0.01, "edge_ratio": 10.0}
REFINEMENT = {
    "spacing": 0.5, "tolerance": 1e-4, "max_step": 0.4, "damping": 1e-3, "damping_decrease": 5.0,
    "damping_increase": 10.0, "min_increased_damping": 1e-2, "relative_damping": 1e-6,
    "max_start_cost": np.inf, "max_cost": 9.0, "power_epsilon": 1e-12, "diagonal_epsilon": 1e-9,
    "min_noise_spacing": 0.5,
    "residual_samples": 128.0, "correlated_cost": 0.25,
}  # fmt: skip


def with_build(kind, function, *args, **kwargs):
    """Return the result of a function with a build of the core, or with NumPy for kind "0"."""
    try:
        with setting(CALORIC_NATIVE=kind):
            return function(*args, **kwargs)
    finally:
        core.use(core.kinds()[0])


@pytest.fixture(scope="module")
def image():
    return photographs.gray("camera")


def gray(image):
    return (image / np.float32(255)).astype(np.float32)


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 40), (40, 1), (3, 5), (33, 47), (64, 64), (70, 131)])
@pytest.mark.parametrize("sigma", [0.7, 1.6, 3.09])
def test_blur_agrees_with_opencv(kind, shape, sigma):
    source = np.random.default_rng(0).random(shape).astype(np.float32)
    taps = [scalespace.taps(s) for s in (sigma, 0.0, 1.2, sigma)]
    layers = np.full((4, *shape), np.nan, np.float32)
    try:
        core.use(kind)
        for top in range(0, shape[0], 7):
            core.octave(source, False, layers, taps, top, min(top + 7, shape[0]))
    finally:
        core.use(core.kinds()[0])
    expected = source.astype(np.float64)
    for layer, weights in zip(layers, taps, strict=True):
        border = cv2.BORDER_REFLECT_101
        expected = cv2.sepFilter2D(expected, -1, weights, weights, borderType=border)
        expected = expected.reshape(shape)
        np.testing.assert_allclose(layer, expected, atol=2e-6)


@pytest.mark.parametrize("kind", BUILDS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 9), (9, 1), (5, 7), (20, 33), (70, 41)])
def test_enlarging_agrees_with_opencv_and_numpy(kind, shape):
    """Each pixel becomes two, a quarter to either side, as in OpenCV's bilinear resize."""
    source = np.random.default_rng(0).random(shape).astype(np.float32)
    taps = [scalespace.taps(s) for s in (0.0, 1.2)]
    h, w = 2 * shape[0], 2 * shape[1]
    layers = np.full((2, h, w), np.nan, np.float32)
    try:
        core.use(kind)
        for top in range(0, h, 5):
            core.octave(source, True, layers, taps, top, min(top + 5, h))
    finally:
        core.use(core.kinds()[0])
    np.testing.assert_allclose(layers[0], cv2.resize(source, (w, h)).reshape(h, w), atol=2e-7)
    enlarged = scalespace._enlarged(source)
    np.testing.assert_allclose(layers[0], enlarged, atol=2e-7)
    blurred = cv2.sepFilter2D(enlarged, -1, taps[1], taps[1], borderType=cv2.BORDER_REFLECT_101)
    np.testing.assert_allclose(layers[1], blurred.reshape(h, w), atol=2e-6)


@pytest.mark.parametrize("kind", BUILDS)
def test_extrema_agree_with_numpy(kind, image):
    space = scalespace.build(gray(image))
    plain, compiled = (with_build(k, extrema.extrema, space) for k in ("0", kind))
    assert len(plain) == len(compiled) > 500
    np.testing.assert_allclose(compiled.xy, plain.xy, atol=1e-9)
    np.testing.assert_allclose(compiled.sigma, plain.sigma, rtol=1e-9)
    np.testing.assert_allclose(compiled.response, plain.response, rtol=1e-6)


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        # All recipes with the fastest build, and a few with the others.
        *((BUILDS[0], name) for name in (*recipes.descriptors(), *recipes.VARIANTS)),
        *((kind, name) for kind in BUILDS[1:] for name in ("caloric", "heat", "sift")),
    ],
)
@exact_sampling
def test_descriptors_agree_with_numpy(kind, name, image):
    ladder = scalespace.build(gray(image)).ladder()
    rng = np.random.default_rng(1)
    # Some frames cross the border, some are outside of the image, some are large, some are sheared.
    n = 150
    x, y, angle = rng.uniform(-60, 570, n), rng.uniform(-60, 570, n), rng.uniform(-4, 4, n)
    maps = caloric.Frames.from_xysa(x, y, np.exp(rng.uniform(0, 4, n)), angle).maps.copy()
    maps[::5, :, :2] = maps[::5, :, :2] @ np.array([[1.3, 0.5], [0, 0.8]])
    recipe = recipes.descriptor(name)
    table = tables.tabulate(
        recipe.kernel, recipe.layout, recipe.sampling, max_order=recipe.harmonics
    )
    args = (ladder, maps, recipe.sampling, recipe.kernel, table, recipe.power)
    plain, compiled = (with_build(k, pooling.pool_frames, *args) for k in ("0", kind))
    scale = np.abs(plain).max(1, keepdims=True)
    # Positions are rounded to 24 bits, and a power of 0.3 amplifies faint gradients.
    assert np.abs(compiled - plain).max() <= 3e-3 * scale.max()
    assert np.median(np.abs(compiled - plain).max(1) / np.maximum(scale[:, 0], 1e-9)) < 1e-4
    assert ((plain == 0).all(1) == (compiled == 0).all(1)).all()


def nearest(a, b, xy, radius, screened=True):
    """Return the nearest columns, the best two scores, and the best scores of the columns."""
    half_a, half_b = ((0.5 * (v.astype(np.float64) ** 2).sum(1)).astype(np.float32) for v in (a, b))
    column = np.empty(len(a), np.int64)
    best, second, best_of_column = (
        np.full(n, -np.inf, np.float32) for n in (len(a), len(a), len(b))
    )
    core.nearest(
        a=a, half_a=half_a, columns=core.Columns(b, half_b, screened), xy=xy, radius=radius,
        column=column, best=best, second=second, best_of_column=best_of_column,
    )  # fmt: skip
    return column, best, second, best_of_column


# Hashes of the results of the AVX2, AVX-512 and NEON builds. Mention changes in CHANGELOG.md.
HASHES = {
    "octaves": "10c5205cd24085f7",
    "extrema": "157a2cbacf6dd2cd",
    "descriptors": "885db9d59e9ef97e",
    "neighbors": "4e8d67cc7b2d75ae",
    "refinement": "044f2b47165af4e0",
}


def reference_results():
    """Yield stages and the bytes of their results, for the same inputs on every machine."""
    rng = np.random.default_rng(0)
    image = np.kron(rng.integers(0, 256, (30, 43)), np.ones((5, 5)))[:, :211].astype("f") / 256
    rows = [[math.comb(2 * r, k) for k in range(2 * r + 1)] for r in (2, 3, 4, 6, 9, 13)]
    taps = [(np.array(row) / 4.0 ** (len(row) // 2)).astype(np.float32) for row in rows]
    octave, enlarged = np.empty((6, 150, 211), np.float32), np.empty((6, 300, 422), np.float32)
    core.octave(image, False, octave, taps, 0, 150)
    core.octave(image, True, enlarged, taps, 0, 300)
    yield "octaves", octave.tobytes() + enlarged.tobytes()
    candidates = core.candidates(octave, 0.01, 1, 149)
    assert len(candidates) > 20
    refined = core.refine_extrema(octave, candidates, EXTREMA)
    assert len(refined) > 10
    yield "extrema", candidates.tobytes() + refined.tobytes()
    order, points, frames = 3, 61, 100
    factors = [rng.integers(-64, 65, shape).astype(np.float32) / 64 for shape in
               [(points, 9), *[(2 * points, 18)] * order]]  # fmt: skip
    synthesis = rng.integers(-64, 65, (5, 2 * order + 1)).astype(np.float32) / 64
    maps = rng.integers(-256, 257, (frames, 2, 3)) / 64
    maps[:, :, 2] = rng.integers(-10, 220, (frames, 2)) + maps[:, :, 2] / 8
    # Two runs of points, each mirrored onto itself, and a few pairs of mirrored columns.
    partners = np.concatenate([np.arange(20)[::-1], np.arange(20, points)[::-1]])
    mirrored = np.array([[0, 3, 0], [10, 11, 0], [20, 26, 1]])
    columns = [rng.permutation(factor.shape[1]) for factor in factors]
    table = core.Table(
        factors, columns, partners=partners, mirrored=mirrored, synthesis=synthesis, order=order
    )
    raw = np.empty((frames, 45), np.float32)
    for power in (1.0, 0.25):
        core.describe(
            levels=[(octave[1], 1.0, 0.0, 0, 0), (enlarged[2], 0.5, -0.25, 0, 0)], size=(150, 211),
            maps=maps, level_indices=rng.integers(0, 2, (frames, 2)),
            offsets=rng.integers(-256, 257, (2, points)).astype("f") / 64,
            factors=rng.integers(1, 65, points).astype(np.float32) / 64,
            runs=np.array([0, 20, points]), power=power, table=table, raw=raw,
        )  # fmt: skip
        yield "descriptors", raw.tobytes()
    a, b = (rng.integers(-64, 65, (n, 128)).astype(np.float32) / 512 for n in (90, 131))
    # The int8 bound, where it is fast, skips products without changing the result.
    arrays = nearest(a, b, None, 0.0)
    product = np.empty((90, 131), np.float32)
    core.product(a, core.pack(b), product)
    yield "neighbors", b"".join(array.tobytes() for array in arrays)
    yield "neighbors", product.tobytes()
    side, band = refinement_steps.SIDE, np.abs(np.subtract.outer(range(21), range(21)))
    numbers = [rng.integers(-64, 65, (side, side)) * (band < reach) / 256 for reach in (4, 5, 3, 4)]
    filters = [tuple(v.astype(np.float32) for v in numbers[i : i + 2]) for i in (0, 2)]
    window = rng.integers(1, 65, (side, side)).astype(np.float32) / 256
    maps = np.zeros((40, 2, 3))
    maps[:, [0, 1], [0, 1]] = rng.integers(64, 512, (40, 1)) / 64
    maps[:, :, 2] = rng.integers(-20, 230, (40, 2))
    second = maps + rng.integers(-16, 17, maps.shape) / 64
    outputs = [np.empty((40, *shape)) for shape in ((2, 3), (2, 2), (2, 2), (3,))]
    core.refine_matches(
        first=[image, image[::2, ::2].copy()], second=[image], a=maps, b=second, window=window,
        filters=filters, steps=[3, 2], constants=REFINEMENT, noise=np.array([0.25, 0.5]),
        variances=np.array([1.0, 0.25]),
        correlations=np.array([[1.0, 0, 0, 0], [1, 0.5, 0.25, 0]]),
        maps=outputs[0], covariances=outputs[1], totals=outputs[2], statistics=outputs[3],
    )  # fmt: skip
    assert (outputs[0] != second).any()
    yield "refinement", b"".join(v.tobytes() for v in outputs)


@pytest.mark.parametrize("kind", FAST)
def test_results_are_bit_identical_on_every_processor(kind):
    hashes = {name: hashlib.sha256() for name in HASHES}
    try:
        core.use(kind)
        for name, data in reference_results():
            hashes[name].update(data)
    finally:
        core.use(core.kinds()[0])
    assert {name: value.hexdigest()[:16] for name, value in hashes.items()} == HASHES


@pytest.mark.parametrize("name", ["caloric", "heat", "dsp-both"])
def test_features_and_matches_of_builds_are_bit_identical(name, image):
    fast = [kind for kind in BUILDS if kind != "portable"]
    features = [with_build(kind, caloric.extract, image, name, max_features=600) for kind in fast]
    assert len({one.frames.maps.tobytes() for one in features}) == 1
    assert len({one.descriptors.tobytes() for one in features}) == 1
    pair = (features[0], features[0])
    matches = [with_build(kind, caloric.match, *pair, mutual=False) for kind in FAST]
    assert len({one.indices.tobytes() for one in matches}) == 1
    assert len({one.distances.tobytes() for one in matches}) == 1


@pytest.mark.parametrize("kind", BUILDS)
@exact_sampling
def test_whole_pipeline_agrees_with_numpy(kind):
    """Agreement is as good as docs/platforms.md states."""
    images, results = ("camera", "coffee"), ({}, {})
    for image in images:
        for arrays, k in zip(results, ("0", kind), strict=True):
            features = with_build(k, caloric.extract, photographs.gray(image), max_features=800)
            arrays[f"{image}/maps"] = features.frames.maps
            arrays[f"{image}/descriptors"] = features.descriptors
    agreement = builds.agreement(*results, images)
    for name, least in builds.PROMISED.items():
        assert agreement[name] >= least, (name, agreement)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 90), st.integers(1, 90), st.integers(1, 40), st.booleans(), st.integers(0, 10**6)
)
def test_matching_agrees_with_numpy(rows, columns, depth, with_xy, seed):
    rng = np.random.default_rng(seed)
    a, b = (rng.standard_normal((n, depth)).astype(np.float32) for n in (rows, columns))
    b[: columns // 3] = b[0]  # equal ones
    xy = rng.uniform(0, 30, (columns, 2)) if with_xy else None
    plain = with_build("0", neighbors.neighbors, a, b, xy, 10.0)
    for kind in core.kinds():
        compiled = with_build(kind, neighbors.neighbors, a, b, xy, 10.0)
        np.testing.assert_allclose(compiled.first, plain.first, rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(compiled.second, plain.second, rtol=1e-3, atol=2e-3)
        exact = np.sqrt(((a[:, None] - b[None]) ** 2).sum(2))
        np.testing.assert_allclose(
            exact[np.arange(rows), compiled.nearest], exact.min(1), rtol=1e-3, atol=2e-3
        )


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.booleans(),
    st.sampled_from(["normal", "flat", "sparse", "bytes"]), st.integers(-30, 12),
    st.integers(0, 10**6),
)  # fmt: skip
def test_the_int8_bound_does_not_change_results(rows, columns, depth, with_xy, kind, power, seed):
    """Results of all builds with and without the bound are bit-identical."""
    rng = np.random.default_rng(seed)
    a, b = (_rows(rng, n, depth, kind, 10.0**power) for n in (rows, columns))
    b[: columns // 3] = b[0]  # equal ones
    b[columns // 2 :] *= rng.integers(0, 2, (columns - columns // 2, 1))  # and zeros
    a[: rows // 4] = b[rng.integers(0, columns, rows // 4)]  # exact matches
    a, b = (v if rng.random() < 0.8 else np.zeros_like(v) for v in (a, b))
    xy = rng.uniform(0, 30, (columns, 2)) if with_xy else None
    expected = nearest(a, b, xy, 10.0, screened=False)
    try:
        for build in FAST:
            core.use(build)
            for one, other in zip(expected, nearest(a, b, xy, 10.0), strict=True):
                np.testing.assert_array_equal(one, other)
    finally:
        core.use(core.kinds()[0])


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.booleans(),
    st.sampled_from([(0, 256), (0, 2), (100, 160), (255, 256)]), st.integers(0, 10**6),
)  # fmt: skip
def test_neighbors_of_bytes_are_those_of_floats(rows, columns, depth, with_xy, limits, seed):
    """Sums of products of bytes are exact, so all results are those of NumPy."""
    rng = np.random.default_rng(seed)
    a, b = (rng.integers(*limits, (n, depth), np.uint8) for n in (rows, columns))
    b[: columns // 3] = b[0]  # equal ones
    a[: rows // 4] = b[rng.integers(0, columns, rows // 4)]  # exact matches
    xy = rng.uniform(0, 30, (columns, 2)) if with_xy else None
    radius = 10.0 if with_xy else None

    def computed():
        reference = neighbors.checked_reference(b, xy)
        return vars(neighbors.checked_neighbors(a, reference, radius))

    expected = with_build("0", computed)
    for build in core.kinds() if depth <= 256 else ():
        for name, values in with_build(build, computed).items():
            np.testing.assert_array_equal(values, expected[name], err_msg=f"{build}: {name}")


def test_neighbors_of_bytes_are_those_of_floats_in_several_blocks():
    rng = np.random.default_rng(0)
    a, b = (rng.normal(128, 22, (n, 128)).clip(0, 255).astype(np.uint8) for n in (2500, 1100))
    xy = rng.uniform(0, 300, (len(b), 2))
    expected = with_build("0", neighbors.neighbors, *(v.astype(np.float32) for v in (a, b)), xy, 10)
    for kind in core.kinds():
        with setting(CALORIC_THREADS="3"):
            computed = with_build(kind, lambda: neighbors.checked_neighbors(
                a, neighbors.checked_reference(b, xy), 10.0
            ))  # fmt: skip
        for name, values in vars(computed).items():
            np.testing.assert_array_equal(values, vars(expected)[name], err_msg=f"{kind}: {name}")


def test_bytes_and_floats_can_be_compared():
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 256, (n, 32), np.uint8) for n in (40, 50))
    expected = caloric.match(a, b, ratio=None)
    for one, other in ((a.astype(np.float32), b), (a, b.astype(np.float32))):
        matches = caloric.match(one, other, ratio=None)
        np.testing.assert_array_equal(matches.indices, expected.indices)
        np.testing.assert_array_equal(matches.distances, expected.distances)


def test_bytes_are_searched_where_their_products_are_summed_in_32_bits():
    try:
        for kind in core.kinds():
            core.use(kind)
            exact = kind in {"amx", "avx512-vnni", "avx-vnni", "neon-dotprod"}
            depths = [n for n in (0, 1, 256, 257) if core.searches_bytes(n)]
            assert depths == ([1, 256] if exact else [])
    finally:
        core.use(core.kinds()[0])


def _rows(rng, count, depth, kind, scale):
    """Return rows (count, depth) of one kind; "flat" and "sparse" ones have extreme norms."""
    rows = rng.standard_normal((count, depth))
    if kind == "flat":
        rows = np.sign(rows) * (1 - 1e-3 * rng.random(rows.shape))
        rows[::2] = np.abs(rows[::2])
    elif kind == "sparse":
        rows *= rng.random(rows.shape) < 0.05
    elif kind == "bytes":
        return rng.integers(0, 256, (count, depth)).astype(np.float32)
    return (scale * rows * rng.uniform(0.1, 3, (count, 1))).astype(np.float32)


def test_the_int8_bound_is_used_where_products_of_bytes_are_fast():
    b, half = np.ones((3, 8), np.float32), np.ones(3, np.float32)
    screened = {"amx", "avx512-vnni", "avx512", "avx-vnni", "avx2", "neon-dotprod"}
    try:
        for kind in core.kinds():
            core.use(kind)
            assert core.Columns(b, half).screened == (kind in screened)
            assert not core.Columns(b, half, False).screened
            assert not core.Columns(np.ones((3, 10_000), np.float32), half).screened
    finally:
        core.use(core.kinds()[0])


def test_the_second_nearest_is_found_behind_many_excluded_ones():
    """A hundred descriptors at the position of the nearest do not hide the next one elsewhere."""
    rng = np.random.default_rng(0)
    a = rng.standard_normal((5, 16)).astype(np.float32)
    b = np.concatenate([np.repeat(a, 100, 0), rng.standard_normal((300, 16))]).astype(np.float32)
    b += 0.01 * rng.standard_normal(b.shape).astype(np.float32)
    xy = np.concatenate([np.repeat(50.0 * np.eye(5, 2), 100, 0), rng.uniform(200, 300, (300, 2))])
    plain = with_build("0", neighbors.neighbors, a, b, xy, 10.0)
    for kind in core.kinds():
        compiled = with_build(kind, neighbors.neighbors, a, b, xy, 10.0)
        np.testing.assert_allclose(compiled.second, plain.second, rtol=1e-3)
        assert (compiled.second > 1).all()


def test_invalid_arguments_are_rejected():
    line = np.zeros(3, np.float32)
    square = np.zeros((4, 4), np.float32)

    def table(**arguments):
        valid = {
            "factors": [square], "columns": [np.arange(4)], "partners": np.arange(4),
            "mirrored": np.zeros((0, 3), int), "synthesis": None, "order": 0,
        }  # fmt: skip
        return core.Table(**(valid | arguments))

    table()
    for call in (
        lambda: core.octave(square, False, np.zeros((1, 4, 5), np.float32), [line], 0, 4),
        lambda: core.octave(square, False, square[None].copy(), [line[:2]], 0, 4),
        lambda: core.octave(square, False, square[None].copy(), [line], 0, 5),
        lambda: core.octave(square, False, square[None].copy(), [line], -1, 4),
        lambda: core.octave(square, False, square[None].copy(), [], 0, 4),
        lambda: core.candidates(np.zeros((3, 5, 5), np.float32), 0.1, 0, 5),
        lambda: table(order=1),
        lambda: table(columns=[np.zeros(4, int)]),
        lambda: table(partners=np.array([1, 2, 3, 0])),
        lambda: table(mirrored=np.array([[0, 4, 0]])),
        lambda: table(factors=[], columns=[], partners=np.arange(0)),
        lambda: core.product(square, core.pack(np.zeros((2, 3), np.float32)), square.copy()),
        lambda: core.Columns(square, line),
        lambda: nearest(square, square[:, :3].copy(), None, 1.0),
        lambda: nearest(square, square, np.zeros((3, 2)), 1.0),
        lambda: core.use("abacus"),
    ):
        with pytest.raises(ValueError, match=r".+"):
            call()


def test_columns_of_another_build_are_rejected():
    square, four = np.ones((4, 4), np.float32), np.zeros(4, np.float32)
    columns = core.Columns(square, four)
    try:
        core.use("portable")
        with pytest.raises(ValueError, match="prepared for another build"):
            core.nearest(
                a=square, half_a=four, columns=columns, xy=None, radius=1.0, best=four.copy(),
                column=np.zeros(4, np.int64), second=four.copy(), best_of_column=four.copy(),
            )  # fmt: skip
    finally:
        core.use(core.kinds()[0])


def test_candidates_outside_of_the_octave_are_ignored():
    octave = np.zeros((6, 8, 8), np.float32)
    at = np.array([[0, 0, 0], [3, 7, 7], [99, 3, 3], [-5, -5, -5]])
    assert len(core.refine_extrema(octave, at, EXTREMA)) == 0


@pytest.mark.parametrize("name", EXTREMA)
def test_constants_of_extrema_are_read_by_name(name):
    octave, at = np.zeros((6, 8, 8), np.float32), np.zeros((0, 3), int)
    others = {key: value for key, value in EXTREMA.items() if key != name}
    for constants, message in (
        (others, f"'{name}' is missing"),
        (EXTREMA | {name: "large"}, f"'{name}' must be a number"),
        (EXTREMA | {name + "s": 1.0}, f"'{name}s' is unknown"),
    ):
        with pytest.raises(ValueError, match=message):
            core.refine_extrema(octave, at, constants)


def test_compile_time_sizes_match_those_in_python():
    assert (core.PATCH_SIDE, core.NOISE_LAGS) == (refinement_steps.SIDE, refinement_steps.LAGS)


@pytest.mark.parametrize("name", REFINEMENT)
def test_constants_of_refinement_are_read_by_name(name):
    square, empty = np.ones((21, 21), np.float32), np.zeros((0, 2, 3))
    others = {key: value for key, value in REFINEMENT.items() if key != name}

    def refine(constants):
        core.refine_matches(
            first=[square], second=[square], a=empty, b=empty, window=square,
            filters=[(square, square)],
            steps=[1], constants=constants, noise=np.ones(2), variances=np.ones(1),
            correlations=np.ones((1, 4)), maps=empty.copy(), covariances=np.zeros((0, 2, 2)),
            totals=np.zeros((0, 2, 2)), statistics=np.zeros((0, 3)),
        )  # fmt: skip

    refine(REFINEMENT)
    for constants, message in (
        (others, f"'{name}' is missing"), (REFINEMENT | {name + "s": 1.0}, f"'{name}s' is unknown"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=message):
            refine(constants)


def run(kind, code):
    env = {**os.environ, native.SETTING: kind}
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


def test_the_environment_variable_selects_a_build():
    code = "from caloric.runtime import native; print(native.about())"
    assert "NumPy (CALORIC_NATIVE=0)" in run("0", code)[1]
    assert "compiled core (" in run("", code)[1]
    assert "compiled core (portable)" in run("portable", code)[1]
    status, text = run("abacus", code)
    assert status == 1
    assert "CALORIC_NATIVE must be one of 0, " in text


def load(module):
    """Return what a program prints that uses this text as the core, and then describes it."""
    code = f"import sys; sys.modules['caloric_native'] = {module}\n"
    code += "from caloric.runtime import native; native.core(); native.core.cache_clear()\n"
    status, text = run("", code + "native.core(); print(native.about())")
    assert status == 0
    return text


def test_a_missing_core_is_reported_once_with_what_to_do():
    text = load("None")
    assert text.count("two to three times slower: it was not compiled") == 1
    assert "run pip install --force-reinstall --no-deps . in a clone" in text
    assert "NumPy (no compiled core: it was not compiled when Caloric was installed)" in text


def test_a_missing_core_is_reported_once_by_threads(monkeypatch):
    reports = []

    def report(*words):
        time.sleep(0.1)  # the other threads start in the meantime
        reports.append(words)

    monkeypatch.setattr(native, "_load", lambda: (None, "reported by threads"))
    monkeypatch.setattr(native._log, "warning", report)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: native.core.__wrapped__(), range(8)))
    assert len(reports) == 1


def test_an_outdated_core_is_reported():
    text = load("type('Core', (), {'VERSION': 0})")
    assert text.count(f"slower: it has interface 0 instead of {native.VERSION}") == 1


def test_a_disabled_core_is_not_reported():
    assert run("0", "from caloric.runtime import native; native.core()") == (0, "")


def test_worker_processes_do_not_repeat_the_report(caplog, monkeypatch):
    monkeypatch.setitem(sys.modules, "caloric_native", None)
    monkeypatch.delenv(native.SETTING, raising=False)
    monkeypatch.setattr("multiprocessing.parent_process", lambda: 1)
    assert native.core.__wrapped__() is None
    assert caplog.text == ""


def test_extreme_frames_do_not_crash(image):
    """Centers and scales far outside of any image, as a corrupt file may contain."""
    far = caloric.Frames.from_xysa(
        [1e12, -1e12, 1e300, 5], [0, 1e9, -1e18, 1e15], [1, 1e6, 2, 1e-9]
    )
    for kind in ("0", *core.kinds()):
        values = with_build(kind, caloric.describe, image, far)
        assert np.isfinite(values).all()


def test_output_arrays_that_would_be_copied_are_rejected():
    square = np.zeros((4, 4), np.float32)
    taps = [scalespace.taps(1.0)]
    for layers in (np.zeros((1, 4, 4)), np.zeros((1, 4, 8), np.float32)[:, :, ::2]):
        with pytest.raises(TypeError):
            core.octave(square, False, layers, taps, 0, 4)


def test_descriptors_too_large_for_products_are_rejected():
    large = np.full((3, 4), 1e25, np.float32)
    with pytest.raises(caloric.InputError, match="scale them down"):
        caloric.match(large, large)
