"""Caloric matches images by heat diffusion: SIFT, DSP-SIFT and extensions from one theory.

>>> import caloric
>>> caloric.descriptors()[0]
'caloric'
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

from caloric.citing import cite
from caloric.descriptor.engine import describe_patches, response_map
from caloric.descriptor.layout import Grid, Rings
from caloric.descriptor.recipes import Descriptor, descriptors
from caloric.descriptor.training import learn_whitening
from caloric.errors import InputError
from caloric.features import Features
from caloric.frames import Frames
from caloric.image.inputs import open_image, read_image
from caloric.image_pair import ImageMatch, match_images
from caloric.kernels import kernel
from caloric.matching.geometry import Geometry
from caloric.matching.neighbors import Matches
from caloric.matching.refinement import Refined
from caloric.options import ExtractOptions
from caloric.pipeline import describe, detect, extract, extract_many, match, refine
from caloric.types import ImageLike
from caloric.verification import verify

if _TYPE_CHECKING:
    from caloric import collection as collection
    from caloric.alignment.align import Alignment, align
    from caloric.alignment.templates import TemplateMatch, find_template
    from caloric.collection.merging import merge
    from caloric.collection.model_refining import ModelRefinement, refine_model

__version__ = "0.1.0"

__all__ = [
    "Alignment",
    "Descriptor",
    "ExtractOptions",
    "Features",
    "Frames",
    "Geometry",
    "Grid",
    "ImageLike",
    "ImageMatch",
    "InputError",
    "Matches",
    "ModelRefinement",
    "Refined",
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
    "extract_many",
    "find_template",
    "kernel",
    "learn_whitening",
    "match",
    "match_images",
    "merge",
    "open_image",
    "read_image",
    "refine",
    "refine_model",
    "response_map",
    "verify",
]


# Imported on first use, so that importing the package is fast.
_LAZY = {
    "Alignment": "caloric.alignment.align",
    "ModelRefinement": "caloric.collection.model_refining",
    "TemplateMatch": "caloric.alignment.templates",
    "align": "caloric.alignment.align",
    "collection": "caloric.collection",
    "find_template": "caloric.alignment.templates",
    "merge": "caloric.collection.merging",
    "refine_model": "caloric.collection.model_refining",
}


def __getattr__(name: str) -> _Any:
    """Import an attribute of ``_LAZY`` on first use."""
    if name not in _LAZY:
        raise AttributeError(f"module 'caloric' has no attribute {name!r}")
    module = _import_module(_LAZY[name])
    globals()[name] = module if name == "collection" else getattr(module, name)
    return globals()[name]


def __dir__() -> list[str]:
    """Return all names, including those imported on first use."""
    return sorted({*globals(), *_LAZY})
