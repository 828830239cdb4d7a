"""Streams of a device: copies to and from it run beside the work.

Results do not depend on which streams the caller uses: work waits for what the caller has begun,
and the caller's next work waits for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

import torch
from torch import Tensor

_lock = RLock()
_SMALL = 1 << 22  # bytes: a copy that is not worth a stream of its own


@dataclass(frozen=True, eq=False)
class _Streams:
    work: Any
    up: Any
    down: Any


@cache  # not forgotten: libraries keep memory for each stream that there ever was
def _streams(device: Any) -> _Streams:
    return _Streams(*(torch.cuda.Stream(device) for _ in range(3)))


@contextmanager
def using(device: Any) -> Iterator[None]:
    """Let one thread at a time give work to the device, because recorded graphs share memory."""
    with _lock:
        if device.type != "cuda":
            yield
            return
        with torch.cuda.device(device):
            work, callers = _streams(device).work, torch.cuda.current_stream(device)
            work.wait_stream(callers)
            with torch.cuda.stream(work):
                yield
            callers.wait_stream(work)


def upload(buffer: Tensor, device: Any) -> Tensor:
    """Return a pinned buffer on the device; the current stream waits for it, not the caller."""
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
    """Bytes on their way to the host, complete after :meth:`wait`."""

    values: Tensor
    done: Any

    def wait(self) -> Tensor:
        """Return the values on the host."""
        if self.done is not None:
            self.done.synchronize()
        return self.values


def download(values: Tensor) -> Download:
    """Begin to copy values to pinned memory; work that is queued later may overwrite them."""
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
    copied = values.clone()
    down.wait_stream(current)
    with torch.cuda.stream(down):
        pinned.copy_(copied, non_blocking=True)
        done.record(down)
    copied.record_stream(down)
    return Download(pinned, done)
