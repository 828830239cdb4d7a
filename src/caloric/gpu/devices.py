"""Device names, and the fallback for work that exceeds device memory."""

import ctypes
import logging
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from caloric.errors import InputError

R = TypeVar("R")
log = logging.getLogger("caloric")


_DRIVERS = "libcuda.so.1", "nvcuda.dll"
_AMD = Path("/dev/kfd")


def _has_driver() -> bool:
    """Return whether the driver of a GPU is installed, without importing PyTorch."""
    for name in _DRIVERS:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return True
    return _AMD.exists()


@cache
def available() -> bool:
    """Return whether PyTorch is installed and a GPU is available."""
    if not _has_driver():
        return False  # importing PyTorch takes seconds
    try:
        import torch
    except ImportError:
        return False
    return bool(torch.cuda.is_available())


def about() -> str:
    """Return the version of PyTorch and the names of the GPUs."""
    try:
        import torch
    except ImportError:
        return "not installed"
    names = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    return f"{torch.__version__}, {', '.join(names) or 'no GPU'}"


def resolve(name: object) -> Any:
    """Return the ``torch.device`` of "cuda", "cuda:1" or "torch:cpu"; None for "cpu".

    "auto" is the current GPU if there is one, otherwise "cpu".
    """
    if type(name).__module__ == "torch" and str(name) != "cpu":
        name = str(name)  # for example torch.device("cuda")
    if name == "cpu" or (name == "auto" and not available()):
        return None
    if not isinstance(name, str) or (
        name not in ("auto", "cuda", "torch:cpu") and not _numbered(name)
    ):
        raise InputError(f"unknown device {name!r}; use cpu, auto, cuda, cuda:0 … or torch:cpu")
    try:
        import torch
    except ImportError:
        raise InputError(
            f"device {name!r} needs PyTorch: pip install 'caloric[gpu]', or use device='cpu'"
        ) from None
    if name == "torch:cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise InputError(f"device {name!r}: PyTorch found no GPU; use device='cpu' or 'auto'")
    number = int(name[5:]) if _numbered(name) else torch.cuda.current_device()
    if number >= torch.cuda.device_count():
        raise InputError(
            f"device {name!r} does not exist: the number of GPUs is {torch.cuda.device_count()}"
        )
    return torch.device("cuda", number)


# A process reads and writes files while another one uses the GPU.
_MAX_PROCESSES, _MEMORY_PER_PROCESS = 16, 8 << 30  # bytes


def processes(device: Any) -> int:
    """Return the number of processes that use a GPU well, limited by its memory."""
    import torch

    memory = torch.cuda.get_device_properties(device).total_memory
    return max(1, min(_MAX_PROCESSES, memory // _MEMORY_PER_PROCESS))


def unless_out_of_memory(
    work: Callable[[], R], what: str | None, give_up: Callable[[], object] | None = None
) -> R | None:
    """Return the result of ``work``, or None if it does not fit into device memory.

    If memory runs out, recorded graphs are released for a second attempt. If that fails,
    ``give_up`` is called, and a warning says that the CPU takes over, unless ``what`` is None.
    """
    import torch

    from caloric.gpu import graphs

    with suppress(torch.OutOfMemoryError):
        return work()
    graphs.clear()  # outside of the block: the exception keeps the memory of the failed attempt
    with suppress(torch.OutOfMemoryError):
        return work()
    if give_up is not None:
        give_up()
    if what is not None:
        log.warning("%s: out of device memory; using the CPU", what)
    return None


def _numbered(name: str) -> bool:
    return name.startswith("cuda:") and name[5:].isdecimal()
