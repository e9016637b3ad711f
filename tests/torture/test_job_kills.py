"""kill -9 of the command, of jobs, of their workers and ranks, and jobs that SLURM requeues: then
the same command again, and the same bytes.

One test needs a SLURM whose jobs run on this machine (`sinfo` answers), the other starts a Ray of
this machine; each is skipped where there is none. `PARIBUS_JOB_KILLS=50 pytest -n 0 -s -m torture
tests/torture/test_job_kills.py`; the counts so far are printed, and README.md here has them.
"""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ..execution.ray_cluster import ray_cluster
from .harness import new_study, written

KILLS = int(os.environ.get("PARIBUS_JOB_KILLS", "50"))
SEED = int(os.environ.get("PARIBUS_SEED", "20261125"))
OF_ALL = ("command", "job", "worker")
OF_SLURM = ("requeue", "time is over")
STUDY = """
name = "small"
seeds = [1, 2]
data = {corpus = "text", path = TEXT, seq_len = 32}
model = {n_layer = 1, n_head = 1, d_model = 8}
training = {iterations = 500, batch_size = 2, dropout = 0.1}
stability = {smoothing_steps = 2, median_steps = 3, spike_steps = 2}
tasks = {names = []}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
"""
OVER_TWO = "resources = {devices_per_trial = 2}\n" + STUDY  # a worker starts another rank
STUDIES = pytest.mark.parametrize("study", [STUDY, OVER_TWO], ids=["stacked", "ranks"])
RUN = """
import json, sys
from paribus import ParibusError, load_study
from paribus.runs.executors import find_backend
from paribus.engine.execution.run import run
try:
    backend = find_backend(sys.argv[1], json.loads(sys.argv[2]))
    run(load_study("study.toml"), "r", device="cpu", checkpoint_seconds=0.5, backend=backend)
except ParibusError as error:
    sys.exit(f"paribus: {error}")
"""

pytestmark = pytest.mark.torture


def begin(folder: Path, backend: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", RUN, backend, json.dumps(options)],
        cwd=folder,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def processes() -> dict[int, tuple[int, str]]:
    """{process: (its parent, its command)}."""
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            found[int(path.name)] = parent, (path / "cmdline").read_text().replace("\0", " ")
        except OSError:
            continue
    return found


def victims(folder: Path, target: str) -> list[int]:
    """Jobs of the run in `folder`, or the workers and templates below them."""
    there = processes()
    scratch = str(folder / ".r.jobs")
    jobs = {pid for pid, (_, line) in there.items() if "jobs.job" in line and scratch in line}
    if target == "job":
        return sorted(jobs)
    below, found = set(jobs), set[int]()
    while more := {pid for pid, (parent, _) in there.items() if parent in below} - below:
        below |= more
        found |= more
    return sorted(found)


def accident(folder: Path, target: str, command: subprocess.Popen[str], rng: random.Random) -> bool:
    """Whether something was there to be killed."""
    if target == "command":
        if command.poll() is not None:
            return False
        command.send_signal(signal.SIGKILL)
        return True
    if target in OF_SLURM:
        asked = ["squeue", "-h", "-r", "-t", "R", "-o", "%i|%j"]
        listed = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
        known = {path.parent.parent.name for path in folder.glob(".r.jobs/*/batch.json")}
        running = [
            line.split("|")[0] for line in listed.splitlines() if known and "paribus-" in line
        ]
        if not running:
            return False
        job = rng.choice(running)
        if subprocess.run(
            ["scontrol", "requeue", job], capture_output=True, check=False
        ).returncode:
            return False
        subprocess.run(["scontrol", "update", f"jobid={job}", "starttime=now"], check=False)
        return True
    there = victims(folder, target)
    if not there:
        return False
    try:
        os.kill(rng.choice(there), signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def hasten() -> None:
    """Let jobs that were queued again begin at once; SLURM would wait for two minutes."""
    asked = ["squeue", "-h", "-r", "-t", "PD", "-o", "%i|%r"]
    for line in subprocess.run(asked, capture_output=True, text=True, check=True).stdout.split():
        job, reason = line.split("|")
        if reason == "BeginTime":
            update = ["scontrol", "update", f"jobid={job}", "starttime=now"]
            subprocess.run(update, capture_output=True, check=False)


def finish(
    command: subprocess.Popen[str],
    again: Callable[[], subprocess.Popen[str]],
    counts: Counter[str],
) -> None:
    """Call it again until it says that all is done; each refusal is one line."""
    for _ in range(20):
        _, said = command.communicate(timeout=900)
        assert "Traceback" not in said, said
        if command.returncode == 0:
            return
        if command.returncode != -signal.SIGKILL:
            lines = [line for line in said.splitlines() if line.startswith("paribus: ")]
            assert len(lines) == 1, said
            counts["one line"] += 1
            print(lines[0], flush=True)
        command = again()
    raise AssertionError("it never came to its end")


@STUDIES
def test_kills_under_slurm(tmp_path: Path, study: str) -> None:
    asked = ["sinfo", "-h"]
    if shutil.which("sinfo") is None or subprocess.run(asked, capture_output=True).returncode:
        pytest.skip("no SLURM answers here")
    kill_and_compare(tmp_path, (*OF_ALL, *OF_SLURM), hasten, "slurm", study, time=60)


@STUDIES
def test_kills_under_ray(tmp_path: Path, study: str) -> None:
    (tmp_path / "ray").mkdir()
    with ray_cluster(tmp_path / "ray") as address:
        kill_and_compare(tmp_path, OF_ALL, lambda: None, "ray", study, address=address)


def kill_and_compare(
    tmp_path: Path,
    targets: tuple[str, ...],
    meanwhile: Callable[[], None],
    backend: str,
    study: str,
    **options: Any,
) -> None:
    text = tmp_path / "text.txt"
    whole = new_study(tmp_path / "whole", text, study)
    command = begin(whole, "local")
    assert command.wait(900) == 0, command.communicate()[1]
    reference = written(whole, "train")
    counts, rng = Counter[str](), random.Random(SEED)
    while sum(counts[target] for target in targets) < KILLS:
        folder = new_study(tmp_path / f"{counts['folders']}", text, study)
        again = functools.partial(begin, folder, backend, jobs=2, **options)
        command = again()
        left = rng.randint(5, 12)
        while left:
            time.sleep(rng.uniform(0.5, 8))
            meanwhile()
            # Some before a job has begun; most in the middle of one.
            is_early = not victims(folder, "worker")
            target = rng.choice(targets)
            if is_early and rng.random() < 0.8:
                pass
            elif accident(folder, target, command, rng):
                counts[target] += 1
                left -= 1
            if command.poll() is not None:
                _, said = command.communicate()
                assert "Traceback" not in said, said
                if command.returncode == 0:
                    break
                command = again()
        finish(command, again, counts)
        ours = written(folder, "train")
        assert ours.keys() == reference.keys()
        assert [name for name in ours if ours[name] != reference[name]] == []
        assert not (folder / ".r.jobs").exists()
        assert not [path.name for path in (folder / "r").rglob(".*")]
        counts["folders"] += 1
        print(dict(counts), flush=True)
