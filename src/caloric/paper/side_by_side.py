"""The three algorithms of the paper's Table 2, run on one problem.

Which of three letters is in the image, and under which similarity? All three minimize the negated
dot product of gradient-orientation densities (eqs. 15 and 17).

* left:   Algorithm 1: diffusion in all variables, the choice c and the transformation, with
  decreasing σ
* middle: a fixed σ, diffusion in rotation and translation only, a given set Θ of candidates
* right:  the same with h_SIFT of the warped image, as in a SIFT matcher
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from scipy.ndimage import gaussian_filter

from caloric.descriptor.density import measure
from caloric.descriptor.sampling import SquarePatch
from caloric.kernels import kernel
from caloric.paper.letters import AffineMap, render, sample
from caloric.theory import alignment, diffusion, energy
from caloric.theory.continuation import Path, continuation
from caloric.theory.energy import OrientationDensity, diffused_density, dissimilarity, winner
from caloric.types import FloatArray

TEMPLATES = ("B", "R", "P")
TRUTH = 1
TEMPLATE_POINTS, IMAGE_POINTS = 100, 250
SIZE = 32
# The densities are Dirac measures, whose energy is undefined at σ = 0: the sequence ends at the
# width of a pixel.
SIGMAS = (0.6, 0.4, 0.28, 0.2, 0.14, 0.1, 0.07, 0.05)
PENALTY = 0.5
# Search bounds of the choices, then of a, c, b. Without bounds the energy of point measures has no
# minimum: at a very large scale a single pair of points can be made to coincide.
BOUNDS = ((-0.5, 1.5),) * 3 + ((0.5, 1.6), (-1.0, 1.0), (-0.8, 0.8), (-0.8, 0.8))
SIGMA_D, SIGMA_R = 0.15, 0.4


@dataclass(frozen=True)
class Similarity:
    """A similarity τ(x) = e^s R_α x + b."""

    alpha: float
    s: float
    b: tuple[float, float]

    @property
    def matrix(self) -> FloatArray:
        """Return e^s R_α (2, 2)."""
        c, s = np.cos(self.alpha), np.sin(self.alpha)
        return np.asarray(np.exp(self.s) * np.array([[c, -s], [s, c]]))

    def error(self, other: "Similarity") -> tuple[float, float, float]:
        """Return the error of ``other``: rotation in degrees, relative scale, and distance."""
        angle = np.degrees((other.alpha - self.alpha + np.pi) % (2 * np.pi) - np.pi)
        shift = np.hypot(other.b[0] - self.b[0], other.b[1] - self.b[1])
        return abs(float(angle)), abs(float(np.expm1(other.s - self.s))), float(shift)


POSE = Similarity(float(np.radians(25)), float(np.log(1.2)), (0.25, -0.2))
NEAREST_CANDIDATE = Similarity(
    POSE.alpha + float(np.radians(9)), POSE.s - 0.08, (POSE.b[0] - 0.05, POSE.b[1] + 0.04)
)


def scene(points: FloatArray) -> FloatArray:
    """Return the image f (n,) at points (n, 2), where f ∘ τ* is the template."""
    inverse = np.asarray(np.linalg.inv(POSE.matrix), np.float64)
    return sample(TEMPLATES[TRUTH], points, AffineMap(inverse, -inverse @ np.array(POSE.b)))


def density_of(patch: FloatArray, count: int) -> OrientationDensity:
    """Return the points of largest weight of a patch's density, normalized at the last σ.

    Without normalization a template with more ink would win every dot product, and a P would fit
    an R as well as the R does. The paper leaves the norms of the templates open.
    """
    # Without smoothing, central differences would bias the angles by several degrees.
    smooth = gaussian_filter(patch, 1.0, mode="nearest")
    part = measure(smooth[None], kernel("sift", sigma_d=SIGMA_D, sigma_r=SIGMA_R))
    points = SquarePatch(patch.shape[0]).points()
    heaviest = OrientationDensity(points, part.angles[0], part.weights[0]).heaviest(count)
    finest = partial(diffusion.linear_similarity, sigma_d=SIGMAS[-1], sigma_a=SIGMAS[-1])
    squared_norm = -dissimilarity(diffused_density(finest, heaviest), heaviest)
    return OrientationDensity(
        heaviest.points, heaviest.angles, heaviest.weights / np.sqrt(squared_norm)
    )


def candidates(seed: int = 0, count: int = 12) -> tuple[Similarity, ...]:
    """Return Θ, as if from a detector: unrelated frames, and an inaccurate one at the letter."""
    rng = np.random.default_rng(seed)
    others = [
        Similarity(
            float(POSE.alpha + np.pi + rng.uniform(-2, 2)),
            float(0.3 * rng.standard_normal()),
            (float(rng.uniform(-0.6, 0.6)), float(rng.uniform(-0.6, 0.6))),
        )
        for _ in range(count - 1)
    ]
    return (*others[:4], NEAREST_CANDIDATE, *others[4:])


@dataclass(frozen=True, eq=False)
class Outcome:
    """The template that an algorithm selected, and its pose."""

    title: str
    template: int
    pose: Similarity


@dataclass(frozen=True, eq=False)
class SideBySide:
    """The outcomes of the three algorithms, the path of the first and the scores of the others."""

    outcomes: tuple[Outcome, Outcome, Outcome]
    path: Path
    exact_scores: FloatArray
    sift_scores: FloatArray


def _similarity(z: FloatArray) -> Similarity:
    return Similarity(
        float(np.arctan2(z[1], z[0])),
        float(np.log(np.hypot(z[0], z[1]))),
        (float(z[2]), float(z[3])),
    )


def algorithm_1(image: OrientationDensity, templates: list[OrientationDensity]) -> Path:
    """Return the path of Algorithm 1 over (c₁, c₂, c₃, a, c, b₁, b₂), diffused in closed form.

    τ(x) = [[a, −c], [c, a]] x + b: in this parameterization the diffusion over rotation, scale and
    translation is exact, and so is its gradient (:func:`caloric.theory.alignment.similarity`).
    """

    def fits(z: FloatArray, sigma: float) -> list[alignment.Slope]:
        return [alignment.similarity(image, p, z, sigma) for p in templates]

    def cost(point: FloatArray, sigma: float) -> float:
        c, z = point[:3], point[3:]
        penalty = PENALTY * diffusion.choice_penalty(c, sigma)
        return energy.cost(c, [fit.energy for fit in fits(z, sigma)], penalty)

    def gradient(point: FloatArray, sigma: float) -> FloatArray:
        c, z = point[:3], point[3:]
        slopes = fits(z, sigma)
        in_c = np.array([fit.energy for fit in slopes])
        in_c += PENALTY * diffusion.choice_penalty_gradient(c, sigma)
        return np.concatenate([in_c, c @ np.stack([fit.gradient for fit in slopes])])

    start = np.array([1 / 3, 1 / 3, 1 / 3, 1.0, 0.0, 0.0, 0.0])
    return continuation(cost, SIGMAS, start[None], gradient=gradient, bounds=BOUNDS)


def run() -> SideBySide:
    """Run the three algorithms on one problem."""
    templates = [density_of(render(letter, size=SIZE), TEMPLATE_POINTS) for letter in TEMPLATES]
    grid = SquarePatch(SIZE).points()
    image = density_of(scene(grid).reshape(SIZE, SIZE), IMAGE_POINTS)
    frames = candidates()
    path = algorithm_1(image, templates)

    exact = np.empty((len(frames), len(templates)))
    sift = np.empty_like(exact)
    smooth = kernel("sift", sigma_d=SIGMA_D, sigma_r=SIGMA_R)
    for j, frame in enumerate(frames):
        diffuse = partial(
            diffusion.similarity,
            sigma_d=SIGMA_D, sigma_r=SIGMA_R, alpha=frame.alpha, s=frame.s, b=frame.b,
        )  # fmt: skip
        warped = scene(grid @ frame.matrix.T + np.array(frame.b)).reshape(SIZE, SIZE)
        exact_density, sift_density = (
            diffused_density(diffuse, image),
            diffused_density(smooth, density_of(warped, IMAGE_POINTS)),
        )
        for k, template in enumerate(templates):
            exact[j, k] = -dissimilarity(exact_density, template)
            sift[j, k] = -dissimilarity(sift_density, template)
    middle, right = winner(exact.tolist()), winner(sift.tolist())
    last = path.point
    outcomes = (
        Outcome("Algorithm 1", int(np.argmax(last[:3])), _similarity(last[3:])),
        Outcome("fixed σ, candidates", middle[1], frames[middle[0]]),
        Outcome("SIFT", right[1], frames[right[0]]),
    )
    return SideBySide(outcomes, path, exact, sift)
