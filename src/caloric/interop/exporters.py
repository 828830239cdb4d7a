"""Exporters of features and matches to the formats of other tools.

To add a format, write a subclass of :class:`Exporter` in a module of this package and register it
in :data:`FORMATS`. ``caloric extract -o`` and ``caloric collection export`` then support it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import ClassVar, cast

from caloric.errors import InputError, unknown
from caloric.features import Features
from caloric.interop.cameras import Cameras
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_target


@dataclass(frozen=True)
class Format:
    """The exporter ("module:class") and its suffixes for ``caloric extract -o``; "": directory."""

    exporter: str
    suffixes: tuple[str, ...] = ()


FORMATS = {
    "colmap": Format("caloric.interop.colmap:Colmap"),
    "hloc": Format("caloric.interop.hdf5:Hloc", (".h5", ".hdf5")),
    "openmvg": Format("caloric.interop.openmvg:OpenMvg"),
    "opensfm": Format("caloric.interop.opensfm:OpenSfm"),
    "npz": Format("caloric.interop.npz:Npz", (".npz", "")),
    "text": Format("caloric.interop.text:Text"),
}


@dataclass(frozen=True)
class Request:
    """The target of an export, and what is known about the images before it starts.

    Parameters
    ----------
    target : Path
        The file or directory to write.
    names : tuple of str
        Names of the images, if known.
    images : Path or None
        The image directory, for formats that need it.
    count : int
        The total number of features; 0 if unknown.
    pairs : bool
        Whether pairs are exported as well.
    cameras : Cameras
        The model and focal length of the cameras, for formats that have cameras.
    camera_of : dict
        For each image, the image whose camera it has; others have separate cameras.
    """

    target: Path
    names: tuple[str, ...] = ()
    images: Path | None = None
    count: int = 0
    pairs: bool = False
    cameras: Cameras = Cameras()  # noqa: RUF009 - immutable
    camera_of: Mapping[str, str] = field(default_factory=dict)


class Exporter(ABC):
    """Writes one format. :func:`write` calls the methods in the order of their definition.

    ``stack`` is closed at the end, also after an error. If files are opened by
    :func:`caloric.runtime.files.replacing` and entered into it, an error leaves no partial file.
    """

    location: ClassVar[str]  # path of the export of a collection, relative to its store
    file_axes: ClassVar[bool] = True  # whether readers ignore the EXIF orientation of images
    hint: ClassVar[str] = ""  # how to use the files

    def __init__(self, request: Request) -> None:
        """Check the request before anything is computed."""
        self.request, self.target, self.stack = request, request.target, ExitStack()
        for name in request.names:
            check_name(name)
        self.check()

    def check(self) -> None:
        """Raise an error if the request cannot be fulfilled."""
        check_target(self.target)

    def files(self) -> list[Path]:
        """Return the files that will be written, if known."""
        return [self.target]

    def open(self) -> None:  # noqa: B027 - optional
        """Start writing."""

    @abstractmethod
    def features(self, name: str, features: Features) -> None:
        """Write the features of an image."""

    def pair(self, pair: TwoViews) -> None:  # noqa: B027 - optional
        """Write the matches of two images; override it if the format has matches."""

    def close(self) -> list[Path]:
        """Finish; return the paths that were written."""
        return [self.target]


def exporter(name: str) -> type[Exporter]:
    """Return the exporter of a format by its name."""
    if name not in FORMATS:
        raise unknown("format", name, FORMATS)
    module, _, attribute = FORMATS[name].exporter.partition(":")
    return cast(type[Exporter], getattr(import_module(module), attribute))


def _by_suffix() -> dict[str, str]:
    return {suffix: name for name, kind in FORMATS.items() for suffix in kind.suffixes}


def outputs() -> str:
    """Return a description of the outputs that ``caloric extract -o`` can write."""
    *first, last = filter(None, _by_suffix())
    return f"a {', '.join(first)} or {last} file, or a directory"


def exporter_for(output: Path) -> type[Exporter]:
    """Return the exporter for the suffix of an output file, or for a directory."""
    known, suffix = _by_suffix(), output.suffix.lower()
    if suffix not in known and not output.is_dir():
        raise InputError(
            f"{output}: the output must be {outputs()} (create the directory first if its name "
            "has a dot)"
        )
    return exporter(known.get(suffix, known[""]))


def write(
    exporter: Exporter, images: Iterable[tuple[str, Features]], pairs: Iterable[TwoViews] = ()
) -> list[Path]:
    """Export the features of images by name, and pairs; return the paths that were written."""
    try:
        with exporter.stack:
            exporter.open()
            for name, features in images:
                check_name(name)
                exporter.features(name, features)
            if type(exporter).pair is not Exporter.pair:
                for pair in pairs:
                    exporter.pair(pair)
            return exporter.close()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"{exporter.target}: cannot be written ({reason})") from None


def check_name(name: str) -> None:
    """Raise an error if an image name is not a relative path within its directory.

    Image names become file paths. Windows paths are checked on all systems, because results are
    copied between systems.
    """
    windows = PureWindowsPath(name)
    parts = {*PurePosixPath(name).parts, *windows.parts}
    drive = windows.drive and not name[0].isdigit()  # 9:41.jpg is a file name
    if not parts or parts & {"/", ".."} or windows.root or drive or "\0" in name:
        raise InputError(f"{name!r}: image name leads out of the output directory")


def inside(directory: Path, name: str) -> Path:
    """Return the path of a file in a directory, and create its parent directories."""
    check_name(name)
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):
        raise InputError(f"{path}: a link leads out of {directory}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
