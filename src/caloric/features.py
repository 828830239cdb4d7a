"""What an image is known by: its features, with their file format."""

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from caloric.errors import InputError
from caloric.frames import Frames
from caloric.runtime.files import replacing
from caloric.runtime.indexing import rows

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
    """

    frames: Frames
    descriptors: NDArray[np.generic]
    image_size: tuple[int, int]
    descriptor: str
    recipe: str
    views: int = 1

    def __post_init__(self) -> None:
        """Check that there is one descriptor for each frame."""
        if self.descriptors.ndim != 2 or len(self.descriptors) != len(self.frames):
            raise InputError(
                f"features: {len(self.frames)} frames but descriptors of shape "
                f"{self.descriptors.shape}"
            )

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
            return cls(frames, values, size, *names, int(about.get("views", 1)))
        except FileNotFoundError:
            raise InputError(f"{path}: no such file") from None
        except Exception as error:
            # NumPy's advice to load what it does not know as a pickle is bad advice.
            reason = "unknown format" if "pickle" in str(error) else error
            raise InputError(f"{path}: not a file of features ({reason})") from None


def check_comparable(a: Features, b: Features) -> None:
    """Raise an error if the descriptors of ``a`` and ``b`` were not computed in the same way."""
    what = None
    if a.recipe != b.recipe:
        what = f"{a.descriptor!r} and of {b.descriptor!r}"
        if a.descriptor == b.descriptor:
            what = f"{a.descriptor!r} with other parameters"
    elif (a.descriptors.dtype == np.uint8) != (b.descriptors.dtype == np.uint8):
        what = f"{a.descriptors.dtype} and of {b.descriptors.dtype}"
    if what is not None:
        raise InputError(
            f"features of {what} cannot be compared; describe both images the same way"
        )
