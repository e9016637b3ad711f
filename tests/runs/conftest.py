"""A study of a small program."""

from pathlib import Path

import pytest

import paribus
from paribus.results import Results
from paribus.study import Study

PROGRAM = """
import os, sys, time
seed, shift = int(sys.argv[1]), float(sys.argv[2])
for step in range(3):
    print(f"step {step} loss {2 + shift + seed / 100 + 1 / (step + 1)}", flush=True)
    time.sleep(float(os.environ.get("STEP_SECONDS", 0)))
print("final", 1 + shift + seed / 100)
"""
STUDY = r"""
name = "program"
seeds = [1, 2]
[set]
shift = 0.5
[arms.baseline]
[arms.new]
set.shift = 0.25
[metrics.loss]
stdout = 'final (\S+)'
better = "lower"
margin = 0.01
[trainer]
kind = "command"
command = ["{python}", "train.py", "{seed}", "{shift}"]
"""


@pytest.fixture
def study(tmp_path):
    """Two arms, two seeds, of a program that takes no time."""
    return study_in(tmp_path)


def study_in(folder: Path, **replaced: str) -> Study:
    """Return the study of the program, with parts of its text replaced."""
    (folder / "train.py").write_text(PROGRAM)
    text = STUDY
    for old, new in replaced.items():
        text = text.replace(old, new)
    (folder / "study.toml").write_text(text)
    return paribus.load_study(folder / "study.toml")


def records(results: Results) -> dict[str, bytes]:
    """Return what equal studies share: scores and output of every trial."""
    return {
        f"{trial.label}/{name}": (trial.path / name).read_bytes()
        for trial in results.finished
        for name in ("evaluation.json", "output.log")
    }
