"""Small COLMAP models for tests."""

import sqlite3
import struct
from contextlib import closing

import numpy as np
from scipy.spatial.transform import Rotation

from caloric.interop import colmap_model


def write_model(
    directory, names=("a.jpg", "b.jpg", "c.jpg"), points=40, seed=0, shifts=None, rotations=None,
    offset=(0, 0), noise=0.0,
):  # fmt: skip
    """Write a model with one camera, whose images observe all points; return its points (n, 3).

    The images are in a row, or moved by ``shifts`` (m, 3) and rotated around the points by
    ``rotations``. The observations have an ``offset`` and Gaussian ``noise``, in pixels.
    """
    directory.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    xyz = random.uniform(-1, 1, (points, 3))
    (directory / "cameras.bin").write_bytes(
        struct.pack("<QIiQQ4d", 1, 1, 2, 640, 480, 500, 320, 240, 0)
    )
    images = struct.pack("<Q", len(names))
    for i, name in enumerate(names, 1):
        shift = (0.5 * i, 0, 0) if shifts is None else shifts[i - 1]
        tx, ty, tz = np.array([0, 0, 4]) - shift
        rotation = Rotation.identity() if rotations is None else rotations[i - 1]
        qx, qy, qz, qw = rotation.as_quat()
        pose = (qw, qx, qy, qz, tx, ty, tz)
        images += struct.pack("<I7dI", i, *pose, 1) + name.encode() + b"\0"
        images += struct.pack("<Q", points)
        errors = offset + noise * random.normal(size=(points, 2))
        for number, (x, y, z) in enumerate(rotation.apply(xyz), 1):
            u, v = 500 * (x + tx) / (z + tz) + 320, 500 * (y + ty) / (z + tz) + 240
            images += struct.pack(
                "<ddq", u + errors[number - 1, 0], v + errors[number - 1, 1], number
            )
    (directory / "images.bin").write_bytes(images)
    data = struct.pack("<Q", points)
    for number, position in enumerate(xyz, 1):
        data += struct.pack("<Q3d3BdQ", number, *position, 200, number, 30, 0.5, len(names))
        data += b"".join(struct.pack("<II", i, number - 1) for i in range(1, len(names) + 1))
    (directory / "points3D.bin").write_bytes(data)
    return xyz


def write_database(path, directory):
    """Write a database with a correct, an incorrect and a small pair of a model's images."""
    images = list(colmap_model.registered(directory))
    count = len(images[0].xy)
    indices = np.stack([np.arange(count)] * 2, 1).astype(np.uint32)
    shuffled = np.stack([np.arange(count), np.random.default_rng(1).permutation(count)], 1)
    pairs = [(1, 2, indices), (1, 3, shuffled.astype(np.uint32)), (2, 3, indices[:9])]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE images (image_id INTEGER, name TEXT)")
        database.execute("CREATE TABLE keypoints (image_id INTEGER, rows, cols, data)")
        database.execute("CREATE TABLE two_view_geometries (pair_id INTEGER, rows, data)")
        for image in images:
            database.execute("INSERT INTO images VALUES (?, ?)", (image.number, image.name))
            keypoints = np.pad(image.xy, ((0, 0), (0, 4))).astype(np.float32)
            row = (image.number, *keypoints.shape, keypoints.tobytes())
            database.execute("INSERT INTO keypoints VALUES (?, ?, ?, ?)", row)
        for a, b, rows in pairs:
            row = (a * (2**31 - 1) + b, len(rows), rows.tobytes())
            database.execute("INSERT INTO two_view_geometries VALUES (?, ?, ?)", row)
