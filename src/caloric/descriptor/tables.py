"""Tables: the Fourier coefficients of a kernel, with which a density is contracted.

    h(β, x) = Σ_m Σ_y c_m(β, x; y) ρ(y) e^{imφ(y)},    c_m the Fourier coefficients of K in φ

If K depends on β and φ only through φ − β, then c_m(β, x; y) = c_m(x; y) e^{−imβ}: the sum over y
is computed once for all β, a quarter of the work for eight β, and then multiplied by e^{−imβ}.

A table is computed once, in float64, from the formula of the kernel, at one position of each orbit
of symmetries. :mod:`caloric.descriptor.pooling` applies it.
"""

from collections import OrderedDict
from dataclasses import dataclass, replace
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.density import Floats
from caloric.descriptor.layout import Layout
from caloric.descriptor.sampling import Sampling
from caloric.errors import InputError
from caloric.kernels import Kernel
from caloric.runtime import native, threads
from caloric.theory.gaussians import periodic_gaussian
from caloric.types import FloatArray

TOLERANCE = 1e-6
NEGLECTED = 1e-7  # coefficients below this fraction of a position's largest are set to 0
MAX_ORDER = 511
CACHE_BYTES = 400_000_000
BLOCK = 2_000_000  # kernel values computed at once


@dataclass(frozen=True, eq=False)
class Table:
    """Matrices that map the (2·order + 1) · points harmonics of a density to a descriptor.

    ``factors[i]`` (rows, columns) multiplies the next ``rows`` harmonics. Without ``synthesis``
    there is one factor, whose columns are the entries. Otherwise there is one factor for each order
    m, whose columns are the real and imaginary parts of Σ_y c_m ρ e^{imφ} at each position, and
    ``synthesis`` (bins, 2·order + 1) computes the entries of a position from them. ``tail`` is the
    root-mean-square of the neglected part of the kernel, relative to that of the kernel. ``mirror``
    are the permutations of the points and of the columns of the first factor under the reflection
    y ↦ −y, if the sampling and the layout have that symmetry.
    """

    factors: tuple[Floats, ...]
    synthesis: Floats | None
    order: int
    tail: float
    mirror: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None

    @cached_property
    def complex_factors(self) -> tuple[NDArray[np.complexfloating], ...]:
        """c_m (points, positions) for m = 1, 2, …, of tables with ``synthesis``."""
        halves = [(len(factor) // 2, factor.shape[1] // 2) for factor in self.factors[1:]]
        return tuple(
            np.ascontiguousarray(factor[:p, :n] + 1j * factor[:p, n:])
            for factor, (p, n) in zip(self.factors[1:], halves, strict=True)
        )

    @cached_property
    def compiled(self) -> Any:
        """The table in the format of the compiled core, with mirrored factors."""
        parts = [_mirrored_factor(self, factor, i) for i, factor in enumerate(self.factors)]
        starts = np.cumsum([0, *(factor.shape[1] for factor in self.factors[:-1])])
        pairs = [
            np.stack([first + start, second + start, odd], 1)
            for (_, _, (first, second, odd)), start in zip(parts, starts, strict=True)
        ]
        partners = np.arange(self.points) if self.mirror is None else self.mirror[0]
        return native.core().Table(
            [factor for factor, _, _ in parts], [order for _, order, _ in parts],
            partners=partners, mirrored=np.concatenate(pairs), synthesis=self.synthesis,
            order=self.order,
        )  # fmt: skip

    @property
    def points(self) -> int:
        """The number of points at which the density is measured."""
        return sum(map(len, self.factors)) // (2 * self.order + 1)

    @property
    def entries(self) -> int:
        """The number of entries of a descriptor."""
        columns = int(self.factors[0].shape[1])
        return columns if self.synthesis is None else columns * len(self.synthesis)

    @property
    def nbytes(self) -> int:
        """The size of the factors in bytes."""
        return sum(factor.nbytes for factor in self.factors)


def _mirrored_factor(
    table: Table, factor: Floats, number: int
) -> tuple[Floats, NDArray[np.intp], tuple[NDArray[np.intp], ...]]:
    """Return the factor for sums and differences of mirrored points; half of its entries are 0.

    K(−β, x̄; −φ, ȳ) = K(β, x; φ, y), where x̄ and ȳ are mirrored. So the part of a density that is
    even under the reflection contributes only to the even part of the descriptor at x and x̄, and
    the odd part only to the odd part. For any factor h F = (h R)(R⁻¹ F C) C⁻¹, with R and C the
    sums and differences of two rows or columns. Sines and imaginary parts change sign under the
    reflection, so for them the difference is the even part.

    Returns the factor R⁻¹ F C; the order of its columns, even ones first; and the pairs of columns
    that C⁻¹ combines: first columns, second columns, and whether they are imaginary parts.
    """
    count, width = table.points, factor.shape[1]
    orders = 2 * table.order + 1 if table.synthesis is None else 1 if number == 0 else 2
    sines = np.arange(orders) % 2 == (0 if table.synthesis is None else 1)
    sines[0] = False
    whole = factor.astype(np.float64)
    imaginary = np.arange(width) >= table.factors[0].shape[1]
    if table.mirror is None:
        points, columns = np.arange(count), np.arange(width)
    else:
        points, images = table.mirror
        columns = np.concatenate([images + start for start in range(0, width, len(images))])
    rows = np.flatnonzero(points > np.arange(count))
    for channel, sine in zip(whole.reshape(orders, count, width), sines, strict=True):
        _split_parity(channel, rows, points[rows], sine)
    first = np.flatnonzero(columns > np.arange(width))
    second, odd = columns[first], imaginary[first]
    for parity in (False, True):
        _split_parity(whole.T, first[odd == parity], second[odd == parity], parity)
    # Entries that vanish by symmetry are not exactly 0 because of rounding to float32.
    whole[np.abs(whole) < 2 * np.finfo(np.float32).eps * np.abs(whole).max()] = 0
    odd_columns = (columns < np.arange(width)) | (imaginary & (columns == np.arange(width)))
    order = np.lexsort((imaginary, np.arange(width) % table.factors[0].shape[1], odd_columns))
    return whole.astype(np.float32), order, (first, second, odd.astype(np.intp))


def _split_parity(rows: FloatArray, i: NDArray[np.intp], j: NDArray[np.intp], odd: bool) -> None:
    """Replace rows i by half the even part of rows i and j, and rows j by half the odd part."""
    mean, half = (rows[i] + rows[j]) / 2, (rows[i] - rows[j]) / 2
    rows[i], rows[j] = (half, mean) if odd else (mean, half)


def _series(
    kernel: Kernel, bins: FloatArray, blur: float, x: FloatArray, y: FloatArray, samples: int
) -> NDArray[np.complex128]:
    """Return the Fourier coefficients (bins, m, points) in φ of K at x, m = 0 … samples/2.

    Angles are scaled so that the period of the kernel is 2π, also for intensities.
    """
    unit = kernel.period / (2 * np.pi)
    phi = 2 * np.pi * np.arange(samples) / samples
    beta = bins[:, None] / unit
    if blur:
        values = _blurred(kernel, beta, blur / unit, x, y, phi)
    else:
        # φ within half a period of β, because an intensity kernel is not periodic.
        delta = np.remainder(phi - beta + np.pi, 2 * np.pi) - np.pi
        values = kernel(beta[..., None] * unit, x, (beta + delta)[..., None] * unit, y)
    return np.asarray(np.fft.rfft(values, axis=1) / samples)


def _blurred(
    kernel: Kernel, beta: FloatArray, blur: float, x: FloatArray, y: FloatArray, phi: FloatArray
) -> FloatArray:
    """Return ∫ k̃_blur(β' − β) K(β', x; φ, y) dβ', summed over the support of the narrower factor.

    As a function of β', K is as wide as its bandwidth around φ, and its finest detail is the angle
    that σd subtends at x.
    """
    unit = kernel.period / (2 * np.pi)
    width = finest = kernel.bandwidth / unit
    if kernel.feature == "orientation" and x.any():
        finest = min(width, float(kernel.width(x)) / float(np.hypot(x[0], x[1])))
    around_window = blur < width
    reach = min(8 * min(blur, width), np.pi)
    count = int(np.ceil(2 * reach / (min(blur, finest) / 2.5)))
    # Midpoints, so that a K as wide as the circle is sampled once around it.
    offsets = (np.arange(count) + 0.5) * (2 * reach / count) - reach
    total = np.zeros((len(beta), len(phi), len(y)))
    for offset in offsets:
        near = beta + offset if around_window else phi + offset
        window = periodic_gaussian(near - beta, blur) * (2 * reach / count)
        # φ within half a period of β', because an intensity kernel is not periodic.
        delta = np.remainder(phi - near + np.pi, 2 * np.pi) - np.pi
        values = kernel(near[..., None] * unit, x, (near + delta)[..., None] * unit, y)
        total += window[..., None] * values
    return total


def _blocked_series(
    kernel: Kernel, bins: FloatArray, blur: float, x: FloatArray, y: FloatArray, samples: int
) -> NDArray[np.complex128]:
    """Return :func:`_series` without the last order, computed in blocks to limit memory."""
    result = np.empty((len(bins), samples // 2, len(y)), np.complex128)
    block = max(1, BLOCK // (samples * len(bins)))
    for start in range(0, len(y), block):
        part = slice(start, start + block)
        result[..., part] = _series(kernel, bins, blur, x, y[part], samples)[:, :-1]
    return result


def _tails(power: FloatArray) -> FloatArray:
    """Return the root of the fraction of power above each order m, given the power per order."""
    above = np.append(np.cumsum(power[::-1])[::-1][1:], 0.0)
    total = power.sum()
    return np.sqrt(np.maximum(above, 0) / total) if total > 0 else np.zeros_like(power)


def _samples_needed(
    kernel: Kernel,
    bins: FloatArray,
    blur: float,
    positions: FloatArray,
    points: FloatArray,
    tolerance: float,
) -> int:
    """Return how many samples of φ resolve the kernel to a tolerance at the outermost position.

    It is tested on the points nearest to that position, where K is largest, and on a few others.
    """
    outermost = positions[np.argmax(np.hypot(positions[:, 0], positions[:, 1]))]
    distance = np.hypot(*(points - outermost).T)
    near = points[np.argsort(distance, kind="stable")[:64]]
    tested = np.concatenate([near, points[:: max(1, len(points) // 64)]])
    samples = 32
    while samples <= 2 * (MAX_ORDER + 1):
        series = _series(kernel, bins, blur, outermost, tested, samples)
        power = (np.abs(series) ** 2).sum((0, 2))
        if not power.any():
            raise InputError(
                f"{kernel.name}: {kernel} is zero at all sample points, because sigma_d is far "
                "below their spacing; use a larger sigma_d"
            )
        if np.sqrt(power[-samples // 8 :].sum()) <= tolerance / 10 * np.sqrt(power.sum()):
            return samples
        samples *= 2
    raise InputError(
        f"{kernel.name}: {kernel} varies too fast with the angle for a table "
        f"(more than {MAX_ORDER} harmonics); use larger sigmas, or a layout with average=True"
    )


@dataclass(frozen=True, eq=False)
class _Symmetry:
    """A rotation or reflection g of the plane that maps the points and the bins onto themselves.

    Kernels are equivariant: K(gβ, gx; gφ, gy) = K(β, x; φ, y), so the coefficients at a position
    determine those at its images. ``angle`` is the rotation, after a reflection if ``flips``.
    """

    matrix: FloatArray
    angle: float
    flips: bool
    points: NDArray[np.intp]
    bins: NDArray[np.intp]

    def apply(self, series: NDArray[np.complex128]) -> NDArray[np.complex128]:
        """Return the series in gφ, given the series in φ."""
        orders = np.arange(series.shape[1])
        mirrored = np.conj(series) if self.flips else series
        return np.asarray(mirrored * np.exp(-1j * orders * self.angle)[:, None])


def _keys(vectors: FloatArray) -> list[tuple[float, ...]]:
    return [tuple(row) for row in (np.round(vectors, 9) + 0.0).tolist()]


def _permutation(
    images: list[tuple[float, ...]], originals: list[tuple[float, ...]]
) -> NDArray[np.intp] | None:
    """Return the index of each image among the originals, or None if one is missing."""
    index = {key: i for i, key in enumerate(originals)}
    if any(key not in index for key in images):
        return None
    return np.array([index[key] for key in images], np.intp)


def _symmetries(kernel: Kernel, bins: FloatArray, points: FloatArray) -> list[_Symmetry]:
    """Return the symmetries of the square that the points, the bins and the kernel have."""
    group = []
    is_oriented = kernel.feature == "orientation"
    originals, circle = _keys(points), _keys(np.stack([np.cos(bins), np.sin(bins)], -1))
    for flips in (False, True):
        for quarter in range(4):
            angle = quarter * np.pi / 2
            c, s = np.cos(angle), np.sin(angle)
            matrix = np.array([[c, -s], [s, c]]) @ np.diag([1.0, -1.0 if flips else 1.0])
            point_map = _permutation(_keys(points @ matrix.T), originals)
            bin_angles = (-bins if flips else bins) + angle
            bin_map = (
                _permutation(_keys(np.stack([np.cos(bin_angles), np.sin(bin_angles)], -1)), circle)
                if is_oriented and not kernel.depends_on_difference
                else np.arange(len(bins))
            )
            if point_map is not None and bin_map is not None:
                group.append(
                    _Symmetry(
                        matrix, angle * is_oriented, flips and is_oriented, point_map, bin_map
                    )
                )
    group = [symmetry for symmetry in group if _holds(symmetry, kernel)]
    # A rotation adds the same angle to β and φ, so it does not change a series in φ − β.
    return [replace(g, angle=0.0) for g in group] if kernel.depends_on_difference else group


def _holds(symmetry: _Symmetry, kernel: Kernel) -> bool:
    """Return whether the kernel has the symmetry at a few points; custom kernels may not."""
    rng = np.random.default_rng(0)
    beta, phi = rng.uniform(0, 1, (2, 16))
    x, y = rng.uniform(-1, 1, (2, 16, 2))
    sign = -1 if symmetry.flips else 1
    mapped = kernel(
        sign * beta + symmetry.angle,
        x @ symmetry.matrix.T,
        sign * phi + symmetry.angle,
        y @ symmetry.matrix.T,
    )
    original = kernel(beta, x, phi, y)
    return bool(np.allclose(mapped, original, rtol=1e-7, atol=1e-9 * np.abs(original).max()))


_cache: OrderedDict[tuple[Kernel, Layout, Sampling, str, int | None], Table] = OrderedDict()
_cache_lock = Lock()


def tabulate(
    kernel: Kernel,
    layout: Layout,
    sampling: Sampling,
    dtype: str = "float32",
    max_order: int | None = None,
) -> Table:
    """Return the table of ``kernel`` for the entries of ``layout`` and the points of ``sampling``.

    The series ends where the neglected part is below TOLERANCE, or at ``max_order`` if that is
    lower. The most recently used tables are cached, up to CACHE_BYTES in total.
    """
    key = (kernel, layout, sampling, dtype, max_order)
    # Held while a table is computed, so that two threads do not compute the same one.
    with _cache_lock:
        if key in _cache:
            _cache.move_to_end(key)
            return _cache[key]
        table = _tabulate(kernel, layout, sampling, dtype, max_order)
        _cache[key] = table
        while len(_cache) > 1 and sum(t.nbytes for t in _cache.values()) > CACHE_BYTES:
            _cache.popitem(last=False)
        return table


def _tabulate(
    kernel: Kernel, layout: Layout, sampling: Sampling, dtype: str, max_order: int | None
) -> Table:
    """Return the table of :func:`tabulate`, computed at one position per orbit of symmetries."""
    positions, points = layout.positions(), sampling.points()
    all_bins, blur = layout.bins(kernel), layout.blur(kernel)
    beta_last = kernel.depends_on_difference
    bins = np.zeros(1) if beta_last else all_bins
    # A truncated series needs less protection from aliasing.
    tolerance = TOLERANCE if max_order is None else 100 * TOLERANCE
    samples = _samples_needed(kernel, bins, blur, positions, points, tolerance)
    symmetries = _symmetries(kernel, bins, points)
    index = {key: i for i, key in enumerate(_keys(positions))}
    if len(index) < len(positions):
        raise InputError(f"{layout}: two positions coincide; all must be distinct")
    orbits: list[tuple[int, dict[int, _Symmetry]]] = []
    done: set[int] = set()
    for i, x in enumerate(positions):
        if i not in done:
            reached = {index.get(_keys((g.matrix @ x)[None])[0]): g for g in symmetries[::-1]}
            images = {j: g for j, g in reached.items() if j is not None and j not in done}
            done.update(images)
            orbits.append((i, images))
    computed = threads.each(
        lambda orbit: _blocked_series(kernel, bins, blur, positions[orbit[0]], points, samples),
        orbits,
    )
    power = np.zeros(samples // 2)
    for series, (_, images) in zip(computed, orbits, strict=True):
        power += len(images) * (np.abs(series) ** 2).sum((0, 2))
    power[1:] *= 2
    tails = _tails(power)
    order = int(np.argmax(tails <= tolerance))
    order = order if max_order is None else min(order, max_order)
    table = np.empty((order + 1, len(points), len(positions), len(bins)), np.complex128)
    for series, (_, images) in zip(computed, orbits, strict=True):
        kept = series[:, : order + 1]
        # Most points are far from x; without their tiny coefficients the table is sparse.
        kept[np.abs(kept) < NEGLECTED * np.abs(kept).max()] = 0
        for j, g in images.items():
            for k, row in zip(g.bins, g.apply(kept), strict=True):
                table[:, g.points, j, k] = row
    table[1:] *= 2  # for the conjugate terms −m
    series = table.reshape(order + 1, len(points), -1)
    first, rest = series[0].real, series[1:]
    mirror = _mirror(symmetries, positions, 1 if beta_last else len(bins))
    if not beta_last:
        whole = np.concatenate([first, *(part for c in rest for part in (c.real, -c.imag))])
        return Table((whole.astype(dtype),), None, order, float(tails[order]), mirror)
    products = [first, *(np.block([[c.real, c.imag], [-c.imag, c.real]]) for c in rest)]
    phases = np.arange(1, order + 1) * all_bins[:, None] * (2 * np.pi / kernel.period)
    synthesis = np.ones((len(all_bins), 2 * order + 1), dtype)
    synthesis[:, 1::2], synthesis[:, 2::2] = np.cos(phases), np.sin(phases)
    factors = tuple(product.astype(dtype) for product in products)
    return Table(factors, synthesis, order, float(tails[order]), mirror)


def _mirror(
    symmetries: list[_Symmetry], positions: FloatArray, bins: int
) -> tuple[NDArray[np.intp], NDArray[np.intp]] | None:
    """Return the permutations of points and of columns (positions, bins) under y ↦ −y, if any."""
    for g in symmetries:
        if not np.allclose(g.matrix, np.diag([1.0, -1.0])):
            continue
        images = _permutation(_keys(positions @ g.matrix.T), _keys(positions))
        if images is not None:
            return g.points, (images[:, None] * bins + (g.bins if bins > 1 else 0)).ravel()
    return None
