"""Robust estimation: the most likely model of random samples, then a fit to all matches.

Samples are drawn in turn from the most reliable eighth, quarter and half of the matches, and from
all of them. They are points, points with the local maps of their frames (:mod:`solvers`) or, for
fundamental matrices, pairs of matches that are not in the dominant plane. Each model has the
likelihood of its most likely noise (:mod:`likelihood`), so that no threshold is needed. The best
one so far is fitted to close matches at once. The last fit starts from several levels of noise, of
which the likelihood decides, and accounts for errors of the model (:mod:`adjustment`).

Random numbers and decisions are the same as in the compiled core (native/src/estimation.cpp).
"""

from dataclasses import dataclass, replace
from math import log
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from caloric.matching import adjustment, models
from caloric.matching.adjustment import Adjustment
from caloric.matching.likelihood import Likelihood, Limits, Noise, NoiseTable
from caloric.matching.models import Model, Units
from caloric.matching.solvers import REACH, Solver
from caloric.runtime import native
from caloric.types import FloatArray, GeometryModel

VERSION = 3  # incremented when results change, which invalidates stored geometries
POINTS = {"homography": 4, "affine": 3, "fundamental": 7, "essential": 5}  # per sample
_FRAMES = {"homography": 2, "affine": 1, "fundamental": 3, "essential": 3}
_MIN_SAMPLES = {"homography": 40, "affine": 40, "fundamental": 100, "essential": 100}
_PLANE: GeometryModel = "homography"  # helps to find epipolar geometries
_LEVELS = (1.0, 0.4, 2.5)  # of noise, relative to that of the best sample
_NOISE_STEPS = 2  # of expectation maximization, to compare these levels
_MAX_SAMPLE = 8
# Share of the likelihood that the last steps have to keep: they fit a planar model to the whole
# overlap, which may be less likely.
_KEPT = {"homography": 0.5, "affine": 0.5, "fundamental": 0.95, "essential": 0.95}


@dataclass(frozen=True)
class SearchOptions:
    """Constants of the search.

    Sampling ends with a probability ``confidence`` that some sample was correct and, with the
    probability ``quality``, precise enough. ``pools`` of matches are halved in turn. Models whose
    likelihood of the first ``subset`` matches is below ``subset_share`` of the best are rejected,
    and those below ``improved_share`` of an improved model are not improved.
    Matches are close to a model up to ``close`` σ; up to ``fitted`` of them are used to improve a
    model, in at most ``rounds``. The levels of noise are compared after ``level_steps`` with
    ``chosen`` matches, and all matches are fitted in ``steps``.
    """

    confidence: float = 0.9999
    quality: float = 0.5
    samples: int = 10_000
    pools: int = 4
    subset: int = 250
    subset_share: float = 0.5
    improved_share: float = 0.9
    close: float = 3.5
    fitted: int = 300
    rounds: int = 3
    chosen: int = 600
    level_steps: int = 4
    steps: int = 8


DEFAULT = SearchOptions()
RIVAL = SearchOptions(samples=100, level_steps=0, steps=0)  # for a model that is only compared
UNCHANGED = SearchOptions(level_steps=0, steps=0)  # for a model that is not fitted


