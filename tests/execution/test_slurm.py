"""A real SLURM: the same bytes, and what it says, shown as it says it.

One whose jobs run on this machine is used where `sinfo` answers; where its programs are installed
and the workplace has `slurm-here`, one is started on the loopback address. Else all is skipped.
"""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.cli import main
from paribus.runs.executors import find_backend
from paribus.runs.queue import Queue
from paribus.runs.standing import job_states

from ..tools import eventually
from .job_backend import SMALL_TOML
from .test_run import canonical_bytes
from .test_several_devices import study as over_two

pytestmark = pytest.mark.slow
ABOVE = Path(__file__).parents[3:]
HERE = next(filter(Path.exists, (up / "shared" / "tools" / "slurm-here" for up in ABOVE)), None)
URGENT = "urgent"  # a partition whose jobs send those of others back to the queue
PREEMPTING = f"PreemptType=preempt/partition_prio\nPreemptMode=REQUEUE\nPartitionName={URGENT}"
# Ports of its own, so that another SLURM may run here.
PORT = 20_000 + 4 * (os.getpid() % 3000)
OF_TWO = (
    ("ClusterName=here", f"ClusterName=here\nSlurmctldPort={PORT}"),
    ("NodeName=$host", f"NodeName=n[1-2] NodeHostname=$host Port=[{PORT + 1}-{PORT + 2}]"),
    ("Nodes=$host", "Nodes=n[1-2]"),
    ("PartitionName=main", f"{PREEMPTING} Nodes=n[1-2] PriorityTier=9\nPartitionName=main"),
    ("=$dir/slurmd.", "=$dir/slurmd-%n."),
    ("log/slurmd.", "log/slurmd-%n."),
    ("=$dir/spool", "=$dir/spool/%n"),
    ("sleep 2; slurmd", "sleep 2; slurmd -N n1; slurmd -N n2"),
    ("in slurmd.pid", "in slurmd-n1.pid slurmd-n2.pid"),
)
PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch")
until = partial(eventually, seconds=300)
RANKS = b"--multiprocessing-fork"  # a rank is a spawned process


@pytest.fixture(scope="module", autouse=True)
def slurm(tmp_path_factory):
    """A SLURM that answers."""
    if shutil.which("sinfo") and not subprocess.run(["sinfo"], capture_output=True).returncode:
        yield
        return
    if HERE is None or not all(map(shutil.which, PROGRAMS)) or os.geteuid():
        pytest.skip("there is no SLURM")
    folder = tmp_path_factory.mktemp("slurm")
    # Two nodes of this machine in place of the one.
    script = folder / "slurm-here"
    script.write_text(HERE.read_text())
    for one, two in OF_TWO:
        script.write_text(script.read_text().replace(one, two))
    if subprocess.run(["bash", script, "start", folder], capture_output=True).returncode:
        subprocess.run(["bash", script, "stop", folder], check=False)
        pytest.skip("SLURM does not start here")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
        yield
    subprocess.run(["bash", script, "stop", folder], check=False)


def test_the_same_bytes(trained, tmp_path):
    backend = find_backend("slurm", {"jobs": 2, "time": "01:00:00"})
    results = paribus.run(trained.study, tmp_path / "r", backend=backend, device="cpu")
    assert canonical_bytes(results) == canonical_bytes(trained.results)
    assert not (tmp_path / "r" / ".run").exists()


