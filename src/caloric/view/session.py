"""The state of the page: two images, and the results for their settings."""

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

_MAX_RESULTS = 8  # in the cache


@dataclass
class Session:
    """Up to two images and cached results; one result is computed at a time.

    The last images with a result are kept until their replacements have one, so that
    :meth:`restore_images` can return to them.
    """

    images: dict[str, LoadedImage] = field(default_factory=dict)
    options: ExtractOptions = field(default_factory=ExtractOptions)
    initial_settings: dict[str, str] = field(default_factory=dict)
    _results: OrderedDict[tuple[Any, ...], ImageMatch] = field(default_factory=OrderedDict)
    _matched_images: dict[str, LoadedImage] = field(default_factory=dict)
    _lock: Lock = field(default_factory=Lock)

    def set_image(self, side: str, image: LoadedImage) -> None:
        """Set the image of a side, "a" or "b"; this does not wait for a running computation."""
        self.images = self.images | {checked_side(side): image}

    def restore_images(self) -> None:
        """Set the last images that have a result, if there are any."""
        self.images = self._matched_images or self.images

    def image(self, side: str) -> LoadedImage:
        """Return the image of a side, "a" or "b"."""
        image = self.images.get(checked_side(side))
        if image is None:
            raise InputError(f"image {side!r} is not loaded yet")
        return image

    def both(self) -> tuple[LoadedImage, LoadedImage]:
        """Return both images."""
        return self.image("a"), self.image("b")

    def has_result(self, settings: Settings) -> bool:
        """Return whether the result is cached."""
        return (*self.both(), settings) in self._results

    def matched(self, settings: Settings) -> ImageMatch:
        """Return the result for both images, computed if it is not cached."""
        a, b = self.both()
        key = (a, b, settings)
        cached = self._results.get(key)
        if cached is not None:
            return cached
        with self._lock:
            cached = self._results.get(key)  # another thread may have computed it meanwhile
            if cached is None:
                options = self.options.to_json() | settings.arguments()
                cached = match_images(a.gray, b.gray, **options)
                self._matched_images = {"a": a, "b": b}
                for other in [other for other in self._results if other[:2] != key[:2]]:
                    self._results.pop(other)
                self._results[key] = cached
                while len(self._results) > _MAX_RESULTS:
                    self._results.popitem(last=False)
            return cached

    def summary(self, settings: Settings) -> Report:
        """Return the result as JSON for the page, with the command that computes it."""
        a, b = self.both()
        extraction = self.options.to_json()
        extraction.pop("descriptor", None)  # it is one of the settings
        options = settings.options() | extraction
        command = result.command((a.path or a.name, b.path or b.name), options)
        return {**result.summary(self.matched(settings)), "command": command}

    def detail(self, settings: Settings, index: int) -> Report:
        """Return both patches of a match, with their densities and descriptors."""
        return details.detail(self.both(), self.matched(settings), index)

    def aligned(self, x: float, y: float, size: int) -> Report:
        """Align a square of the first image with the second; return the steps."""
        return details.aligned(self.both(), x, y, size)

    def page(self, settings: Settings, compare: str | None = None) -> str:
        """Return a self-contained page, optionally with the result of another descriptor."""
        a, b = self.both()
        shown = self.summary(settings)
        other = None if compare is None else self.summary(replace(settings, descriptor=compare))
        return standalone.render((a, b), shown, other, f"{a.name} and {b.name}")


def checked_side(side: str) -> str:
    """Return the side of an image; raise InputError unless it is "a" or "b"."""
    if side not in ("a", "b"):
        raise InputError(f"the side of an image must be a or b, got {side!r}")
    return side
