"""Features in the format of LightGlue."""

from typing import Any

import numpy as np

from caloric.features import Features
from caloric.interop.conversion import unit_descriptors


def to_lightglue(features: Features, device: str = "cpu") -> dict[str, Any]:
    """Return features as the tensors that LightGlue expects, with a batch size of 1.

    The center of the top-left pixel is at (0, 0), as in LightGlue's SIFT; ``image_size`` is
    (width, height); descriptors are unit vectors. LightGlue's weights are trained for one
    descriptor each: those for SIFT expect SIFT descriptors.
    """
    import torch

    frames = features.frames
    h, w = features.image_size
    arrays = {
        "keypoints": frames.xy,
        "scales": frames.sigma,
        "oris": frames.angle,
        "keypoint_scores": features.scores,
        "descriptors": unit_descriptors(features),
        "image_size": np.array([w, h]),
    }
    return {
        name: torch.tensor(np.asarray(values, np.float32), device=device)[None]
        for name, values in arrays.items()
    }