def test_status_and_cancel(trained, tmp_path, capsys):
    """`cancel` ends what the study has running, and not the job of somebody else; the jobs of a
    command that was killed are shown; a second command is refused; then the study goes on."""
    file = trained.study.folder / "again.toml"
    file.write_text(SMALL_TOML)
    results = tmp_path / "r"
    given = ["--backend", "slurm", "--backend-option", "jobs=1", "--device", "cpu", "--no-pdf"]
    command = [sys.executable, "-m", "paribus", "run", str(file), "--results", str(results), *given]
    other = subprocess.run(
        ["sbatch", "--parsable", "--hold", "--wrap", "sleep 600"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.strip()
    try:
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        until(lambda: any(row.phase == "running" for row in job_states(results)))
        assert main(["run", str(file), "--results", str(results), *given]) == 2
        assert f"process {process.pid} on" in capsys.readouterr().err
        process.kill()
        process.wait()
        assert main(["status", str(results)]) == 0
        assert "scheduler message" in capsys.readouterr().out
        assert main(["cancel", str(results)]) == 0
        until(lambda: all(row.phase not in ("running", "queued") for row in job_states(results)))
        assert other in _said("squeue", "-h", "-o", "%i").split()
    finally:
        subprocess.run(["scancel", other], check=False)
    assert subprocess.run(command, stdout=subprocess.DEVNULL, check=False).returncode == 0
    ours = paribus.load_results(results)
    assert canonical_bytes(ours) == canonical_bytes(trained.results)


@pytest.mark.parametrize("what", ["timeout", "node lost", "preempted"])
def test_a_job_goes_on(trained, tmp_path, what):
    """It is queued again by itself. SLURM's signal is sent by hand, the node set down, and a job of
    more right given all nodes; the job wrote checkpoints, or has those of before."""
    if what == "preempted" and URGENT not in _said("sinfo", "-h", "-o", "%R").split():
        pytest.skip("this SLURM preempts nothing")
    file = trained.study.folder / "long.toml"
    text = SMALL_TOML.replace("iterations = 8", "iterations = 800")
    file.write_text(text.replace("seeds = [1, 2, 3]", "seeds = [1]"))
    results = tmp_path / "r"
    given = ["--backend", "slurm", "--backend-option", "jobs=1", "--device", "cpu", "--no-pdf"]
    command = [sys.executable, "-m", "paribus", "run", str(file), "--results", str(results), *given]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    try:
        until(Queue.locate(results).claims)
        (row,) = [row for row in job_states(results) if row.phase == "running"]
        if what == "timeout":
            subprocess.run(["scancel", "--batch", "--signal", "USR2", row.id], check=True)
        elif what == "preempted":
            all_of_it = ["-p", URGENT, "-N", "2", "--exclusive", "--wrap", "sleep 5"]
            subprocess.run(["sbatch", *all_of_it], cwd=tmp_path, check=True)
        else:
            node = ["scontrol", "update", f"nodename={row.node}"]
            there = _processes_of(row.id)
            assert there
            subprocess.run([*node, "state=down", "reason=test"], check=True)
            until(lambda: _restarts(row.id))
            until(lambda: not any(map(_is_left, there)))
            subprocess.run([*node, "state=resume"], check=False)  # it may have come back by itself
        until(lambda: _restarts(row.id))
        subprocess.run(["scontrol", "update", f"jobid={row.id}", "starttime=now"], check=False)
        for _ in range(900):
            if process.poll() is None:  # a node that is back too soon makes SLURM hold the job
                subprocess.run(["scontrol", "release", row.id], check=False, capture_output=True)
                time.sleep(1)
        assert process.poll() == 0
    finally:
        process.kill()
        for node in _said("sinfo", "-h", "-N", "-o", "%N", "-t", "drain").split():
            undone = ["scontrol", "update", f"nodename={node}", "state=resume"]
            subprocess.run(undone, check=False)
    local = paribus.run(paribus.load_study(file), tmp_path / "local", workers=2, device="cpu")
    assert canonical_bytes(paribus.load_results(results)) == canonical_bytes(local)


def test_a_trial_over_two_devices_of_a_job(tmp_path, caplog):
    """It gives the bits of two devices here, though one of its processes dies on the way."""
    study, folder = over_two(training__iterations=150), tmp_path / "r"
    options = {"jobs": 1, "time": "01:00:00"}
    about: dict[str, Any] = {"device": "cpu", "checkpoint_seconds": 0.2, "progress": False}
    with ThreadPoolExecutor() as threads:
        backend = find_backend("slurm", options)
        run = threads.submit(paribus.run, study, folder, backend=backend, **about)
        until(lambda: run.done() or list(folder.glob("checkpoints/*/step-*")))
        assert not run.done(), run.result()
        jobs = _with("SLURM_JOB_ID=")
        ranks = [pid for pid in jobs if RANKS in Path(f"/proc/{pid}/cmdline").read_bytes()]
        assert len(ranks) == 2
        os.kill(ranks[0], signal.SIGKILL)
        (trial,) = run.result().finished
    assert "signal 9" in caplog.text
    assert trial.read_json("environment.json")["ranks"] == 2
    local = paribus.run(study, tmp_path / "local", workers=1, **about)
    assert canonical_bytes(paribus.load_results(folder)) == canonical_bytes(local)


def _with(*variables: str) -> dict[int, str]:
    """Return processes that began with such variables in their environment, and when."""
    found = {}
    for entry in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            there = "\0" + (entry / "environ").read_bytes().decode(errors="replace")
            if all(f"\0{variable}" in there for variable in variables):
                found[int(entry.name)] = _begun(int(entry.name))
    return found


def _begun(pid: int) -> str:
    """Return when a process began, which tells it from a later one; empty where there is none."""
    with contextlib.suppress(OSError):
        state, *fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return fields[18] if state not in "ZX" else ""
    return ""


def _processes_of(job: str) -> set[tuple[int, str]]:
    """Return all processes of a job of SLURM that runs on this machine."""
    number = _said("squeue", "-h", "-j", job, "-o", "%A").strip()
    return set(_with(f"SLURM_JOB_ID={number}\0").items())


def _is_left(process: tuple[int, str]) -> bool:
    """Return whether it is alive."""
    pid, begun = process
    return bool(begun) and _begun(pid) == begun


def _said(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def _restarts(job: str) -> bool:
    said = _said("scontrol", "show", "job", "-o", job)
    return "Restarts=0" not in said and "Restarts=" in said