@dataclass(frozen=True, eq=False)
class Correspondences:
    """Matched points p and q (m, 2), the most reliable first, and the kind of model.

    ``size`` (h, w) is that of the second image. ``cameras`` are the calibration matrices (3, 3) of
    both images, for an essential matrix; ``variances`` (m,) of the matched positions are in square
    pixels; ``frames`` are the frames (m, 2, 3) in both images, if known.
    """

    p: FloatArray
    q: FloatArray
    model: GeometryModel
    size: tuple[float, float]
    cameras: list[FloatArray] | None = None
    variances: FloatArray | None = None
    frames: tuple[FloatArray, FloatArray] | None = None

    def __len__(self) -> int:
        """Return the number of matches."""
        return len(self.p)

    @property
    def planar(self) -> bool:
        """Whether the model maps points to points."""
        return models.is_planar(self.model)

    @property
    def dimensions(self) -> int:
        """The number of coordinates of a residual."""
        return 2 if self.planar else 1

    @property
    def unit(self) -> float:
        """The ratio of a residual to Sampson's distance."""
        return 2**0.5 if self.planar else 1.0

    def selected(self, rows: NDArray[np.intp]) -> "Correspondences":
        """Return some of the matches, or all in another order."""
        variances = None if self.variances is None else self.variances[rows]
        frames = None if self.frames is None else (self.frames[0][rows], self.frames[1][rows])
        return replace(self, p=self.p[rows], q=self.q[rows], variances=variances, frames=frames)

    def residuals(self, matrix: FloatArray) -> FloatArray:
        """Return the residual (m,) of each match: see :func:`caloric.matching.models.residual`."""
        return models.residual(self.p, self.q, self.model, matrix, self.cameras)


@dataclass(frozen=True, eq=False)
class Estimate:
    """A model with its noise, likelihood, and the covariance of the entries of its matrix.

    The likelihood is a logarithm, relative to that of unrelated matches. The covariance is (9, 9),
    or (6, 6) for "affine", and None if the matches do not determine the model.
    """

    matrix: FloatArray
    noise: Noise
    likelihood: float
    covariance: FloatArray | None = None


class GeometryEstimator(Protocol):
    """A function that estimates a model for :func:`caloric.verify`, instead of :func:`estimate`."""

    def __call__(
        self, matches: Correspondences, threshold: float, seed: int, /
    ) -> FloatArray | None:
        """Return the matrix of the model, 3 x 3 (2 x 3 for "affine"), or None if none was found.

        ``threshold`` is in pixels.
        """


def estimate(
    matches: Correspondences,
    seed: int = 0,
    max_sigma: float | None = None,
    start: FloatArray | None = None,
    options: SearchOptions = DEFAULT,
) -> Estimate | None:
    """Return the most likely model, or None if no sample gives one.

    ``max_sigma`` is the largest deviation of the noise in pixels, by default a share of the size of
    the image. If there is a matrix to ``start`` from, it is fitted without sampling.
    """
    if len(matches) == 0:
        return None
    units = Units.of(matches.p, matches.q)
    if start is not None:
        start = units.normalized(matches.model, start)
    estimated_model = (_by_numpy if native.core() is None else _by_core)(
        matches, units, seed, max_sigma, start, options
    )
    if estimated_model is None:
        return None
    matrix = units.finish(matches.model, estimated_model.matrix)
    if not np.isfinite(matrix).all():
        return None
    factor = 1.0
    # A homography is divided by its last entry, as OpenCV's are, unless that is almost 0.
    if matches.model == "homography" and abs(matrix[2, 2]) > 1e-9 * np.abs(matrix).max():
        factor = 1 / matrix[2, 2]
    covariance = estimated_model.covariance
    if covariance is not None:
        changes = units.finish(matches.model, np.eye(9).reshape(9, 3, 3)).reshape(9, -1)
        covariance = np.asarray(factor**2 * changes.T @ covariance @ changes)
    return replace(estimated_model, matrix=factor * matrix, covariance=covariance)


def _limits(matches: Correspondences, max_sigma: float | None) -> tuple[Limits, Limits]:
    """Return the limits of the noise of the model, and of homographies that help to find it."""
    is_refined = matches.variances is not None
    limits = Limits.of(matches.model, matches.size, max_sigma, is_refined)
    return limits, Limits.of(_PLANE, matches.size, max_sigma)


def _variances(matches: Correspondences) -> FloatArray:
    """Return the variances (m,) of Sampson's distance: half of those of matches."""
    variances = np.zeros(len(matches)) if matches.variances is None else matches.variances / 2
    return np.ascontiguousarray(variances, np.float64)


