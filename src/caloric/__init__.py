"""Caloric matches images by heat diffusion: SIFT, DSP-SIFT and what lies beyond, from one theory.

>>> import caloric
>>> caloric.descriptors()[0]
'caloric'
"""

from caloric.alignment import Alignment, align
from caloric.citing import cite
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
from caloric.templates import TemplateMatch, find_template

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Descriptor",
    "Features",
    "Frames",
    "Geometry",
    "Grid",
    "InputError",
    "Matches",
    "Rings",
    "TemplateMatch",
    "__version__",
    "align",
    "cite",
    "describe",
    "describe_patches",
    "descriptors",
    "detect",
    "extract",
    "find_template",
    "kernel",
    "match",
    "open_image",
    "read_image",
    "response_map",
    "verify",
]
