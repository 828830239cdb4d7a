"""A COLMAP database with keypoints and matches, written without COLMAP."""

import sqlite3
from contextlib import closing

import numpy as np


def write(path, keypoints, matches):
    """Write ``keypoints`` (n, 2) by name, and ``matches`` (m, 2) by pair of names."""
    with closing(sqlite3.connect(path)) as opened, opened:
        opened.executescript(
            "CREATE TABLE images (image_id INTEGER PRIMARY KEY, name TEXT);"
            "CREATE TABLE keypoints (image_id INTEGER, rows INTEGER, cols INTEGER, data BLOB);"
            "CREATE TABLE matches (pair_id INTEGER, rows INTEGER, cols INTEGER, data BLOB);"
            "CREATE TABLE two_view_geometries (pair_id INTEGER, rows INTEGER, cols INTEGER,"
            " data BLOB);"
        )
        numbers = {name: i for i, name in enumerate(keypoints, 1)}
        for name, xy in keypoints.items():
            opened.execute("INSERT INTO images VALUES (?, ?)", (numbers[name], name))
            rows = np.column_stack([xy + 0.5, np.full(len(xy), 2.5), np.zeros(len(xy))])
            data = rows.astype(np.float32).tobytes()
            opened.execute(
                "INSERT INTO keypoints VALUES (?, ?, 4, ?)", (numbers[name], len(xy), data)
            )
        for (a, b), rows in matches.items():
            pair = numbers[a] * (2**31 - 1) + numbers[b]
            data = np.asarray(rows).astype(np.uint32).tobytes()
            opened.execute("INSERT INTO matches VALUES (?, ?, 2, ?)", (pair, len(rows), data))
