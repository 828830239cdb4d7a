"""``python -m tools geometry``: estimators compared, and the confidence calibrated.

Pairs with known geometry are rendered from photographs: planes, planes with a relief of 1 to 3 % of
the distance, planes through a distorting lens, oblique views, corners, surfaces with depth, a
rotating camera; and unrelated photographs. Scenes are split into halves: coefficients fitted to one
half are tested on the other.
"""
