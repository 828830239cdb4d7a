"""The theory of Mobahi and Soatto as executable NumPy and SciPy code, written to be read.

Equation numbers are those of *A Theory of Local Matching: SIFT and Beyond*. Where the printed
formula is wrong, the code has the corrected one and names the erratum.

The notation throughout::

    k_σ(x)    the Gaussian of width σ;  k̃_σ  its wrapped form on the circle
    v(β)      (cos β, sin β)
    (a, b)⊥   (b, −a)
    g, φ      ∇f(y) and its angle;  ĝ = v(φ)
    h(β, x)   the gradient-orientation density: how much gradient points along β at x
"""
