"""Shards: Parquet files, each whole or not there, named after what they were made from."""

import hashlib
import json
import os
import socket
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from caloric.errors import InputError

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

FORMAT = 2
_UNFINISHED = ".unfinished"
_OLD = 86_400  # seconds, after which what another machine left unfinished is nobody's


def _arrow() -> Any:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        raise InputError("collections need pyarrow: pip install 'caloric[collection]'") from None
    return pyarrow


def fingerprint(*parts: Any) -> str:
    """Of anything JSON can hold: 16 hexadecimal digits."""
    text = json.dumps([FORMAT, *parts], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@dataclass(frozen=True)
class Shards:
    """One kind of shards of a store: a folder in it, and the columns of their rows."""

    folder: Path
    columns: tuple[tuple[str, str], ...]  # name and Arrow's type
    apart: bool = False  # rows that are long, and read one by one

    def path(self, bucket: str, key: str) -> Path:
        """Of the shard that was made from what ``key`` is the hash of."""
        return self.folder / f"{bucket}-{key}.parquet"

    def all(self) -> list[Path]:
        """Those there are."""
        return sorted(self.folder.glob("*.parquet"))

    def _schema(self) -> Any:
        arrow = _arrow()
        kinds = {
            "string": arrow.string(), "int32": arrow.int32(), "int64": arrow.int64(),
            "float32s": arrow.list_(arrow.float32()), "float64s": arrow.list_(arrow.float64()),
            "uint8s": arrow.list_(arrow.uint8()), "float16s": arrow.list_(arrow.float16()),
            "uint32s": arrow.list_(arrow.uint32()), "float64": arrow.float64(),
        }  # fmt: skip
        return arrow.schema([(name, kinds[kind]) for name, kind in self.columns])

    def write(self, path: Path, rows: list[dict[str, Any]]) -> None:
        """Under another name first, and on the disk before it gets its own."""
        arrow = _arrow()
        schema = self._schema()
        columns = [
            arrow.array([row[field.name] for row in rows], type=field.type) for field in schema
        ]
        table = arrow.Table.from_arrays(columns, schema=schema)
        unfinished = self.folder / (
            f"{path.name}.{_host()}.{os.getpid()}.{uuid.uuid4().hex[:8]}{_UNFINISHED}"
        )
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with unfinished.open("wb") as file:
                arrow.parquet.write_table(
                    table, file, compression="zstd", row_group_size=1 if self.apart else None,
                    write_page_checksum=True,
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
        """The rows of a shard, or those of some names; lists as NumPy arrays."""
        arrow = _arrow()
        wanted = None if names is None else [("name", "in", sorted(names))]
        try:
            table = arrow.parquet.read_table(
                path, columns=columns, filters=wanted, page_checksum_verification=True
            )
        except FileNotFoundError:
            raise InputError(f"{path}: not there any more; run again") from None
        except PermissionError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from None
        except (OSError, KeyError, ValueError, arrow.ArrowException) as error:
            # What it was made from is still there, and it would be taken for whole.
            with suppress(OSError):
                path.unlink()
            reason = str(error).splitlines()[0]
            raise InputError(
                f"{path}: broken ({reason}), and was removed; run again to make it anew"
            ) from None
        named = {name: table.column(name).combine_chunks() for name in table.column_names}
        for i in range(len(table)):
            yield {name: _value(column[i]) for name, column in named.items()}

    def whole(self, path: Path) -> bool:
        """Whether a shard is there and can be read."""
        if not path.exists():
            return False
        arrow = _arrow()
        try:
            arrow.parquet.read_metadata(path)
        except (OSError, arrow.ArrowException):
            return False
        return True

    def tidy(self, keep: Iterable[Path]) -> None:
        """Without shards of other plans, and without what a killed run on this machine left."""
        wanted = set(keep)
        for path in self.all():
            if path not in wanted:
                path.unlink(missing_ok=True)
        for path in self.folder.glob(f"*{_UNFINISHED}"):
            host, process = path.name.split(".")[-4:-2]
            with suppress(OSError):
                own = host == _host()
                if not _running(int(process)) if own else time.time() - path.stat().st_mtime > _OLD:
                    path.unlink()


@contextmanager
def held(store: Path, told: Callable[[str], None] = lambda message: None) -> Iterator[None]:
    """The store to ourselves: another run waits, or is waited for. The system lets go of it when
    a process is killed."""
    if fcntl is None:
        raise InputError("collections need the file locks of Linux or macOS; on Windows, use WSL")
    try:
        store.mkdir(parents=True, exist_ok=True)
        file = (store / ".lock").open("a")
    except OSError as error:
        raise InputError(f"{store}: cannot be written ({error.strerror})") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            told(f"another run is at work in {store}; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:  # a file system without locks
            told(f"{store}: no locks there; let no other run work in it")
        yield


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


def _value(scalar: Any) -> Any:
    values = getattr(scalar, "values", None)
    if values is not None:
        return values.to_numpy(zero_copy_only=False)
    return scalar.as_py()
