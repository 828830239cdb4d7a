"""Run all parts of the GPU benchmark."""

import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from caloric.bench.gpu import photographs as read_photographs
from caloric.bench.report import versions
from caloric.errors import InputError
from caloric.gpu import devices
from caloric.runtime import native, threads
from caloric.types import Log, Report
from tools.gpu import checks, users
from tools.gpu import device as device_only


def _driver() -> str | None:
    try:
        result = subprocess.run(
            ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
            capture_output=True, text=True, timeout=20, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return result.stdout.split("\n")[0].strip()


@dataclass(frozen=True)
class Inputs:
    """Directories of photographs and, optionally, Oxford Affine; the device; the commit."""

    photographs: Path
    oxford: Path | None
    device: str
    commit: str | None


def run(inputs: Inputs, log: Log, keep: Callable[[Report], None]) -> Report:
    """Return the report of all parts; ``keep`` is called with the report after each part."""
    photographs = inputs.photographs
    device = devices.resolve(inputs.device)
    if device is None or device.type != "cuda":
        raise InputError("this benchmark needs an NVIDIA GPU; see `caloric info`")
    read_photographs(photographs, 64, 64, 1)  # fail early if there are none
    name = str(device)
    report: Report = {
        "about": {
            "device": torch.cuda.get_device_name(device), "driver": _driver(),
            "cuda": torch.version.cuda, "versions": versions(), "commit": inputs.commit,
            "threads": threads.count(), "compiled core": native.core() is not None,
        }
    }  # fmt: skip
    parts: dict[str, Callable[[], Report]] = {
        # Public functions:
        "arrays": lambda: users.arrays(photographs, name, log),
        "sizes": lambda: users.sizes(photographs, name, log),
        "files": lambda: users.files(photographs, name, log),
        "pairs": lambda: users.pairs(photographs, name, log),
        "views": lambda: users.views(photographs, name, log),
        "whole pairs": lambda: users.whole_pairs(photographs, name, log),
        "precision": lambda: users.precision(photographs, name, log),
        "cpu": lambda: users.on_cpu(photographs, log),
        "agreement": lambda: checks.agreement(photographs, name, log),
        "out of memory": lambda: checks.out_of_memory(photographs, name),
        # Device only, without transfers:
        "limits": lambda: device_only.limits(device),
        "images": lambda: device_only.throughput(photographs, device, log),
        "description": lambda: device_only.describing(photographs, device),
        "search": lambda: device_only.searching(device),
        "kernels": lambda: checks.fused_kernels(photographs, device),
    }
    if inputs.oxford is not None:
        parts["oxford"] = partial(checks.accuracy, inputs.oxford, name, log)
    for part, measured in parts.items():
        log(part)
        report[part] = measured()
        keep(report)
    return report