def _by_core(
    matches: Correspondences, units: Units, seed: int, max_sigma: float | None,
    start: FloatArray | None, options: SearchOptions,
) -> Estimate | None:  # fmt: skip
    matrix, covariance = np.empty((3, 3)), np.empty((9, 9))
    limits, of_plane = _limits(matches, max_sigma)
    first = second = calibrations = None
    if matches.frames is not None:
        first, second = (np.ascontiguousarray(maps, np.float64) for maps in matches.frames)
    if matches.cameras is not None:
        both = [units.unit @ k for k in matches.cameras]
        calibrations = np.stack([*both, *(np.linalg.inv(k) for k in both)])
    sigma, share, likelihood = native.core().estimate(
        x=units.of_points(matches.p), y=units.of_points(matches.q), variances=_variances(matches),
        first=first, second=second, scale=units.scale, reach=REACH,
        model=list(POINTS).index(matches.model), cameras=calibrations,
        noise=Likelihood(limits).arguments(), plane=Likelihood(of_plane).arguments(),
        search=vars(options) | adjustment.constants() | {
            "seed": seed, "kept": _KEPT[matches.model],
            "min_samples": min(_MIN_SAMPLES[matches.model], options.samples),
        },
        sizes=(POINTS[matches.model], _FRAMES[matches.model]), start=start,
        matrix=matrix, covariance=covariance,
    )  # fmt: skip
    if not likelihood > 0:
        return None
    is_determined = bool(np.isfinite(covariance).all())
    noise = Noise(sigma, share)
    return Estimate(matrix, noise, likelihood, covariance if is_determined else None)


def _by_numpy(
    matches: Correspondences, units: Units, seed: int, max_sigma: float | None,
    start: FloatArray | None, options: SearchOptions,
) -> Estimate | None:  # fmt: skip
    limits, of_plane = _limits(matches, max_sigma)
    order = _shuffled(len(matches), seed)
    search = _Search.of(matches, units, order, limits, seed, options)
    if start is not None:
        model = search.with_noise(start)
        return None if model is None else search.finish(model)
    plane, others, first = None, np.zeros(0, np.intp), None
    if not matches.planar:
        planar = replace(matches, model="homography")
        planes = _Search.of(planar, units, order, of_plane, seed, options)
        best = planes.sample(None, others, matches.model, None)
        if best is not None:
            plane, others = best.matrix, np.flatnonzero(~planes.close_to(best))
            first = search.of_plane(plane)
    best = search.sample(plane, others, matches.model, first)
    return None if best is None else search.finish(best)


