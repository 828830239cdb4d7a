"""All tuned constants of the alignment.

σ is the width of the diffusion and R the radius of the template; both are in pixels. On what the
values were chosen: docs/align.md.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Damping:
    """Levenberg-Marquardt damping of the normal equations."""

    start: float = 1e-3
    fall: float = 5.0  # divisor after a step that lowers the energy
    lowest: float = 1e-5
    rise: float = 8.0  # factor after a step that does not
    raised: float = 1e-2  # the smallest value after such a step
    relative: float = 1e-9  # share of the trace added to the diagonal
    absolute: float = 1e-12  # added to the diagonal: without any gradient the step is 0


@dataclass(frozen=True)
class Schedule:
    """Constants of the search, the registration and the confidence.

    A coarse path is (σ/R at its start, σ/R from which rotation is estimated). A distant template
    must be shifted before it is rotated, a strongly rotated one must be rotated at once, and a
    close one needs no large σ. The first path that reaches a low energy is continued, otherwise the
    one with the lowest energy.
    """

    # Search: all windows of the image are compared with rotated and scaled templates.
    grid: int = 12  # samples across the template
    turns: int = 24
    scales: tuple[float, ...] = (0.5, 0.63, 0.794, 1.0, 1.26, 1.587, 2.0)
    peaks: int = 12  # kept per template and scale
    faint: float = 0.1  # share of the mean energy below which a window cannot win
    candidates: int = 6  # of the search that are registered
    apart: float = 2.5  # windows: nearer peaks, at similar scale and rotation, are one candidate
    apart_turns: int = 1  # rotations up to which peaks count as similar
    apart_scale: float = 0.25  # logarithm of scale below which peaks count as similar
    matched_within: float = 3.0  # pixels: the threshold of a transform from matched features
    detected: tuple[int, int] = (24, 96)  # frames of template and image, with a detector

    # Thin and small templates.
    smallest_template: int = 8  # pixels across
    smallest_halved: int = 32  # pixels across: smaller templates are not halved
    thin: float = 2.0  # ratio of sides above which parts of the template are searched for
    parts: int = 8  # at most
    smallest_quarter: int = 40  # pixels across: smaller parts match everywhere

    # Coarse registration, on fields of at most this radius.
    coarse_radius: float = 96.0
    coarse_end: float = 11.5  # R/σ of the last coarse σ
    coarse_ends: tuple[float, float] = (2.0, 6.0)  # pixels: its smallest and largest value
    coarsest_spacing: float = 1.4  # σ in samples, at least, of the fields that are compared
    illumination: float = 0.125  # share of the template's side over which illumination is constant
    least_illumination: float = 2.0  # pixels
    given_start: float = 0.5  # σ/R at which the path from a given start begins
    candidate_start: float = 0.125  # σ/R at which the path from a candidate begins
    affine_from: float = 0.125  # σ/R from which the model may be affine
    paths: tuple[tuple[float, float], ...] = (
        (0.25, 0.25),
        (0.5, 0.25),
        (0.5, 0.5),
        (0.355, 0.355),
        (0.18, 0.18),
        (0.125, 0.125),
        (0.0, 1.0),  # the smallest coarse σ only
    )
    shift_paths: tuple[tuple[float, float], ...] = (
        (0.25, 0.0),
        (0.5, 0.0),
        (0.125, 0.0),
        (0.0, 0.0),
    )
    low_energy: float = 0.45  # at the last coarse σ, below which no other path is tried
    inside_at_start: float = 0.25  # share of the template that must lie in the image
    inside_at_end: float = 0.5

    # Fine registration: at these σ, in pixels, the fields of the warped image are recomputed.
    fine_sigmas: tuple[float, ...] = (1.4, 0.0)
    further_sigmas: tuple[float, ...] = (5.6, 2.8)  # before them, from further starts
    aliasing: float = 1.05  # scale above which an image is blurred before it is warped

    # Levenberg-Marquardt descent.
    damping: Damping = Damping()
    largest_scale: float = 10.0  # of a plausible transform, and its inverse
    gains: tuple[float, float] = (0.3, 2.0)  # bounds of the gain, relative to equal powers
    gain_steps: int = 3  # in which the gain and the weights are fitted in turn
    robust: float = 0.5  # c² as a share of the template's mean |U|²
    rotation_diffusion: float = 3.0  # rotations are diffused by this many σ/R
    steps: int = 12  # at most, per σ
    points: int = 1 << 18  # of the template, at most
    finest: float = 0.5  # pixels: the unit of steps is σ, but at least this
    at_rest: float = 0.03  # units: a smaller step ends the descent
    nearly_at_rest: float = 0.2  # units: a smaller last step counts as converged
    stuck: float = 0.01  # units: a smaller step that does not lower the energy ends the descent
    blended: int = 4  # number of blurs between which affine-diffused fields are interpolated

    # Confidence: coefficients of the logistic regression in confidence.py.
    compared_at: float = 1.4  # pixels: the σ at which the densities are compared
    compared_around: float = 0.125  # share of R: the width of the window of each comparison
    least_sharpness: float = 1e-6  # a flatter minimum counts as one of this curvature
    agreement: float = 19.1
    sharpness: float = 2.27
    offset: float = -21.0
    correlated: float = 20.0  # pixels over which the noise of fields is correlated
    undetermined: float = 1e-6  # share of the largest curvature that bounds the others from below
    believed: float = 0.5  # confidence below which an alignment counts as not converged
    sure: float = 0.999  # confidence at which no other start is tried

    # find_template.
    patch_side: int = 12  # samples and density places across a patch
    directions: int = 12
    template_candidates: int = 3  # candidates per template
    aligned_templates: int = 8  # templates that are aligned, and more while they converge
    escalated_templates: int = 2  # of them, tried from other starts too if none converged; else one


SCHEDULE = Schedule()
