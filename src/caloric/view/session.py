"""The state of the page: two images, and their matches under some settings."""

from collections import OrderedDict
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from caloric.errors import InputError
from caloric.image_pair import ImageMatch, match_images
from caloric.options import ExtractOptions
from caloric.types import Report
from caloric.view import details, result, standalone
from caloric.view.images import LoadedImage as LoadedImage
from caloric.view.result import MODELS as MODELS
from caloric.view.result import Settings as Settings

_KEPT = 8  # cached results


@dataclass
class Session:
    """Up to two images and cached results; one result is computed at a time."""

    pictures: dict[str, LoadedImage] = field(default_factory=dict)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    chosen: dict[str, str] = field(default_factory=dict)  # initial settings of the page
    _results: OrderedDict[tuple[Any, ...], ImageMatch] = field(default_factory=OrderedDict)
    _lock: Lock = field(default_factory=Lock)

    def put(self, side: str, picture: LoadedImage) -> None:
        """Replace an image and drop the results of the old one.

        It does not wait for a running computation.
        """
        before = self.pictures.get(_side(side))
        self.pictures[side] = picture
        for key in [key for key in list(self._results) if before in key]:
            self._results.pop(key, None)

    def picture(self, side: str) -> LoadedImage:
        """Return the image of a side, "a" or "b"."""
        picture = self.pictures.get(_side(side))
        if picture is None:
            raise InputError(f"image {side!r} is not loaded yet")
        return picture

    def both(self) -> tuple[LoadedImage, LoadedImage]:
        """Return both images."""
        return self.picture("a"), self.picture("b")

    def knows(self, settings: Settings) -> bool:
        """Return whether the result is cached."""
        return (*self.both(), settings) in self._results

    def matched(self, settings: Settings) -> ImageMatch:
        """Return the result for both images, computed if it is not cached."""
        a, b = self.both()
        key = (a, b, settings)
        known = self._results.get(key)
        if known is not None:
            return known
        with self._lock:
            known = self._results.get(key)  # another thread may have computed it meanwhile
            if known is None:
                options = self.options.to_json() | settings.arguments()
                known = match_images(a.gray, b.gray, **options)
                self._results[key] = known
                while len(self._results) > _KEPT:
                    self._results.popitem(last=False)
            return known

    def summary(self, settings: Settings) -> Report:
        """Return a result for the page, with the command that computes it."""
        a, b = self.both()
        own = self.options.to_json()
        own.pop("descriptor", None)  # the page chooses it
        options = settings.options() | own
        command = result.command((a.path or a.name, b.path or b.name), options)
        return {**result.summary(self.matched(settings)), "command": command}

    def detail(self, settings: Settings, index: int) -> Report:
        """Return both patches of a match, with their densities and descriptors."""
        return details.detail(self.both(), self.matched(settings), index)

    def aligned(self, x: float, y: float, size: int) -> Report:
        """Return the path of an alignment of a square of the first image with the second."""
        return details.aligned(self.both(), x, y, size)

    def page(self, settings: Settings, beside: str | None = None) -> str:
        """Return the page as one file, optionally with the result of another descriptor."""
        a, b = self.both()
        own = self.summary(settings)
        other = None if beside is None else self.summary(replace(settings, descriptor=beside))
        return standalone.written((a, b), own, other, f"{a.name} and {b.name}")


def _side(side: str) -> str:
    if side not in ("a", "b"):
        raise InputError(f"an image is a or b, not {side!r}")
    return side