@dataclass(frozen=True, eq=False)
class _Search:
    """The search for a model of matches x and y (m, 2) in normalized coordinates.

    ``order`` (m,) is a random one, in which subsets of the matches are used.
    """

    x: FloatArray
    y: FloatArray
    variances: FloatArray
    scale: float
    model: GeometryModel
    cameras: list[FloatArray] | None
    likelihood: Likelihood
    solver: Solver
    order: NDArray[np.intp]
    seed: int
    options: SearchOptions

    @classmethod
    def of(
        cls, matches: Correspondences, units: Units, order: NDArray[np.intp], limits: Limits,
        seed: int, options: SearchOptions,
    ) -> "_Search":  # fmt: skip
        x, y = units.of_points(matches.p), units.of_points(matches.q)
        cameras = None
        if matches.cameras is not None and matches.model == "essential":
            cameras = [np.asarray(units.unit @ k) for k in matches.cameras]
        solver = Solver.of(x, y, matches.model, cameras, matches.frames, units)
        return cls(
            x, y, _variances(matches), units.scale, matches.model, cameras, Likelihood(limits),
            solver, order, seed, options,
        )  # fmt: skip

    def sample(
        self, plane: FloatArray | None, others: NDArray[np.intp], wanted: GeometryModel,
        best: Estimate | None,
    ) -> Estimate | None:  # fmt: skip
        """Return the best model of random samples, with pairs of ``others`` that are off a plane.

        ``wanted`` is the model that the number of samples depends on, ``best`` a first model.
        """
        highest = highest_of_subset = 0.0
        limit, s = self.options.samples, -1
        while (s := s + 1) < limit:
            for matrix in self._solved(s, plane, others, best):
                part = self.with_noise(matrix, self.order[: self.options.subset])
                minimum = self.options.subset_share * highest_of_subset
                if part is None or part.likelihood <= minimum:
                    continue
                model = self.with_noise(matrix)
                if model is None or model.likelihood <= highest:
                    continue
                improved, highest_of_subset = self._improved(model), part.likelihood
                minimum = self.options.improved_share * improved.likelihood
                highest = max(model.likelihood, minimum)
                if best is None or improved.likelihood > best.likelihood:
                    best = improved
                    limit = self._needed_samples(best, wanted)
        return best

    def of_plane(self, plane: FloatArray) -> Estimate | None:
        """Return an epipolar geometry of a plane: samples of an exact plane give none."""
        model = self.with_noise(self.solver.through(plane, np.array([1.0, 0, 0])))
        return None if model is None else self._improved(model)

    def _solved(
        self, s: int, plane: FloatArray | None, others: NDArray[np.intp], best: Estimate | None
    ) -> list[FloatArray]:
        """Return the models of sample s; after all pools, another kind of sample is drawn."""
        turn = s // self.options.pools % 4
        with np.errstate(all="ignore"):
            if turn == 1 and plane is not None and len(others) > 2:
                pair = self._drawn(s, 2, others)
                return [] if pair is None else self.solver.parallax(pair, plane)
            by_frames = turn == 3 and self.solver.local is not None
            size = (_FRAMES if by_frames else POINTS)[self.model]
            sample = self._drawn(s, size, None)
            if sample is None:
                return []
            matrix = None if best is None else best.matrix
            return self.solver.models(sample, by_frames, matrix)

    def _drawn(self, s: int, size: int, rows: NDArray[np.intp] | None) -> NDArray[np.intp] | None:
        """Return distinct matches, or those among some rows; None if some were drawn twice."""
        count = len(self.x) if rows is None else len(rows)
        pool = self._pool(s, size, count)
        sample = _random(self.seed, _MAX_SAMPLE * s + np.arange(size), np.full(size, pool))
        if len(set(sample.tolist())) < size:
            return None
        return sample if rows is None else rows[sample]

    def _pool(self, s: int, size: int, count: int) -> int:
        """Return the number of first matches from which sample s is drawn."""
        return min(count, max(count >> (s % self.options.pools), 2 * size))

    def _needed_samples(self, best: Estimate, wanted: GeometryModel) -> int:
        close, size = self.close_to(best), POINTS[self.model]
        failure = 0.0
        for k in range(self.options.pools):
            share = float(close[: self._pool(k, size, len(close))].mean())
            good = min(self.options.quality * share**size, 0.999)
            failure += log(1 - good) / self.options.pools
        needed = log(1 - self.options.confidence) / min(failure, -1e-12)
        return max(
            min(_MIN_SAMPLES[wanted], self.options.samples), int(min(needed, self.options.samples))
        )

    def _squares(self, matrix: FloatArray, rows: NDArray[np.intp]) -> NDArray[np.float32]:
        """Return squared residuals (k,) in pixels."""
        with np.errstate(all="ignore"):
            squares = self._started(matrix).fit(self.x[rows], self.y[rows]).squares
            return np.asarray(self.scale**2 * squares, np.float32)

    def _started(self, matrix: FloatArray) -> Model:
        return Model.of(self.model, matrix, self.cameras)

    def with_noise(
        self, matrix: FloatArray, rows: NDArray[np.intp] | None = None
    ) -> Estimate | None:
        """Return a model with its most likely noise, None if unrelated matches are more likely."""
        squares = self._squares(matrix, self.order if rows is None else rows)
        likelihood, noise = NoiseTable.of(self.likelihood.limits).find(squares)
        return None if noise is None else Estimate(matrix, noise, likelihood)

    def close_to(self, best: Estimate) -> NDArray[np.bool_]:
        """Return which matches are close to a model (m,)."""
        limit = (self.options.close * best.noise.sigma) ** 2
        return np.asarray(self._squares(best.matrix, np.arange(len(self.x))) <= np.float32(limit))

    def _improved(self, start: Estimate) -> Estimate:
        """Alternate between the noise of all matches and a fit to some of those that are close."""
        best = start
        for _ in range(self.options.rounds):
            rows = self.order[self.close_to(best)[self.order]][: self.options.fitted]
            task, model = self._adjustment(rows), self._started(best.matrix)
            for _ in range(2):
                model, _, goes_on = task.moved(model, best.noise)
                if not goes_on:
                    break
            improved = self.with_noise(model.matrix)
            if improved is None or improved.likelihood <= best.likelihood:
                break
            best = improved
        return best

    def _adjustment(self, rows: NDArray[np.intp]) -> Adjustment:
        return Adjustment(
            self.x[rows], self.y[rows], self.variances[rows], self.scale, self.likelihood
        )

    def finish(self, start: Estimate) -> Estimate:
        """Fit a model to all matches, from the most likely of several noise levels."""
        task, limits = self._adjustment(self.order[: self.options.chosen]), self.likelihood.limits
        best = self._evaluated(task, start)
        for level in _LEVELS:
            sigma = min(max(level * start.noise.sigma, limits.min_sigma), limits.max_sigma)
            model, noise = self._started(start.matrix), replace(start.noise, sigma=sigma)
            for _ in range(self.options.level_steps):
                model, noise, goes_on = task.moved(model, noise)
                if not goes_on:
                    break
            fitted = self._evaluated(task, Estimate(model.matrix, noise, 0.0))
            best = fitted if fitted.likelihood > best.likelihood else best
        task, noise, model = self._adjustment(self.order), best.noise, self._started(best.matrix)
        best = self._evaluated(task, best)
        for _ in range(self.options.steps):
            task = task.decorrelated(model, noise)
            model, noise, goes_on = task.moved(model, noise)
            if not goes_on:
                break
        fitted = self._evaluated(task, Estimate(model.matrix, noise, 0.0))
        if fitted.likelihood >= _KEPT[self.model] * best.likelihood:
            best = fitted
        else:
            noise = best.noise
        covariance = task.covariance(self._started(best.matrix), noise)
        return Estimate(best.matrix, best.noise, best.likelihood, covariance)

    def _evaluated(self, task: Adjustment, model: Estimate) -> Estimate:
        """Return a model with its noise after some steps of maximization, and its likelihood."""
        likelihood, noise = task.evaluated(self._started(model.matrix), model.noise, _NOISE_STEPS)
        return Estimate(model.matrix, noise, likelihood)


_SHUFFLE = 1 << 30  # the first random number for the order of matches


def _random(seed: int, k: NDArray[np.intp], limits: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the k-th random numbers (n,) below limits (n,): SplitMix64."""
    first = (seed + 1) * 0x9E3779B97F4A7C15 % 2**64
    with np.errstate(over="ignore"):
        z = np.uint64(first) + k.astype(np.uint64) * np.uint64(0xD1342543DE82EF95)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray((z ^ (z >> np.uint64(31))) % limits.astype(np.uint64), np.intp)


def _shuffled(count: int, seed: int) -> NDArray[np.intp]:
    order = list(range(count))
    last = np.arange(count - 1, 0, -1)
    for m, other in zip(last, _random(seed, _SHUFFLE + last, last + 1).tolist(), strict=True):
        order[m], order[other] = order[other], order[m]
    return np.array(order, np.intp)
