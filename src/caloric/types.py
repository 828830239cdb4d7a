"""Type aliases shared by several modules."""

from collections.abc import Callable
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

ArrayOrTensor: TypeAlias = Any  # NumPy array or PyTorch tensor
FloatArray: TypeAlias = NDArray[np.float64]
Pixels: TypeAlias = NDArray[np.float32]  # grayscale, (h, w)
Mask: TypeAlias = NDArray[np.bool_]  # (h, w)
Report: TypeAlias = dict[str, Any]  # results to be written as JSON
Log: TypeAlias = Callable[[str], None]  # prints a progress message

Detector = Literal["dog", "opencv"]
Normalization = Literal["none", "l2", "clip", "root"]
GeometryModel = Literal["homography", "fundamental", "essential", "affine"]
UncalibratedModel = Literal["homography", "fundamental", "affine"]  # models without intrinsics
Encoding = Literal["unit", "uint8", "uint8+128"]  # of descriptors: see caloric.Features
TransformModel = Literal["translation", "similarity", "affine"]
