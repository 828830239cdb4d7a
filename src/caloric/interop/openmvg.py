"""Features and matches of an openMVG project.

Conventions of openMVG: pixel centers at integers, scales σ in pixels, angles in radians, and SIFT
descriptors as bytes. Files are named after images without their suffixes; matches refer to views,
which are numbered in sfm_data.json.
"""

import json
import struct
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from caloric.errors import InputError
from caloric.features import Features
from caloric.interop.colmap_model import DEFAULT_FOCAL
from caloric.interop.conversion import sift_bytes
from caloric.interop.exporters import Exporter
from caloric.matching.two_views import TwoViews
from caloric.runtime.files import check_directory, created_directory, replacing

# Identifiers of the library that reads the JSON files (cereal): the first occurrence of a type or
# of a pointer has the highest bit set, and a pointer to its declared type has no type.
_FIRST = 2**31
_DECLARED = 2**30
_REGIONS = {
    "regions_type": {
        "polymorphic_id": _FIRST + 1,
        "polymorphic_name": "SIFT_Regions",
        "ptr_wrapper": {"valid": 1, "data": {"value0": [], "value1": []}},
    }
}
_CAMERA = "pinhole_radial_k3"


class OpenMvg(Exporter):
    """Writes NAME.feat and NAME.desc for each image, sfm_data.json and image_describer.json.

    matches.f.txt has the inliers of verified pairs; matches.putative.txt has the matches of pairs
    that are not verified. sfm_data.json has a view for each image and a camera for each image size,
    with a focal length of 1.2 times the longer side.
    """

    location: ClassVar[str] = "openmvg"
    hint: ClassVar[str] = (
        "reconstruct with `openMVG_main_SfM -s INCREMENTAL -i sfm_data.json -m . -o model` in this "
        "directory"
    )

    def check(self) -> None:
        """Raise an error if two images would have the same file."""
        check_directory(self.target)
        self.stems: dict[str, str] = {}
        for name in self.request.names:
            self._add(name)

    def _add(self, name: str) -> str:
        stem = PurePosixPath(name).stem
        if self.stems.setdefault(stem, name) != name:
            raise InputError(
                f"{name}, {self.stems[stem]}: openMVG names files after images without directory "
                "and suffix; rename one of the images"
            )
        return stem

    def files(self) -> list[Path]:
        """Return the feature files of all images, and the project files."""
        stems = [PurePosixPath(name).stem for name in self.request.names]
        names = [f"{stem}{suffix}" for stem in stems for suffix in (".feat", ".desc")]
        return [self.target / name for name in (*names, "sfm_data.json", "image_describer.json")]

    def open(self) -> None:
        """Create the directory, and number the images."""
        self.stack.enter_context(created_directory(self.target))
        self.ids = {name: index for index, name in enumerate(sorted(self.request.names))}
        self.sizes: dict[str, tuple[int, int]] = {}
        self.verified, self.putative = (
            self.target / f"matches.{kind}.txt" for kind in ("f", "putative")
        )
        self.pairs: dict[Path, list[str]] = {self.verified: [], self.putative: []}

    def features(self, name: str, features: Features) -> None:
        """Write the two files of an image."""
        stem = self._add(name)
        self.ids.setdefault(name, len(self.ids))
        self.sizes[name] = features.image_size
        frames, descriptors = features.frames, sift_bytes(features)
        with replacing(self.target / f"{stem}.feat") as file:
            for (x, y), sigma, angle in zip(frames.xy, frames.sigma, frames.angle, strict=True):
                file.write(f"{x:.6g} {y:.6g} {sigma:.6g} {angle:.6g}\n".encode())
        with replacing(self.target / f"{stem}.desc") as file:
            file.write(struct.pack("<Q", len(descriptors)))
            file.write(descriptors.tobytes())

    def pair(self, pair: TwoViews) -> None:
        """Keep the numbers of both views, with the smaller first, and the indices of matches."""
        if pair.is_verified and pair.matrix is None:
            return
        path = self.verified if pair.is_verified else self.putative
        indices = (pair.inlier_matches if pair.is_verified else pair.matches).tolist()
        a, b = self.ids[pair.name_a], self.ids[pair.name_b]
        if a > b:
            a, b, indices = b, a, [(j, i) for i, j in indices]
        rows = "".join(f"{i} {j}\n" for i, j in indices)
        self.pairs[path].append(f"{a} {b}\n{len(indices)}\n{rows}")

    def close(self) -> list[Path]:
        """Write the project and the matches, and remove matches of an earlier export."""
        texts = {
            self.target / "sfm_data.json": json.dumps(self._scene(), indent=1),
            self.target / "image_describer.json": json.dumps(_REGIONS, indent=1),
        }
        if self.request.pairs:
            for path, blocks in self.pairs.items():
                if blocks:
                    texts[path] = "".join(blocks)
                else:
                    path.unlink(missing_ok=True)
        for path, text in texts.items():
            with replacing(path) as file:
                file.write(text.encode())
        return [self.target, *texts]

    def _scene(self) -> dict[str, Any]:
        """Return the views and their cameras, without poses and points."""
        sizes = sorted(set(self.sizes.values()))
        names = sorted(self.sizes, key=self.ids.__getitem__)
        pointers = iter(range(_FIRST + 1, _FIRST + 1 + len(names) + len(sizes)))

        def pointer(data: dict[str, Any]) -> dict[str, Any]:
            return {"id": next(pointers), "data": data}

        views = []
        for name in names:
            (h, w), key, path = self.sizes[name], self.ids[name], PurePosixPath(name)
            view = {
                "local_path": "" if path.parent == PurePosixPath() else str(path.parent),
                "filename": path.name, "width": w, "height": h, "id_view": key,
                "id_intrinsic": sizes.index((h, w)), "id_pose": key,
            }  # fmt: skip
            value = {"polymorphic_id": _DECLARED, "ptr_wrapper": pointer(view)}
            views.append({"key": key, "value": value})
        cameras = []
        for key, (h, w) in enumerate(sizes):
            camera = {
                "width": w, "height": h, "focal_length": DEFAULT_FOCAL * max(w, h),
                "principal_point": [w / 2, h / 2], "disto_k3": [0.0, 0.0, 0.0],
            }  # fmt: skip
            kind: dict[str, Any] = {"polymorphic_id": 1}
            if key == 0:
                kind = {"polymorphic_id": _FIRST + 1, "polymorphic_name": _CAMERA}
            cameras.append({"key": key, "value": {**kind, "ptr_wrapper": pointer(camera)}})
        root = "" if self.request.images is None else str(self.request.images.absolute())
        return {
            "sfm_data_version": "0.3", "root_path": root, "views": views, "intrinsics": cameras,
            "extrinsics": [], "structure": [], "control_points": [],
        }  # fmt: skip
