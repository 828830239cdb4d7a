"""Every number that alignment was tuned by, in one place.

σ is the width of the diffusion and R the radius of the template; both are in pixels. The values
were chosen on photographs that no benchmark uses.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Schedule:
    """How a template is searched for, registered and believed.

    A coarse path is (σ/R to begin at, σ/R from which it may turn): a template far away must be
    approached before it is turned, one that is turned much must be turned at once, and one that is
    near needs no wide σ. The first path that reaches a low energy is continued, else the lowest.
    """

    # Search: all windows of the image against turns and scales of the template.
    grid: int = 12  # samples across the template
    turns: int = 24
    scales: tuple[float, ...] = (0.5, 0.63, 0.794, 1.0, 1.26, 1.587, 2.0)
    peaks: int = 12  # kept per template and scale
    faint: float = 0.1  # share of the mean energy below which a window cannot win
    candidates: int = 6  # of a search that are followed
    detected: tuple[int, int] = (24, 96)  # frames of template and image that give candidates too

    # Templates that are thin or small.
    smallest_template: int = 8  # pixels across
    thin: float = 2.0  # times as long as wide: then parts of it are searched for
    parts: int = 8  # at most
    smallest_quarter: int = 40  # pixels across: smaller parts look alike everywhere

    # Coarse registration, on fields of at most this radius.
    coarse_radius: float = 96.0
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
        (0.0, 1.0),  # last, from the start itself
    )
    shift_paths: tuple[tuple[float, float], ...] = (
        (0.25, 0.0),
        (0.5, 0.0),
        (0.125, 0.0),
        (0.0, 0.0),
    )
    low_energy: float = 0.45  # at the last coarse σ: no other path is tried
    inside_at_start: float = 0.25  # share of the template that must lie in the image
    inside_at_end: float = 0.5

    # Fine registration: at these σ, in pixels, the warped image is measured again.
    fine_sigmas: tuple[float, ...] = (1.4, 0.0)

    # Gauss-Newton descent.
    robust: float = 0.5  # c² as a share of the template's mean |U|²
    rotation_diffusion: float = 3.0  # rotations are diffused by this many σ/R
    steps: int = 12  # at most, per σ
    points: int = 1 << 18  # of the template, at most
    at_rest: float = 0.03  # of σ, or of half a pixel: a smaller step ends the descent
    nearly_at_rest: float = 0.2  # a smaller step may end it
    blended: int = 4  # blurs between which an affine-diffused field is interpolated
    nodes: int = 7  # of the quadrature over scales

    # Confidence: coefficients of the logistic regression in confidence.py.
    compared_at: float = 1.4  # pixels: the σ at which the densities are compared
    agreement: float = 19.1
    sharpness: float = 2.27
    offset: float = -21.0
    correlated: float = 20.0  # pixels over which the noise of fields is correlated
    undetermined: float = 1e-6  # share of the largest curvature below which one counts as zero
    believed: float = 0.5  # confidence below which an alignment did not converge
    sure: float = 0.999  # confidence at which no other start is tried

    # find_template: which of many templates.
    patch_side: int = 12  # samples across a patch, and places of h
    directions: int = 12
    template_candidates: int = 3  # places per template
    aligned_templates: int = 8  # that are aligned in the end
    escalated_templates: int = 2  # of them, tried from other starts too if none is believed


SCHEDULE = Schedule()
