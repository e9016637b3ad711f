"""`benchmarks/first_hour_on_a_gpu.sh`: without a GPU, and with a Python that pretends one."""

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


PRETENDED = """#!/bin/sh
if [ "$1" = - ]; then cat > /dev/null; echo "GPUS x pretended"; else echo "$@"; fi
case "$*" in *"$FAILING"*) exit 3 ;; esac
"""


@pytest.mark.skipif(os.name != "posix", reason="a shell script")
@pytest.mark.parametrize(("gpus", "failing", "code"), [("1", "gpu_stacks", 1), ("2", "nothing", 0)])
def test_every_step_is_in_the_table(tmp_path: Path, gpus: str, failing: str, code: int) -> None:
    python, out = tmp_path / "python", tmp_path / "out"
    python.write_text(PRETENDED.replace("GPUS", gpus))
    python.chmod(0o755)
    told = os.environ | {"PYTHON": str(python), "FAILING": failing}
    done = subprocess.run(["bash", SCRIPT, out], capture_output=True, text=True, env=told)
    assert done.returncode == code and not done.stderr
    rows = [line for line in (out / "table.md").read_text().splitlines() if line[:2] == "| "][2:]
    names = [row.split("|")[1].strip() for row in rows]
    assert {"tests", "study", "verify", "stacks", "two devices"} <= {*names}
    assert len(names) == len({*names})
    assert sum("ended with 3" in row for row in rows) == code
    assert ("there is one GPU" in rows[-1]) == (gpus == "1")
