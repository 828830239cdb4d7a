"""Features as LightGlue's matcher takes them."""

from typing import Any

import numpy as np

from caloric.features import Features


def to_lightglue(features: Features, device: str = "cpu") -> dict[str, Any]:
    """Tensors with a batch of one: keypoints, scales, angles, descriptors, the image's (w, h).

    Coordinates have the centre of the top-left pixel at (0, 0), as LightGlue's SIFT has. Its
    weights are learned for each kind of descriptor: those for SIFT expect SIFT's.
    """
    import torch

    frames = features.frames
    h, w = features.image_size
    arrays = {
        "keypoints": frames.xy,
        "scales": frames.sigma,
        "oris": frames.angle,
        "keypoint_scores": features.scores,
        "descriptors": features.descriptors,
        "image_size": np.array([w, h]),
    }
    return {
        name: torch.tensor(np.asarray(values, np.float32), device=device)[None]
        for name, values in arrays.items()
    }
