"""Exporters: features and matches in the formats of other tools.

A format is a subclass of :class:`Exporter` in a file of this package, and a line in
:data:`FORMATS`. ``caloric extract -o`` and ``caloric collection export`` then offer it.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import ClassVar, cast

from caloric.errors import InputError, unknown
from caloric.features import Features
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_target


@dataclass(frozen=True)
class Format:
    """The class of an exporter, and the suffixes of ``caloric extract -o``; "" is a directory."""

    exporter: str
    suffixes: tuple[str, ...] = ()


FORMATS = {
    "colmap": Format("caloric.interop.colmap:Colmap"),
    "hloc": Format("caloric.interop.hdf5:Hloc", (".h5", ".hdf5")),
    "npz": Format("caloric.interop.npz:Npz", (".npz", "")),
    "text": Format("caloric.interop.text:Text"),
}


@dataclass(frozen=True)
class Request:
    """What is to be exported, and where to.

    Parameters
    ----------
    target : Path
        The file or directory to write.
    names : tuple of str
        Names of the images, as far as they are known before the work.
    images : Path or None
        The directory of the image files, for formats that need them.
    count : int
        The number of features of all images; 0 if it is not known.
    pairs : bool
        Whether pairs of images follow the features.
    """

    target: Path
    names: tuple[str, ...] = ()
    images: Path | None = None
    count: int = 0
    pairs: bool = False


class Exporter(ABC):
    """Writes one format. :func:`write` calls the methods in the order in which they are here.

    What is entered into ``stack`` is left when all is written, or when something fails: enter
    :func:`caloric.runtime.files.replacing`, and a failure leaves no partial file.
    """

    location: ClassVar[str]  # where a collection puts it, relative to its store
    file_axes: ClassVar[bool] = True  # whether readers ignore the EXIF orientation of images
    hint: ClassVar[str] = ""  # what to do with the files

    def __init__(self, request: Request) -> None:
        """Check the request, before any work."""
        self.request, self.target, self.stack = request, request.target, ExitStack()
        for name in request.names:
            check_name(name)
        self.check()

    def check(self) -> None:
        """Raise an error if the request cannot be fulfilled."""
        check_target(self.target)

    def files(self) -> list[Path]:
        """Return the files that will be written, as far as they are known."""
        return [self.target]

    def open(self) -> None:  # noqa: B027 - optional
        """Begin to write."""

    @abstractmethod
    def features(self, name: str, features: Features) -> None:
        """Write the features of an image."""

    def pair(self, pair: TwoViews) -> None:  # noqa: B027 - optional
        """Write the matches of two images; formats without matches do not override it."""

    def close(self) -> list[Path]:
        """Finish; return what was written."""
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
    """Return what ``caloric extract -o`` can write, in words."""
    return f"a {', '.join(filter(None, _by_suffix()))} file or a directory"


def exporter_for(output: Path) -> type[Exporter]:
    """Return the exporter for the suffix of an output file, or the one for a directory."""
    known, suffix = _by_suffix(), output.suffix.lower()
    if suffix not in known and not output.is_dir():
        raise InputError(
            f"{output}: name {outputs()} (to use a directory with a dot in its name, create it)"
        )
    return exporter(known.get(suffix, known[""]))


def write(
    exporter: Exporter, images: Iterable[tuple[str, Features]], pairs: Iterable[TwoViews] = ()
) -> list[Path]:
    """Export the features of images, by name, and pairs of them; return what was written."""
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
    """Raise an error if the name of an image is not a relative path that stays in its directory.

    Names of images become paths of files. Those of other systems are checked too, because results
    are copied from one to another.
    """
    windows = PureWindowsPath(name)
    parts = {*PurePosixPath(name).parts, *windows.parts}
    drive = windows.drive and not name[0].isdigit()  # 9:41.jpg is a file
    if not parts or parts & {"/", ".."} or windows.root or drive or "\0" in name:
        raise InputError(f"{name!r}: the name of an image leads out of the output directory")


def inside(directory: Path, name: str) -> Path:
    """Return the path of a file in a directory, whose parents are created."""
    check_name(name)
    path = directory / name
    if not path.resolve().is_relative_to(directory.resolve()):  # by a link
        raise InputError(f"{path}: leads out of {directory}")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path
