"""Signs of a GPU, found without PyTorch."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

# Where Linux shows a GPU that PyTorch may use: NVIDIA's, one in Windows' subsystem, AMD's.
GPU_FILES = ("/dev/nvidiactl", "/dev/dxg", "/dev/kfd")


def is_surely_cpu(device: str) -> bool:
    """Return whether there is no sign of a GPU; False if that is unknown."""
    if device != "auto":
        return device == "cpu"
    gpu = shutil.which("nvidia-smi") or any(Path(file).exists() for file in GPU_FILES)
    return sys.platform == "linux" and not gpu
