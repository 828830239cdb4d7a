"""Caloric matches images by heat diffusion: SIFT, DSP-SIFT and what lies beyond, from one theory.

>>> import caloric
>>> caloric.descriptors()[0]
'sift'
"""

from caloric.errors import InputError
from caloric.features import describe_patches, descriptors, response_map
from caloric.kernels import kernel
from caloric.layout import Grid, Rings

__version__ = "0.1.0"

__all__ = [
    "Grid",
    "InputError",
    "Rings",
    "__version__",
    "describe_patches",
    "descriptors",
    "kernel",
    "response_map",
]
