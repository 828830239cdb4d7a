"""Features in .npz files as written by :meth:`caloric.Features.save`, one per image."""

from pathlib import Path
from typing import ClassVar

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.exporters import Exporter, inside
from caloric.runtime.files import check_directory, created_directory


class Npz(Exporter):
    """Writes DIRECTORY/NAME.npz for each image, or a single file for a single image."""

    location: ClassVar[str] = "npz"
    file_axes: ClassVar[bool] = False

    def check(self) -> None:
        """Raise an error for several images in one file, or if the target cannot be written."""
        if not self._is_file():
            check_directory(self.target)
            return
        super().check()
        if len(self.request.names) > 1:
            raise InputError(
                f"{self.target}: an .npz file contains one image; for several images, use a "
                "directory or an .h5 file"
            )

    def files(self) -> list[Path]:
        """Return the files of all images."""
        if self._is_file():
            return [self.target]
        return [self.target / f"{name}.npz" for name in self.request.names]

    def _is_file(self) -> bool:
        return self.target.suffix.lower() == ".npz"

    def open(self) -> None:
        """Create the directory."""
        if not self._is_file():
            self.stack.enter_context(created_directory(self.target))

    def features(self, name: str, features: Features) -> None:
        """Write the file of an image."""
        path = self.target if self._is_file() else inside(self.target, f"{name}.npz")
        features.save(path)
