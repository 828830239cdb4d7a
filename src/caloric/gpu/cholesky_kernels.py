"""A Triton function for systems of six equations."""

import triton
import triton.language as tl


@triton.jit
def solve(h, factor, extra, g0, g1, g2, g3, g4, g5):
    """Return the solution of a system, as :func:`caloric.matching.refinement_steps.solve`.

    ``h`` points to the matrix (6, 6); its diagonal is multiplied by ``factor``, and ``extra`` is
    added to it.
    """
    h00, h11, h22 = tl.load(h) * factor, tl.load(h + 7) * factor, tl.load(h + 14) * factor
    h33, h44, h55 = tl.load(h + 21) * factor, tl.load(h + 28) * factor, tl.load(h + 35) * factor
    h10, h20, h21 = tl.load(h + 6), tl.load(h + 12), tl.load(h + 13)
    h30, h31, h32 = tl.load(h + 18), tl.load(h + 19), tl.load(h + 20)
    h40, h41, h42, h43 = tl.load(h + 24), tl.load(h + 25), tl.load(h + 26), tl.load(h + 27)
    h50, h51, h52 = tl.load(h + 30), tl.load(h + 31), tl.load(h + 32)
    h53, h54 = tl.load(h + 33), tl.load(h + 34)
    h00, h11, h22 = h00 + extra, h11 + extra, h22 + extra
    h33, h44, h55 = h33 + extra, h44 + extra, h55 + extra
    l00 = tl.sqrt(tl.maximum(h00, 1e-30))
    l10, l20, l30, l40, l50 = h10 / l00, h20 / l00, h30 / l00, h40 / l00, h50 / l00
    l11 = tl.sqrt(tl.maximum(h11 - l10 * l10, 1e-30))
    l21, l31 = (h21 - l20 * l10) / l11, (h31 - l30 * l10) / l11
    l41, l51 = (h41 - l40 * l10) / l11, (h51 - l50 * l10) / l11
    l22 = tl.sqrt(tl.maximum(h22 - l20 * l20 - l21 * l21, 1e-30))
    l32 = (h32 - l30 * l20 - l31 * l21) / l22
    l42 = (h42 - l40 * l20 - l41 * l21) / l22
    l52 = (h52 - l50 * l20 - l51 * l21) / l22
    l33 = tl.sqrt(tl.maximum(h33 - l30 * l30 - l31 * l31 - l32 * l32, 1e-30))
    l43 = (h43 - l40 * l30 - l41 * l31 - l42 * l32) / l33
    l53 = (h53 - l50 * l30 - l51 * l31 - l52 * l32) / l33
    l44 = tl.sqrt(tl.maximum(h44 - l40 * l40 - l41 * l41 - l42 * l42 - l43 * l43, 1e-30))
    l54 = (h54 - l50 * l40 - l51 * l41 - l52 * l42 - l53 * l43) / l44
    l55 = h55 - l50 * l50 - l51 * l51 - l52 * l52 - l53 * l53 - l54 * l54
    l55 = tl.sqrt(tl.maximum(l55, 1e-30))
    x0 = g0 / l00
    x1 = (g1 - l10 * x0) / l11
    x2 = (g2 - l20 * x0 - l21 * x1) / l22
    x3 = (g3 - l30 * x0 - l31 * x1 - l32 * x2) / l33
    x4 = (g4 - l40 * x0 - l41 * x1 - l42 * x2 - l43 * x3) / l44
    x5 = (g5 - l50 * x0 - l51 * x1 - l52 * x2 - l53 * x3 - l54 * x4) / l55
    x5 = x5 / l55
    x4 = (x4 - l54 * x5) / l44
    x3 = (x3 - l43 * x4 - l53 * x5) / l33
    x2 = (x2 - l32 * x3 - l42 * x4 - l52 * x5) / l22
    x1 = (x1 - l21 * x2 - l31 * x3 - l41 * x4 - l51 * x5) / l11
    x0 = (x0 - l10 * x1 - l20 * x2 - l30 * x3 - l40 * x4 - l50 * x5) / l00
    return x0, x1, x2, x3, x4, x5
