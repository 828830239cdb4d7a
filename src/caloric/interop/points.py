"""Matched points of any method, from .npz, .h5 and .csv files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from caloric.errors import InputError
from caloric.interop.hdf5 import h5py
from caloric.types import FloatArray

# Names of the two arrays: Caloric's, and those of LightGlue, LoFTR and the scripts around them.
KEYS = (("points_a", "points_b"), ("keypoints0", "keypoints1"), ("mkpts0", "mkpts1"))
_COLUMNS = ("x_a", "y_a", "x_b", "y_b")  # of .csv files
_HDF5 = (".h5", ".hdf5")
_SUFFIXES = (".npz", *_HDF5, ".csv")


def read(path: Path) -> tuple[FloatArray, FloatArray]:
    """Return matched points (m, 2) of both images; row i of one matches row i of the other.

    Parameters
    ----------
    path : Path
        A .npz or .h5 file with two arrays (m, 2), named as in ``KEYS``, or a .csv file with rows
        x_a, y_a, x_b, y_b, with or without a header; a header with these names gives their order.
    """
    suffix = path.suffix.lower()
    if suffix not in _SUFFIXES:
        raise InputError(f"{path}: cannot read matches from {suffix!r}; use {', '.join(_SUFFIXES)}")
    if not path.is_file():
        raise InputError(f"{path}: no such file")
    try:
        if suffix == ".csv":
            arrays = _csv(path)
        elif suffix == ".npz":
            with np.load(path, allow_pickle=False) as stored:
                arrays = _arrays(stored, path)
        else:
            with h5py().File(path, "r") as stored:
                arrays = _arrays(stored, path)
    except InputError:
        raise
    except Exception as error:
        # NumPy's message suggests allow_pickle=True, which would be unsafe.
        reason = "it contains Python objects" if "pickle" in str(error) else error
        raise InputError(f"{path}: cannot be read as {suffix} ({reason})") from None
    a, b = (_checked(values, name, path) for name, values in arrays.items())
    if len(a) != len(b):
        raise InputError(f"{path}: {' and '.join(arrays)} have {len(a)} and {len(b)} rows")
    return a, b


def _arrays(stored: Mapping[str, Any], path: Path) -> dict[str, Any]:
    for names in KEYS:
        if all(name in stored for name in names):
            return {name: stored[name][()] for name in names}
    choices = "; ".join(" and ".join(names) for names in KEYS)
    content = ", ".join(list(stored)[:10]) or "nothing"
    raise InputError(f"{path} contains {content}; expected two arrays (m, 2): {choices}")


def _csv(path: Path) -> dict[str, Any]:
    lines = [line for line in path.read_text("utf-8-sig").splitlines() if line.strip()]
    order = list(range(4))
    if lines and not _is_numeric(lines[0]):
        names = [name.strip().lower() for name in lines[0].split(",")]
        if set(names) == set(_COLUMNS):
            order = [names.index(name) for name in _COLUMNS]
        lines = lines[1:]
    rows = [line.split(",") for line in lines]
    for row in rows:
        if len(row) != 4:
            raise InputError(
                f"{path}: expected 4 columns, {', '.join(_COLUMNS)}, but a row has {len(row)}: "
                f"{','.join(row)[:60]!r}"
            )
    values = np.array(rows, np.float64).reshape(-1, 4)[:, order]
    return {"x_a, y_a": values[:, :2], "x_b, y_b": values[:, 2:]}


def _is_numeric(line: str) -> bool:
    try:
        for cell in line.split(","):
            float(cell)
    except ValueError:
        return False
    return True


def _checked(values: Any, name: str, path: Path) -> FloatArray:
    array = np.asarray(values)
    if array.dtype.kind not in "fiu" or array.ndim != 2 or array.shape[1] != 2:
        raise InputError(
            f"{path}: {name} must be an array of numbers of shape (m, 2), got {array.dtype} of "
            f"shape {array.shape}"
        )
    if not np.isfinite(array).all():
        bad = int((~np.isfinite(array).all(1)).sum())
        raise InputError(f"{path}: {name} contain NaN or infinity in {bad} of {len(array)} rows")
    return np.asarray(array, np.float64)
