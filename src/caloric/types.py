"""Names of array types and choices that several modules share."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ArrayOrTensor: TypeAlias = Any  # of NumPy or PyTorch
FloatArray: TypeAlias = NDArray[np.float64]
Pixels: TypeAlias = NDArray[np.float32]  # grayscale, (h, w)
Mask: TypeAlias = NDArray[np.bool_]  # (h, w)
Report: TypeAlias = dict[str, Any]  # results that are written as JSON
Log: TypeAlias = Callable[[str], None]  # prints a line of progress

Detector = Literal["dog", "opencv"]
Normalization = Literal["none", "l2", "clip", "root"]
GeometryModel = Literal["homography", "fundamental", "essential", "affine"]
Encoding = Literal["unit", "uint8", "uint8+128"]  # of descriptors: see Features
TransformModel = Literal["translation", "similarity", "affine"]
