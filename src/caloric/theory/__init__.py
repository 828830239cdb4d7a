"""Reference implementation of the theory of Mobahi and Soatto in NumPy and SciPy.

Equation numbers are those of *A Theory of Local Matching: SIFT and Beyond*. If a printed formula is
incorrect, the code has the corrected one and names the erratum.

Notation::

    k_σ(x)    the Gaussian of width σ;  k̃_σ  its wrapped form on the circle
    v(β)      (cos β, sin β)
    (a, b)⊥   (b, −a)
    g, φ      ∇f(y) and its angle;  ĝ = v(φ)
    h(β, x)   the gradient-orientation density: the gradient magnitude with direction β at x
"""
