"""kill -9 at random moments, then the same command again: as if nothing had happened.

Two kills are marked slow; `PARIBUS_KILLS=300 pytest -m torture tests/torture/test_kills.py`
makes as many.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
import time
from pathlib import Path
from pydoc_data.topics import topics

import pytest

from paribus.engine.execution.trial.stacks import begun_stacks

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks for orphans in /proc")

STUDY = """
name = "small"
seeds = [1, 2]
data = {corpus = "text", path = TEXT, seq_len = 64}
model = {n_layer = 1, n_head = 2, d_model = 16}
training = {iterations = 12, batch_size = 4, dropout = 0.1}
stability = {smoothing_steps = 2, median_steps = 3, spike_steps = 2}
tasks = {names = []}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
"""
COMMAND = ("run", "study.toml", "--results", "r", "--workers", "1", "--device", "cpu")
# What a run writes that is the same however often it was killed.
WRITES = ("r/trials/", "r/tasks/", "r/study.json", "r/data.json", "r/registration.json")
KILLS = int(os.environ.get("PARIBUS_KILLS", "50"))
SEED = int(os.environ.get("PARIBUS_SEED", "20261122"))
ORPHAN_SECONDS = 10  # a busy machine takes its time to reap


def start(folder: Path, rng: random.Random) -> subprocess.Popen[str]:
    """The command line in a session of its own, so that orphans can be told."""
    # Two side by side; if something is begun, any other number must not matter.
    begun = begun_stacks(folder / "r") or any(folder.glob("r/trials/*/*/manifest.json"))
    options = ("--stack", rng.choice("1223") if begun else "2")
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("commands.py")), *COMMAND, *options],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, rng: random.Random) -> None:
    """Run a command that nobody disturbs."""
    process = start(folder, rng)
    _, said = process.communicate(timeout=600)
    require_quiet(said)
    assert process.returncode == 0, said


def require_quiet(said: str) -> None:
    """No kill damages a checkpoint: what was begun is gone on with, not started again."""
    assert "be used" not in said and "Traceback" not in said, said


def written(folder: Path) -> dict[str, bytes]:
    """{path: content} of what must be the same as in an undisturbed run."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name.startswith(WRITES) and path.name != "timing.json":
            found[name] = path.read_bytes()
    known = json.loads(found["r/registration.json"])
    del known["registered_at"]
    return found | {"r/registration.json": json.dumps(known).encode()}


def litter(folder: Path) -> list[str]:
    """Files that are there only while something is under way."""
    names = [path.relative_to(folder) for path in folder.rglob("*")]
    return [str(name) for name in names if name.name.startswith(".") or name.name == "checkpoints"]


def alive(session: int) -> list[int]:
    """Processes of a session that still run."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(of) == session and state not in "ZX":
            found.append(int(stat.parent.name))
    return found


def survive(folder: Path, seconds: float, kills: int, rng: random.Random) -> int:
    """Kill a run at random moments and let it end; return the kills made.

    Only the command is killed, by SIGKILL; its workers have to notice.
    """
    made = 0
    for _ in range(kills):
        process = start(folder, rng)
        try:
            _, said = process.communicate(timeout=rng.uniform(0.02, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            made += 1
        require_quiet(said)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while left := alive(process.pid):
            assert time.monotonic() < deadline, f"orphans: {left}"
            time.sleep(0.05)
    finish(folder, rng)
    return made


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param(2, marks=pytest.mark.slow),
        pytest.param(KILLS, marks=pytest.mark.torture),
    ],
)
def test_kills(kills, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(topics.values())[:150_000], encoding="utf-8")
    study, whole = STUDY.replace("TEXT", json.dumps(str(tmp_path / "text.txt"))), tmp_path / "whole"
    rng = random.Random(SEED)
    whole.mkdir()
    (whole / "study.toml").write_text(study)
    began = time.monotonic()
    finish(whole, rng)
    seconds = time.monotonic() - began
    expected = written(whole)
    assert not litter(whole)
    while kills > 0:
        folder = tmp_path / "killed"
        folder.mkdir()
        (folder / "study.toml").write_text(study)
        kills -= survive(folder, seconds, rng.randint(1, 4), rng)
        assert not litter(folder), litter(folder)
        ours = written(folder)
        assert ours.keys() == expected.keys()
        assert [name for name in ours if ours[name] != expected[name]] == []
        shutil.rmtree(folder)
