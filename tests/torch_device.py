"""The device and images for tests of PyTorch."""

import torch

import marks
import photographs
from caloric.gpu import devices

HERE = marks.TORCH_DEVICE
DEVICE = devices.resolve(HERE)


def photograph(name="astronaut", size=(260, 300)):
    return photographs.gray(name, size)


def out_of_memory(*arguments, **options):
    """Raise the error of a device that is out of memory."""
    raise torch.OutOfMemoryError("full")
