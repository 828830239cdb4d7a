"""Caloric matches images by heat diffusion: SIFT, DSP-SIFT and what lies beyond, from one theory.

>>> import caloric
>>> caloric.descriptors()[0]
'caloric'
"""

from caloric.errors import InputError
from caloric.features import (
    Features,
    describe,
    describe_patches,
    detect,
    extract,
    match,
    response_map,
    verify,
)
from caloric.frames import Frames
from caloric.geometry import Geometry
from caloric.kernels import kernel
from caloric.layout import Grid, Rings
from caloric.matching import Matches
from caloric.reading import open_image, read_image
from caloric.recipes import Descriptor, descriptors

__version__ = "0.1.0"

__all__ = [
    "Descriptor",
    "Features",
    "Frames",
    "Geometry",
    "Grid",
    "InputError",
    "Matches",
    "Rings",
    "__version__",
    "describe",
    "describe_patches",
    "descriptors",
    "detect",
    "extract",
    "kernel",
    "match",
    "open_image",
    "read_image",
    "response_map",
    "verify",
]
