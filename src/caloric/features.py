"""The features of an image, and their file format."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.descriptor import recipes
from caloric.errors import InputError, unknown
from caloric.frames import Frames
from caloric.runtime.files import replacing
from caloric.runtime.indexing import rows
from caloric.types import Encoding

_FORMAT = 2


@dataclass(frozen=True, eq=False)
class Features:
    """The frames of an image and their descriptors.

    Parameters
    ----------
    frames : Frames
        n frames, strongest first.
    descriptors : ndarray (n, d)
        One descriptor per frame: float32, float64 or uint8.
    image_size : (int, int)
        Height and width of the image.
    descriptor : str
        The name of the descriptor.
    recipe : str
        A fingerprint of all its parameters: only features of one recipe can be compared.
    views : int
        The largest tilt of the views that the features are from; 1 is the image itself.
    encoding : "unit", "uint8" or "uint8+128"
        How the descriptors h are stored: as floats of unit length, as bytes round(512 h), or, if
        they are whitened and have signs, as bytes round(256 h) + 128. By default it follows from
        the type of ``descriptors`` and the name of the descriptor: see :func:`encoding_of`.
    """

    frames: Frames
    descriptors: NDArray[np.generic]
    image_size: tuple[int, int]
    descriptor: str
    recipe: str
    views: int = 1
    encoding: Encoding = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        """Check that there is one descriptor for each frame; set the default of ``encoding``."""
        if self.descriptors.ndim != 2 or len(self.descriptors) != len(self.frames):
            raise InputError(
                f"features: {len(self.frames)} frames but descriptors of shape "
                f"{self.descriptors.shape}"
            )
        if self.encoding is None:
            encoding = encoding_of(self.descriptors.dtype, _is_whitened(self.descriptor))
            object.__setattr__(self, "encoding", encoding)
        elif self.encoding not in get_args(Encoding):
            raise unknown("encoding", self.encoding, get_args(Encoding))

    def __repr__(self) -> str:
        """Return a summary in one line."""
        h, w = self.image_size
        kind = f"{self.descriptors.shape[1]}-d {self.descriptors.dtype}"
        return f"Features({len(self)} of {self.descriptor!r}, {kind}, image {w} x {h})"

    def __len__(self) -> int:
        """Return the number of features."""
        return len(self.frames)

    def __getitem__(self, index: Any) -> "Features":
        """Return the features selected by a slice, mask, indices, or a single index."""
        index = rows(index, len(self))
        return replace(self, frames=self.frames[index], descriptors=self.descriptors[index])

    def _repr_html_(self) -> str:
        return self.frames.html_table(repr(self))

    @property
    def scores(self) -> NDArray[np.float32]:
        """The strength of each frame (n,)."""
        return self.frames.scores

    def save(self, path: str | Path) -> None:
        """Write an .npz file, completely or not at all."""
        if Path(path).suffix.lower() not in (".npz", ""):
            raise InputError(
                f"{path}: features are saved as .npz; for hloc use caloric.interop.hdf5.write"
            )
        about = json.dumps(
            {
                "format": _FORMAT,
                "descriptor": self.descriptor,
                "recipe": self.recipe,
                "size": self.image_size,
                "views": self.views,
                "encoding": self.encoding,
            }
        )
        with replacing(Path(path)) as file:
            np.savez(
                file,
                maps=self.frames.maps,
                scores=self.scores,
                descriptors=self.descriptors,
                about=np.frombuffer(about.encode(), np.uint8),
            )

    @classmethod
    def load(cls, path: str | Path) -> "Features":
        """Read a file that :meth:`save` wrote. Nothing in the file is executed."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                about = json.loads(bytes(stored["about"]))
                frames = Frames(stored["maps"], stored["scores"])
                values = np.asarray(stored["descriptors"])
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']}, this version reads {_FORMAT}")
            size = (int(about["size"][0]), int(about["size"][1]))
            names = str(about["descriptor"]), str(about["recipe"])
            # Files of earlier versions have no encoding: it follows from type and name.
            rest = int(about.get("views", 1)), about.get("encoding")
            return cls(frames, values, size, *names, *rest)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except Exception as error:
            # NumPy's advice to load what it does not know as a pickle is bad advice.
            reason = "unknown format" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a file of features ({reason})") from None


def encoding_of(dtype: DTypeLike, signed: bool) -> Encoding:
    """Return how descriptors of a type are stored; ``signed`` is whether they are whitened."""
    if np.dtype(dtype) != np.uint8:
        return "unit"
    return "uint8+128" if signed else "uint8"


def _is_whitened(descriptor: str) -> bool:
    """Return whether descriptors of that name are whitened; names of others' are not known."""
    try:
        return recipes.descriptor(descriptor).whitening is not None
    except InputError:
        return False


def check_comparable(a: Features, b: Features) -> None:
    """Raise an error if the descriptors of ``a`` and ``b`` were not computed in the same way."""
    what = None
    if a.recipe != b.recipe:
        what = f"{a.descriptor!r} and of {b.descriptor!r}"
        if a.descriptor == b.descriptor:
            what = f"{a.descriptor!r} with other parameters"
    elif a.encoding != b.encoding:
        what = f"encoding {a.encoding!r} and of {b.encoding!r}"
    if what is not None:
        raise InputError(
            f"features of {what} cannot be compared; describe both images the same way"
        )
