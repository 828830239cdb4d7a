"""Shards: Parquet files that are either complete or absent, named after a hash of their input."""

import hashlib
import json
import logging
import os
import socket
import time
import uuid
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from threading import get_ident
from typing import IO, Any

import numpy as np

from caloric.errors import InputError
from caloric.runtime.files import created_directory

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

_log = logging.getLogger(__name__)
FORMAT = 2
_UNFINISHED = ".unfinished"
_STALE = 86_400  # seconds after which an unfinished file of another machine is removed
_ENCODER = json.JSONEncoder(sort_keys=True)
# Descriptions of files, and names of rows, that a process keeps: about 0.4 MB and 3 kB each.
_FOOTERS, _NAMES = 128, 8192


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("collections need pyarrow: pip install 'caloric[collection]'") from None
    return pyarrow


def fingerprint(*parts: Any) -> str:
    """Return a hash of JSON-serializable values: 16 hexadecimal digits."""
    text = _ENCODER.encode([FORMAT, *parts])
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Shards:
    """The shards of one kind: their directory in a store, and the columns of their rows."""

    directory: Path
    columns: tuple[tuple[str, str], ...]  # name and type; the name of an array's type ends in "s"
    single_rows: bool = False  # one row group per row, for large rows that are read separately

    def path(self, bucket: str, key: str) -> Path:
        """Return the path of the shard of a bucket; ``key`` is the hash of its input."""
        return self.directory / f"{bucket}-{key}.parquet"

    def all(self) -> list[Path]:
        """Return the paths of all shards in the directory, sorted."""
        return sorted(self.directory.glob("*.parquet"))

    def _schema(self) -> Any:
        arrow = _arrow()
        kinds = {
            "string": arrow.string(), "int32": arrow.int32(), "int64": arrow.int64(),
            "float64": arrow.float64(),
        }  # fmt: skip
        # Arrays are stored as bytes: Parquet's lists take several times as long.
        return arrow.schema(
            [(name, kinds.get(kind, arrow.binary())) for name, kind in self.columns]
        )

    @property
    def _dtypes(self) -> dict[str, np.dtype[Any]]:
        """The types of the columns whose values are arrays."""
        arrays = ((name, kind[:-1]) for name, kind in self.columns if kind[-1] == "s")
        return {name: np.dtype(kind).newbyteorder("<") for name, kind in arrays}

    def write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        """Write a shard under a temporary name, sync it to disk and rename it."""
        arrow = _arrow()
        schema = self._schema()
        dtypes = self._dtypes
        columns = [
            arrow.array([_stored(row[field.name], dtypes.get(field.name)) for row in rows],
                        type=field.type)
            for field in schema
        ]  # fmt: skip
        table = arrow.Table.from_arrays(columns, schema=schema)
        texts = [name for name, kind in self.columns if kind == "string"]
        unfinished = self.directory / (
            f"{path.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
        )
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                arrow.parquet.write_table(
                    table, file, compression="zstd", row_group_size=1 if self.single_rows else None,
                    use_dictionary=texts, write_page_checksum=True,
                    write_statistics=["name"] if self.single_rows else False,
                )  # fmt: skip
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(path)
        except OSError as error:
            raise InputError(f"{path}: cannot be written ({error.strerror})") from None
        finally:
            with suppress(OSError):
                unfinished.unlink()

    def read(
        self, path: Path, columns: list[str] | None = None, names: set[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """Yield the rows of a shard, or only those with the given names, of single-row groups.

        Columns that a shard of an earlier version does not have are left out.
        """
        parquet, version = _arrow().parquet, file_version(path)
        with _reading(path):
            groups = None
            if names is not None:
                groups = [i for i, name in enumerate(_names(path, version)) if name in names]
                if not groups:
                    return
            file = parquet.ParquetFile(
                path, metadata=_footer(path, version), pre_buffer=False,
                page_checksum_verification=True,
            )  # fmt: skip
            with file:
                if columns is not None:
                    stored = set(file.schema_arrow.names)
                    columns = [name for name in columns if name in stored]
                if groups is None:
                    groups = list(range(file.num_row_groups))
                table = file.read_row_groups(groups, columns, use_threads=False)
        dtypes = self._dtypes
        values = [_values(table.column(name), dtypes.get(name)) for name in table.column_names]
        for row in zip(*values, strict=True):
            yield dict(zip(table.column_names, row, strict=True))

    def is_complete(self, path: Path) -> bool:
        """Return whether a shard exists and its metadata can be read."""
        if not path.exists():
            return False
        arrow = _arrow()
        try:
            arrow.parquet.read_metadata(path)
        except (OSError, arrow.ArrowException):
            return False
        return True

    def tidy(self, keep: Iterable[Path]) -> None:
        """Remove the shards that are not in ``keep``, and the unfinished files of killed runs."""
        wanted = set(keep)
        for path in self.all():
            if path not in wanted:
                path.unlink(missing_ok=True)
        for path in self.directory.glob(f"*{_UNFINISHED}"):
            host, process = path.name.split(".")[-4:-2]
            with suppress(OSError):
                if host == _host():
                    stale = not _running(int(process))
                else:
                    stale = time.time() - path.stat().st_mtime > _STALE
                if stale:
                    path.unlink()


_held: set[tuple[Path, int]] = set()  # stores and the threads that have locked them


@contextmanager
def locked(store: Path) -> Iterator[None]:
    """Create a store if it does not exist and hold its lock; wait while another run holds it.

    A thread that holds the lock may take it again. The operating system releases it when the
    process ends, even if it is killed. After an error, a new store without content is removed.
    """
    key = store.resolve(), get_ident()
    if key in _held:
        yield
        return
    _arrow()  # all steps need it
    if fcntl is None:
        raise InputError("collections need the file locks of Linux or macOS; on Windows, use WSL")
    path, file = store / ".lock", None
    with ExitStack() as stack:
        try:
            stack.enter_context(created_directory(store))
            # Another run that failed may have removed the file while this one waited for it.
            while file is None or not _is_open_as(file, path):
                store.mkdir(parents=True, exist_ok=True)
                file = stack.enter_context(path.open("a"))
                _lock(file, store)
        except OSError as error:
            raise InputError(f"{store}: cannot be written ({error.strerror})") from None
        _held.add(key)
        try:
            yield
        except BaseException:
            if [entry.name for entry in store.iterdir()] == [path.name]:
                path.unlink()
            raise
        finally:
            _held.remove(key)


def _is_open_as(file: IO[str], path: Path) -> bool:
    try:
        return os.path.samestat(os.fstat(file.fileno()), path.stat())
    except FileNotFoundError:
        return False


def _lock(file: IO[str], store: Path) -> None:
    assert fcntl is not None
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        _log.warning("another run is using %s; waiting for it", store)
        fcntl.flock(file, fcntl.LOCK_EX)
    except OSError:  # a file system without locks
        _log.warning("%s: the file system has no locks; do not start another run", store)


def _host() -> str:
    return socket.gethostname().replace(".", "_")


def _running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raise InputError if a shard cannot be read; remove it if it is damaged."""
    try:
        yield
    except FileNotFoundError:
        raise InputError(f"{path}: no longer exists; run the command again") from None
    except PermissionError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (OSError, KeyError, ValueError, _arrow().ArrowException) as error:
        # If its metadata is readable, the next run would treat it as complete.
        with suppress(OSError):
            path.unlink()
        reason = str(error).splitlines()[0]
        raise InputError(
            f"{path}: damaged ({reason}) and removed; run again to recreate it"
        ) from None


def file_version(path: Path) -> tuple[int, int]:
    """Return the time of the last change of a shard, and its size."""
    with _reading(path):
        status = path.stat()
    return status.st_mtime_ns, status.st_size


@lru_cache(maxsize=_FOOTERS)
def _footer(path: Path, version: tuple[int, int]) -> Any:
    """Return the description of a file at its end, which takes longer to read than a row."""
    return _arrow().parquet.read_metadata(path)


@lru_cache(maxsize=_NAMES)
def _names(path: Path, version: tuple[int, int]) -> tuple[str, ...]:
    """Return the names in single-row groups: each is the least and greatest of its group."""
    footer = _footer(path, version)
    column = footer.schema.to_arrow_schema().get_field_index("name")
    groups = (footer.row_group(i) for i in range(footer.num_row_groups))
    return tuple(str(group.column(column).statistics.min) for group in groups)


def _stored(value: Any, dtype: np.dtype[Any] | None) -> Any:
    """Return a value as it is stored: an array as its bytes."""
    return value if dtype is None else np.ascontiguousarray(value, dtype).tobytes()


def _values(column: Any, dtype: np.dtype[Any] | None) -> list[Any]:
    """Return the values of a column; ``dtype`` is that of arrays."""
    if dtype is None:
        return list(column.to_pylist())
    if hasattr(column.type, "value_type"):  # a shard of an earlier version, with lists
        return [value.values.to_numpy(zero_copy_only=False) for value in column]
    return [np.frombuffer(value.as_buffer(), dtype) for value in column]
