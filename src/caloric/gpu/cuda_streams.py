"""CUDA streams: copies to and from a device overlap with computations.

The caller may use any stream: computations wait for the work queued on it, and later work on it
waits for them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor

exclusive = RLock()  # held by the thread that uses devices
_SMALL = 1 << 22  # bytes: smaller copies are not worth a separate stream


@dataclass(frozen=True, eq=False)
class _Streams:
    work: Any
    up: Any
    down: Any


@cache  # never cleared: libraries keep memory for every stream that was created
def _streams(device: Any) -> _Streams:
    return _Streams(*(torch.cuda.Stream(device) for _ in range(3)))


@contextmanager
def using(device: Any) -> Iterator[None]:
    """Queue work in this context; one thread at a time, because recorded graphs share memory."""
    with exclusive:
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            work, caller = _streams(device).work, torch.cuda.current_stream(device)
            work.wait_stream(caller)
            with torch.cuda.stream(work):
                yield
            caller.wait_stream(work)


def upload(buffer: Tensor, device: Any) -> Tensor:
    """Copy a pinned buffer to the device; the current stream waits for the copy, not the host."""
    if device.type != "cuda":
        return buffer
    if buffer.numel() < _SMALL:
        return buffer.to(device, non_blocking=True)
    up, current = _streams(device).up, torch.cuda.current_stream(device)
    with torch.cuda.stream(up):
        result = buffer.to(device, non_blocking=True)
    current.wait_stream(up)
    result.record_stream(current)
    return result


@dataclass(frozen=True, eq=False)
class Download:
    """A pending copy to the host, complete after :meth:`wait`."""

    values: Tensor
    done: Any

    def wait(self) -> Tensor:
        """Return the values on the host."""
        if self.done is not None:
            self.done.synchronize()
        return self.values


def download(values: Tensor, is_constant: bool = False) -> Download:
    """Start to copy values to pinned memory.

    Work queued later may overwrite ``values``: large ones are cloned first, unless ``is_constant``.
    """
    if not values.is_cuda:
        return Download(values, None)
    device = values.device
    down, current = _streams(device).down, torch.cuda.current_stream(device)
    pinned = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
    done = torch.cuda.Event()
    if values.nbytes < _SMALL:
        pinned.copy_(values, non_blocking=True)
        done.record(current)
        return Download(pinned, done)
    snapshot = values if is_constant else values.clone()
    down.wait_stream(current)
    with torch.cuda.stream(down):
        pinned.copy_(snapshot, non_blocking=True)
        done.record(down)
    snapshot.record_stream(down)
    return Download(pinned, done)
