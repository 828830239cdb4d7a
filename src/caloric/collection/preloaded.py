"""What a fork server prepares once for all workers: their modules, and tables.

Only a fork server imports this module. Nothing here may start a thread, which would not survive a
fork.
"""

import os

import numpy as np
import numpy.ma  # NumPy imports it when it is needed
from PIL import Image, TiffImagePlugin  # noqa: F401 - Pillow reads EXIF data with the second

from caloric.collection import matching, propagating, refining  # noqa: F401 - used by workers
from caloric.descriptor import engine
from caloric.descriptor.options import DescribeOptions
from caloric.detector import orientation
from caloric.image.pixels import to_gray
from caloric.runtime import threads

given = os.environ.get(threads.SETTING, "")
os.environ[threads.SETTING] = "1"
Image.preinit()
threads.libraries()
to_gray(np.zeros((1, 1, 3), np.uint8))
orientation.table()
engine.table_of(DescribeOptions().recipe)
os.environ[threads.SETTING] = given  # empty means the default
