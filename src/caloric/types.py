"""Type aliases shared by several modules."""

from collections.abc import Callable
from os import PathLike
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import ArrayLike, NDArray

ArrayOrTensor: TypeAlias = Any  # NumPy array or PyTorch tensor
FloatArray: TypeAlias = NDArray[np.float64]
Pixels: TypeAlias = NDArray[np.float32]  # grayscale, (h, w)
Mask: TypeAlias = NDArray[np.bool_]  # (h, w)
Report: TypeAlias = dict[str, Any]  # results to be written as JSON
Log: TypeAlias = Callable[[str], None]  # prints a progress message

Detector = Literal["dog", "opencv"]
Normalization = Literal["none", "l2", "clip", "root"]
GeometryModel = Literal["homography", "fundamental", "essential", "affine"]
ModelChoice = Literal["auto", GeometryModel]  # "auto" chooses the model from the matches
UncalibratedChoice = Literal["auto", "homography", "fundamental", "affine"]  # without intrinsics
Encoding = Literal["unit", "uint8", "uint8+128"]  # of descriptors: see caloric.Features
TransformModel = Literal["translation", "similarity", "affine"]


class PillowImage(Protocol):
    """An image of Pillow, ``PIL.Image.Image``, in any mode."""

    @property
    def mode(self) -> str:
        """The mode, such as "RGB" or "L"."""

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""

    def getbands(self) -> tuple[str, ...]:
        """Return the names of the channels."""


class TorchTensor(Protocol):
    """A tensor of PyTorch, ``torch.Tensor``."""

    def dim(self) -> int:
        """Return the number of dimensions."""

    def numel(self) -> int:
        """Return the number of elements."""


class BinaryFile(Protocol):
    """A file that is open for reading in binary mode, or any other object with ``read()``."""

    def read(self) -> bytes:
        """Return the remaining bytes."""


@runtime_checkable
class Windows(Protocol):
    """An image that is read window by window, such as a large TIFF (:func:`caloric.open_image`)."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape (h, w) or (h, w, channels) of the image."""

    def window(self, rows: slice, columns: slice) -> NDArray[np.generic]:
        """Return the pixels of the given rows and columns."""


# Everything that functions accept as an image: see caloric.read_image.
ImageLike: TypeAlias = (
    ArrayLike | PillowImage | TorchTensor | Windows | str | PathLike[str] | bytes | BinaryFile
)
