"""Features of an image and their file format."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import numpy as np
from numpy.typing import DTypeLike, NDArray

from caloric.descriptor import recipes
from caloric.descriptor.normalize import OFFSET
from caloric.errors import InputError, unknown
from caloric.frames import Frames
from caloric.runtime.files import replacing
from caloric.runtime.indexing import rows, select
from caloric.types import Encoding

_FORMAT = 2


@dataclass(frozen=True, eq=False)
class Features:
    """Frames of an image and their descriptors.

    Parameters
    ----------
    frames : Frames
        n frames, in the order of :func:`detect`.
    descriptors : ndarray (n, d)
        One descriptor per frame: float32, float64 or uint8.
    image_size : (int, int)
        Height and width of the image.
    descriptor : str
        Name of the descriptor.
    recipe : str
        Fingerprint of the recipe; only features with the same recipe can be compared.
    views : int
        Largest tilt of the simulated views that the features come from; 1 for the image alone.
    encoding : "unit", "uint8" or "uint8+128"
        How a descriptor h is stored: as floats of unit length ("unit"), as bytes round(512 h)
        ("uint8"), or, for whitened descriptors, which are signed, as bytes round(256 h) + 128. By
        default it is inferred from the data type and the name of the descriptor.
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
        """Return the features selected by a slice, a mask, an array of indices or one index."""
        index = rows(index, len(self))
        return replace(self, frames=self.frames[index], descriptors=select(self.descriptors, index))

    def _repr_html_(self) -> str:
        return self.frames.html_table(repr(self))

    @property
    def scores(self) -> NDArray[np.float32]:
        """Strengths (n,) of the frames."""
        return self.frames.scores

    def save(self, path: str | Path) -> None:
        """Write the features to an .npz file, atomically."""
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
        """Read features from a file written by :meth:`save`, without unpickling."""
        try:
            with open(path, "rb") as file, np.load(file, allow_pickle=False) as stored:
                about = json.loads(bytes(stored["about"]))
                frames = Frames(stored["maps"], stored["scores"])
                values = np.asarray(stored["descriptors"])
            if about["format"] != _FORMAT:
                raise ValueError(f"format {about['format']}; this version reads {_FORMAT}")
            size = (int(about["size"][0]), int(about["size"][1]))
            names = str(about["descriptor"]), str(about["recipe"])
            # Files of earlier versions have no encoding; it is inferred.
            rest = int(about.get("views", 1)), about.get("encoding")
            return cls(frames, values, size, *names, *rest)
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except Exception as error:
            # NumPy's message suggests allow_pickle=True, which would be unsafe.
            reason = "unknown format" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a feature file ({reason})") from None


def encoding_of(dtype: DTypeLike, signed: bool) -> Encoding:
    """Return the encoding of descriptors of a data type; whitened ones are ``signed``."""
    if np.dtype(dtype) != np.uint8:
        return "unit"
    return "uint8+128" if signed else "uint8"


def offset_of(encoding: Encoding) -> int:
    """Return the stored value of 0 in an encoding."""
    return OFFSET if encoding == "uint8+128" else 0


def _is_whitened(descriptor: str) -> bool:
    """Return whether the descriptor of this name is whitened; False for unknown names."""
    try:
        return recipes.descriptor(descriptor).whitening is not None
    except InputError:
        return False


def check_comparable(a: Features, b: Features) -> None:
    """Raise InputError if the descriptors of ``a`` and ``b`` were computed differently."""
    what = None
    if a.recipe != b.recipe:
        what = f"{a.descriptor!r} and of {b.descriptor!r}"
        if a.descriptor == b.descriptor:
            what = f"{a.descriptor!r} with different parameters"
    elif a.encoding != b.encoding:
        what = f"encoding {a.encoding!r} and of {b.encoding!r}"
    if what is not None:
        raise InputError(
            f"features of {what} cannot be compared; describe both images the same way"
        )
