"""Features in the format of LightGlue."""

from typing import Any

import numpy as np

from caloric.features import Features


def to_lightglue(features: Features, device: str = "cpu") -> dict[str, Any]:
    """Return the tensors that LightGlue takes, with a batch of one; image_size is (w, h).

    The centre of the top-left pixel is at (0, 0), as in LightGlue's SIFT. LightGlue's weights are
    learned for one kind of descriptor: those for SIFT expect SIFT descriptors.
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
