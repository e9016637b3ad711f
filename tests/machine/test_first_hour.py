"""`benchmarks/first_hour_on_a_gpu.sh`, where there is no GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "first_hour_on_a_gpu.sh"


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
def test_without_a_gpu_it_ends_with_one_clear_line(tmp_path: Path) -> None:
    hidden = os.environ | {"PYTHON": sys.executable, "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        ["bash", SCRIPT, tmp_path / "out"], capture_output=True, text=True, env=hidden
    )
    (line,) = done.stderr.splitlines()
    assert done.returncode == 2 and not done.stdout
    assert "there is no GPU" in line and "nothing was measured" in line
    assert not (tmp_path / "out").exists()
