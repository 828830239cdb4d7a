"""Tuned constants of the search, the registration and the confidence.

σ is the width of the diffusion and R the radius of the template; both are in pixels. docs/align.md
says which photographs the values were tuned on. The constants of the gradient fields are in
:mod:`caloric.descriptor.fields`, those of the quadrature for ``diffusion="all"`` in
:mod:`caloric.theory.field_diffusion`; block sizes and numerical tolerances are where they are used.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Damping:
    """Levenberg-Marquardt damping of the normal equations."""

    start: float = 1e-3
    decrease: float = 5.0  # divisor after a step that lowers the energy
    minimum: float = 1e-5
    increase: float = 8.0  # factor after a rejected step
    min_increased: float = 1e-2  # smallest value after a rejected step
    relative: float = 1e-9  # share of the trace added to the diagonal
    absolute: float = 1e-12  # added to the diagonal, so that the step is 0 if there is no gradient


@dataclass(frozen=True)
class Schedule:
    """Constants of the search, the registration and the confidence.

    A coarse path is (σ/R at its start, σ/R below which rotation is estimated). A distant template
    must be shifted before it is rotated, a strongly rotated one must be rotated from the start, and
    a close one needs no large σ. The first path that reaches a low energy is continued; if none
    does, the path with the lowest energy.
    """

    # Search: all windows of the image are compared with rotated and scaled templates.
    grid: int = 12  # samples across the template
    rotations: int = 24
    scales: tuple[float, ...] = (0.5, 0.63, 0.794, 1.0, 1.26, 1.587, 2.0)
    peaks: int = 12  # kept per template and scale
    energy_floor: float = 0.1  # share of the mean window energy added to each, against flat windows
    candidates: int = 6  # best peaks of the search that are registered
    min_distance: float = 2.5  # grid samples; closer peaks of similar pose are one candidate
    similar_rotations: int = 1  # largest difference of rotation indices of similar poses
    similar_log_scale: float = 0.25  # bound on the difference of log-scales of similar poses
    match_threshold: float = 3.0  # pixels: inliers of a transform from matched features
    detector_frames: tuple[int, int] = (24, 96)  # in the template and in the image

    # Thin and small templates.
    min_template: int = 8  # pixels across
    min_halved: int = 32  # pixels across: smaller templates are not halved
    max_aspect_ratio: float = 2.0  # thinner templates are searched for in parts
    max_parts: int = 8
    min_quarter: int = 40  # pixels across: smaller parts match everywhere

    # Coarse registration.
    coarse_radius: float = 96.0  # pixels: larger templates are halved first
    coarse_end: float = 11.5  # R/σ of the last coarse σ
    coarse_end_range: tuple[float, float] = (2.0, 6.0)  # pixels: bounds of the last coarse σ
    min_samples_per_sigma: float = 1.4  # of the fields that are compared
    illumination_width: float = 0.125  # share of the side over which illumination is constant
    min_illumination_width: float = 2.0  # pixels
    given_start: float = 0.5  # σ/R at which the path from a given start begins
    candidate_start: float = 0.125  # σ/R at which the path from a candidate begins
    affine_from: float = 0.125  # σ/R below which the model may be affine
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
    low_energy: float = 0.45  # at the last coarse σ; below it no other path is tried
    inside_at_start: float = 0.25  # share of the template that must be inside the image
    inside_at_end: float = 0.5

    # Fine registration: at these σ, in pixels, the fields of the warped image are recomputed.
    fine_sigmas: tuple[float, ...] = (1.4, 0.0)
    further_sigmas: tuple[float, ...] = (5.6, 2.8)  # precede them for additional starting points
    antialiased_scale: float = 1.05  # above it the image is blurred before it is warped

    # Levenberg-Marquardt descent.
    damping: Damping = Damping()
    max_scale: float = 10.0  # of a plausible transform and of its inverse
    gain_range: tuple[float, float] = (0.3, 2.0)  # relative to the gain that equalizes the powers
    gain_steps: int = 3  # alternations of fitting the gain and the weights
    robust_scale: float = 0.5  # c² as a share of the template's mean |U|²
    rotation_diffusion: float = 3.0  # σr in units of σ/R
    max_steps: int = 12  # per σ
    max_samples: int = 1 << 18  # of the template
    min_step_unit: float = 0.5  # pixels: steps are measured in units of σ, or of this if larger
    step_tolerance: float = 0.03  # units: a smaller step ends the descent
    converged_step: float = 0.2  # units: a smaller last step counts as converged
    stalled_step: float = 0.01  # units: a smaller rejected step ends the descent
    affine_blurs: int = 4  # blurs between which affine-diffused fields are interpolated

    # Confidence: coefficients of the logistic regression in confidence.py.
    comparison_sigma: float = 1.4  # pixels: the σ at which the densities are compared
    comparison_width: float = 0.125  # share of R: the width of the window of each comparison
    min_sharpness: float = 1e-6  # lower bound of s
    agreement: float = 19.1
    sharpness: float = 2.27
    offset: float = -21.0
    noise_area: float = 20.0  # pixels over which the noise of fields is correlated
    min_curvature: float = 1e-6  # lower bound of curvatures, as a share of the largest
    reliable_confidence: float = 0.5  # below it an alignment counts as not converged
    high_confidence: float = 0.999  # at or above it no other starting point is tried

    # find_template.
    patch_side: int = 12  # samples, and positions of the density, across a patch
    directions: int = 12
    template_candidates: int = 3  # candidates per template
    aligned_templates: int = 8  # templates that are aligned; more if the last one converged
    escalated_templates: int = 2  # retried from other starting points if none converged; else 1


SCHEDULE = Schedule()
