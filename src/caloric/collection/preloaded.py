"""What a fork server prepares once for all workers: their modules, and the tables of descriptors.

Only a fork server imports this module.
"""

import os

import numpy.ma  # noqa: F401 - NumPy imports it when it is needed

from caloric.collection import matching, propagating, refining  # noqa: F401 - used by workers
from caloric.descriptor import engine
from caloric.descriptor.options import DescribeOptions
from caloric.detector import orientation
from caloric.runtime import threads

given = os.environ.get(threads.SETTING, "")
os.environ[threads.SETTING] = "1"  # threads do not survive a fork
orientation.table()
engine.table_of(DescribeOptions().recipe)
os.environ[threads.SETTING] = given  # empty means the default
