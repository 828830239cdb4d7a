"""The device and images for tests of PyTorch."""

import os

import torch

import photographs
from caloric.gpu import devices

# CALORIC_TEST_DEVICE=cuda runs the same tests on a GPU.
HERE = os.environ.get("CALORIC_TEST_DEVICE", "torch:cpu")
DEVICE = devices.resolve(HERE)


def photograph(name="astronaut", size=(260, 300)):
    return photographs.gray(name, size)


def out_of_memory(*arguments, **options):
    """Raise the error of a device that is out of memory."""
    raise torch.OutOfMemoryError("full")
