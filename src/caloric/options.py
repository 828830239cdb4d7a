"""ExtractOptions: the options of feature extraction in the API, the commands and collections."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from caloric.descriptor.options import DescribeKeywords, DescribeOptions
from caloric.detector.options import DetectKeywords, DetectOptions
from caloric.errors import InputError, check_options
from caloric.features import Features, encoding_of
from caloric.frames import Frames
from caloric.image import views as simulated


@dataclass(frozen=True, kw_only=True)
class ExtractOptions(DetectOptions, DescribeOptions):
    """Options of feature extraction: how frames are detected and described.

    These are the fields of :class:`DetectOptions` and :class:`DescribeOptions`, and ``views``.
    Invalid values raise InputError. Options are hashable and can be stored as JSON.

    Parameters
    ----------
    views : 2, 4 or 8, optional
        Add features of simulated oblique views with tilts up to this value, to match planes viewed
        from very different angles. The limit per view is ``max_features``, but at most 1,500,
        divided by the tilt; there is no limit if ``max_features`` is None. All features are in
        image coordinates; those of the image itself come first. Cannot be combined with
        ``upright``.

    Examples
    --------
    >>> from caloric import ExtractOptions
    >>> options = ExtractOptions(descriptor="heat", max_features=2000)
    >>> options.to_json()
    {'descriptor': 'heat', 'max_features': 2000}
    >>> ExtractOptions.from_json(options.to_json()) == options
    True
    """

    views: int | None = None

    def __post_init__(self) -> None:
        """Check every option."""
        DetectOptions.__post_init__(self)
        DescribeOptions.__post_init__(self)
        if simulated.largest_tilt(self.views) > 1 and self.upright:
            raise InputError("views cannot be combined with upright=True")

    @property
    def tilts(self) -> tuple[int, ...]:
        """The tilts of the simulated views."""
        return tuple(tilt for tilt in simulated.TILTS if tilt <= (self.views or 1))

    def for_tilt(self, tilt: int) -> Self:
        """Return the options for views of one tilt, with fewer features than for the image."""
        if tilt == 1 or self.max_features is None:
            return self
        return replace(self, max_features=min(self.max_features, simulated.FEATURES) // tilt)

    def features(
        self, frames: Frames, values: NDArray[np.generic], size: tuple[int, int]
    ) -> Features:
        """Return frames and descriptors (n, d) of an image of size (h, w) as Features."""
        encoding = encoding_of(self.output, self.recipe.whitening is not None)
        return Features(
            frames, values, size, self.name, self.fingerprint, self.views or 1, encoding
        )

    def empty(self, size: tuple[int, int]) -> Features:
        """Return the features of an image that has none."""
        return self.features(Frames.empty(), self.empty_values, size)

    def to_json(self) -> dict[str, Any]:
        """Return the options that differ from the defaults, as a dictionary for JSON."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        values = {f.name: values[f.name] for f in fields(self) if values[f.name] != f.default}
        if self.layout is not None or not isinstance(self.descriptor, str):
            raise InputError(
                "a custom kernel, recipe or layout cannot be stored as JSON; use a named descriptor"
            )
        if self.parameters:
            values["parameters"] = dict(self.parameters)
        return values

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Self:
        """Return the options from the result of :meth:`to_json`."""
        check_options(values, (field.name for field in fields(cls)))
        parameters = tuple(sorted(dict(values.get("parameters", {})).items()))
        return cls(**{**values, "parameters": parameters})


class ExtractKeywords(DetectKeywords, DescribeKeywords, total=False):
    """The fields of :class:`ExtractOptions` except the descriptor, for type checkers."""

    views: int | None
