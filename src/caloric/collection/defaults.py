"""Default arguments of the functions of collections."""

from caloric.collection.engines import Workers
from caloric.collection.matching import Matching
from caloric.collection.pairing import Pairing
from caloric.collection.reporter import Reporter
from caloric.interop.cameras import Cameras
from caloric.options import ExtractOptions

OPTIONS = ExtractOptions()
PAIRING = Pairing()
MATCHING = Matching()
CAMERAS = Cameras()
WORKERS = Workers()
SILENT = Reporter()
