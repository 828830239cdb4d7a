"""Collections: features, pairs and matches of a directory of images, stored in Parquet shards.

    from caloric import ExtractOptions, collection
    result = collection.run("photos", "out", ExtractOptions(max_features=4000))

Each step plans its shards from its input and writes the missing ones. A shard is written under a
temporary name and then renamed, so a killed run leaves only complete shards, and the next run
writes the rest. The name of a shard contains a hash of its input.
"""

from caloric.collection.engines import Workers
from caloric.collection.exporting import ExportResult
from caloric.collection.extraction import ExtractionResult
from caloric.collection.mapping import ReconstructionResult
from caloric.collection.matching import Matching, MatchingResult, VerificationResult
from caloric.collection.merging import MergeResult
from caloric.collection.pairing import Pairing, PairingResult
from caloric.collection.refining import RefinementResult
from caloric.collection.reporter import Reporter
from caloric.collection.results import CollectionResult
from caloric.collection.running import run
from caloric.collection.workflow import (
    export,
    extract,
    match,
    pair,
    reconstruct,
    refine,
    verify,
)
from caloric.interop.cameras import Cameras
from caloric.interop.colmap_model import Reconstruction

__all__ = [
    "Cameras",
    "CollectionResult",
    "ExportResult",
    "ExtractionResult",
    "Matching",
    "MatchingResult",
    "MergeResult",
    "Pairing",
    "PairingResult",
    "Reconstruction",
    "ReconstructionResult",
    "RefinementResult",
    "Reporter",
    "VerificationResult",
    "Workers",
    "export",
    "extract",
    "match",
    "pair",
    "reconstruct",
    "refine",
    "run",
    "verify",
]
