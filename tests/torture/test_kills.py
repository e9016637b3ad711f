"""kill -9 at random moments, then the same command again: as if nothing had happened.

Three kills are marked slow; `PARIBUS_KILLS=300 pytest -m torture tests/torture/test_kills.py`
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
ARGUMENTS = {
    "run": ("run", "study.toml", "--results", "r", "--workers", "1", "--device", "cpu"),
    "export": ("export", "r", "out", "--trial", "layernorm/seed-2"),
}
# What each verb writes that is the same whenever it is written from the same records.
WRITES = {
    "run": ("r/trials/", "r/tasks/", "r/study.json", "r/data.json", "r/registration.json"),
    "export": ("out/",),
}
KILLS = int(os.environ.get("PARIBUS_KILLS", "50"))
SEED = int(os.environ.get("PARIBUS_SEED", "20261122"))
ORPHAN_SECONDS = 10  # a busy machine takes its time to reap


def start(folder: Path, verb: str, rng: random.Random) -> subprocess.Popen[str]:
    """The command line in a session of its own, so that orphans can be told."""
    options: tuple[str, ...] = ()
    if verb == "run":  # two side by side; if something is begun, any other number must not matter
        begun = begun_stacks(folder / "r") or any(folder.glob("r/trials/*/*/manifest.json"))
        options = ("--stack", rng.choice("1223") if begun else "2")
    return subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("commands.py")), *ARGUMENTS[verb], *options],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def finish(folder: Path, verb: str, rng: random.Random) -> None:
    """Run a command that nobody disturbs."""
    process = start(folder, verb, rng)
    _, said = process.communicate(timeout=600)
    require_quiet(said)
    assert process.returncode == 0, said


def require_quiet(said: str) -> None:
    """No kill damages a checkpoint: what was begun is gone on with, not started again."""
    assert "be used" not in said and "Traceback" not in said, said


def written(folder: Path, verb: str) -> dict[str, bytes]:
    """{path: content} of what must be the same as in an undisturbed run."""
    found = {}
    for path in sorted(p for p in folder.rglob("*") if p.is_file()):
        name = path.relative_to(folder).as_posix()
        if name.startswith(WRITES[verb]) and path.name != "timing.json":
            found[name] = path.read_bytes()
    if content := found.get("r/registration.json"):
        known = json.loads(content)
        del known["registered_at"]
        found["r/registration.json"] = json.dumps(known).encode()
    return found


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


def survive(folder: Path, verb: str, seconds: float, kills: int, rng: random.Random) -> int:
    """Kill `verb` at random moments and let it end; return the kills made.

    Only the command is killed, by SIGKILL; its workers have to notice.
    """
    made = 0
    for _ in range(kills):
        process = start(folder, verb, rng)
        try:
            _, said = process.communicate(timeout=rng.uniform(0.02, seconds))
        except subprocess.TimeoutExpired:
            process.kill()
            _, said = process.communicate()
            made += 1
        require_quiet(said)
        deadline = time.monotonic() + ORPHAN_SECONDS
        while left := alive(process.pid):
            assert time.monotonic() < deadline, f"orphans after a killed {verb}: {left}"
            time.sleep(0.05)
        if (folder / "out").exists():  # whole before it could be killed
            return made
    finish(folder, verb, rng)
    return made


@pytest.mark.parametrize(
    "kills",
    [
        pytest.param({"run": 2, "export": 1}, marks=pytest.mark.slow),
        pytest.param({"run": KILLS * 4 // 5, "export": KILLS // 5}, marks=pytest.mark.torture),
    ],
    ids=["a few", "many"],
)
def test_kills(kills, tmp_path):
    (tmp_path / "text.txt").write_text("\n\n".join(topics.values())[:150_000], encoding="utf-8")
    study, whole = STUDY.replace("TEXT", json.dumps(str(tmp_path / "text.txt"))), tmp_path / "whole"
    rng, seconds = random.Random(SEED), {}
    whole.mkdir()
    (whole / "study.toml").write_text(study)
    for verb in ARGUMENTS:
        began = time.monotonic()
        finish(whole, verb, rng)
        seconds[verb] = time.monotonic() - began
    for verb, left in kills.items():
        expected = written(whole, verb)
        assert expected and not litter(whole)
        while left > 0:
            folder = tmp_path / "killed"
            if verb == "export":
                shutil.copytree(whole, folder, ignore=shutil.ignore_patterns("out"))
            else:
                folder.mkdir()
                (folder / "study.toml").write_text(study)
            left -= survive(folder, verb, seconds[verb], rng.randint(1, 4), rng)
            assert not litter(folder), litter(folder)
            ours = written(folder, verb)
            assert ours.keys() == expected.keys()
            assert [name for name in ours if ours[name] != expected[name]] == []
            shutil.rmtree(folder)
