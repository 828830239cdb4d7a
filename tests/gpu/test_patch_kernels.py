"""The Triton kernels that read patches and halve images agree with PyTorch."""

import numpy as np
import torch

from caloric.gpu import descent, refinement
from matched_views import frames_of, matched_views


def test_images_are_halved(kernels, gpu_images):
    for image in (gpu_images[0], gpu_images[1, :33, :], gpu_images[2, :, :40].contiguous()):
        actual, expected = kernels.halved(image), refinement.halved(image)
        torch.testing.assert_close(actual, expected, atol=1e-6, rtol=0)


def test_patches_agree_with_pytorch(kernels, gpu_images):
    from caloric.gpu import patch_kernels

    pair = matched_views()
    maps = frames_of(pair)[0].copy()
    maps[::9, :, 2] += 300  # outside the image
    maps[::11, :, :2] *= 8  # from a coarser octave
    octaves = descent.prepared(pair[0].astype(np.float32) / 255, gpu_images.device)
    frames = torch.tensor(maps, device=gpu_images.device)
    actual, expected = patch_kernels.patches(octaves, frames), octaves.patches(frames)
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=0)
