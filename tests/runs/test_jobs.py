"""Workers as jobs of a scheduler that is made up: processes that know nothing of the command."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

import pytest

import paribus
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.runs.executors import jobs
from paribus.runs.executors.jobs import Backend, JobOptions, JobState
from paribus.runs.executors.slurm import Slurm, SlurmOptions, write_script
from paribus.runs.queue import Queue
from paribus.runs.run import Options, _order
from paribus.runs.standing import cancel, job_states

from ..execution.job_backend import Options as ProcessOptions, Processes
from ..tools import eventually, in_one_process, processes, refused
from .conftest import records, study_in

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


class Scripted(Backend):
    """Jobs that are no processes: the scheduler says `state` of each."""

    name = "scripted"

    def __init__(self, state: JobState | None, **options: int) -> None:
        super().__init__(JobOptions(**options))
        self.state, self.asked, self.submitted = state, 0, list[int]()
        self.cancelled: list[str] = []

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        self.submitted.append(len(commands))
        self.names = [(name, number) for number in range(len(commands))]

    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        self.asked += 1
        return {} if self.state is None else dict.fromkeys(self.names, self.state)

    def cancel(self, names: Collection[str]) -> None:
        self.cancelled += names


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("ASK_SECONDS", "WAIT_SECONDS", "UNKNOWN_SECONDS"):
        monkeypatch.setattr(jobs, name, 0.0)


@pytest.fixture
def queue(tmp_path: Path) -> Queue:
    study, folder = study_in(tmp_path), ResultsFolder(tmp_path / "r")
    made = Queue.locate(folder.path)
    made.open(_order(study, folder, Options(), Scripted(None)))
    return made


@pytest.fixture
def processes_backend(tmp_path: Path) -> Processes:
    home = tmp_path / "scheduler"
    home.mkdir()
    return Processes(ProcessOptions(home=str(home), jobs=2))


def test_three_hundred_trials_are_a_few_jobs(queue: Queue) -> None:
    backend = Scripted(JobState("1", "running"))
    backend.start(queue, 300, 1)
    assert backend.submitted == [16]
    backend = Scripted(None, workers=4)
    (queue.path / jobs.SUBMITTED).unlink()
    backend.start(queue, 8, 1)
    assert backend.submitted == [2]


def test_jobs_that_end_too_early_are_submitted_again_and_then_end_the_run(queue: Queue) -> None:
    backend = Scripted(JobState("7_0", "ended", "FAILED"), retries=1)
    backend.start(queue, 1, 1)
    for _ in range(2):
        backend.check()
    with refused("system", match="FAILED"):
        backend.check()
    assert backend.submitted == [1, 1, 1]


def test_a_cancelled_job_ends_the_run(queue: Queue) -> None:
    backend = Scripted(JobState("7_0", "ended", "CANCELLED", is_cancelled=True))
    backend.start(queue, 1, 1)
    with refused("unfinished", match="7_0 was cancelled"):
        backend.check()


def test_a_scheduler_that_does_not_answer_for_a_while_ends_nothing(
    queue: Queue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = Scripted(JobState("1", "running"))
    backend.start(queue, 1, 1)

    def silent(names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        raise ParibusError("slurmctld: connection refused")

    monkeypatch.setattr(backend, "states", silent)
    for _ in range(3):
        backend.check()
    (record,) = caplog.records
    assert record.getMessage().startswith("slurmctld:")


PROGRAM = """
import sys
from pathlib import Path
import paribus
from tests.execution.job_backend import Options, Processes
here = Path(sys.argv[1])
backend = Processes(Options(home=str(here / "scheduler"), jobs=2))
paribus.run(paribus.load_study(here / "study.toml"), here / "r", backend=backend)
"""


def test_jobs_go_on_without_the_command_and_the_next_one_joins_them(
    tmp_path: Path, processes_backend: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path)
    with in_one_process():
        here = records(paribus.run(study, tmp_path / "here"))
    search = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    command = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": search, "STEP_SECONDS": "0.3"},
    )
    sealed = tmp_path / "r" / "trials"
    eventually(lambda: len(list(sealed.glob("*/*/manifest.json"))) >= 1)
    command.kill()
    command.wait()
    n = len(list(sealed.glob("*/*/manifest.json")))
    eventually(lambda: len(list(sealed.glob("*/*/manifest.json"))) > n)
    monkeypatch.setattr("paribus.runs.standing.find_backend", lambda *_: processes_backend)
    assert [row.phase for row in job_states(tmp_path / "r")] == ["running"] * 2
    results = paribus.run(study, tmp_path / "r", backend=processes_backend)
    asked = (tmp_path / "scheduler" / "asked").read_text()
    assert asked.count("submit") == 1
    assert records(results) == here and not (tmp_path / "r" / ".run").exists()
    assert not processes(tmp_path, "paribus.runs.worker", "paribus-")


def test_cancel_ends_the_jobs_of_a_study(
    tmp_path: Path, processes_backend: Processes, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, folder = study_in(tmp_path), ResultsFolder(tmp_path / "r")
    monkeypatch.setenv("STEP_SECONDS", "30")
    queue = Queue.locate(folder.path)
    queue.open(_order(study, folder, Options(), processes_backend))
    processes_backend.start(queue, 4, 1)
    eventually(lambda: processes(tmp_path, "train.py"))
    monkeypatch.setattr("paribus.runs.standing.find_backend", lambda *_: processes_backend)
    assert "were cancelled" in cancel(tmp_path / "r")
    names = list(jobs.read_submissions(queue))
    eventually(lambda: {s.phase for s in processes_backend.states(names).values()} == {"ended"})
    with refused("missing"):
        cancel(tmp_path / "r")


def test_jobs_are_cancelled_by_names_of_ours_alone(queue: Queue) -> None:
    (queue.path / jobs.SUBMITTED).write_text('{"somebody-else": 1}')
    with refused("changed", match="was changed"):
        cancel(queue.path.parent)


def test_a_dead_job_s_trial_is_begun_again_by_another(
    tmp_path: Path, processes_backend: Processes
) -> None:
    study = study_in(tmp_path)
    program = (tmp_path / "train.py").read_text()
    once = (
        "if seed == 2 and not os.path.exists('killed'):\n"
        "    open('killed', 'w')\n"
        "    worker = open(f'/proc/{os.getppid()}/stat').read().split()[3]\n"
        "    os.kill(int(worker), 9)\n"
        "    time.sleep(30)\n"
    )
    (tmp_path / "train.py").write_text(program.replace("for step", once + "for step"))
    results = paribus.run(study, tmp_path / "r", backend=processes_backend)
    assert len(results.finished) == 4 and (tmp_path / "killed").exists()


def test_devices_that_a_job_has_not_are_refused_before_it_is_queued() -> None:
    assert Slurm(SlurmOptions(gpus=8)).workers(2) == 4
    with refused("value", match="devices_per_trial = 4"):
        Slurm(SlurmOptions(gpus=2)).workers(4)


def test_a_job_that_is_told_to_leave_ends_its_worker_and_is_requeued(tmp_path: Path) -> None:
    """SLURM signals the shell alone, while it waits for the worker."""
    (tmp_path / "scontrol").write_text(f"#!/bin/sh\necho $* > {tmp_path}/asked\n")
    (tmp_path / "scontrol").chmod(0o755)
    worker = "import signal, sys, time; signal.signal(15, lambda *_: sys.exit(open('left', 'w')))"
    command = [sys.executable, "-c", f"{worker}; open('begun', 'w'); time.sleep(60)"]
    script = write_script(tmp_path, [["false"], command], ["cd " + str(tmp_path)])
    of_slurm = {"SLURM_ARRAY_JOB_ID": "7", "SLURM_ARRAY_TASK_ID": "1"}
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    env = os.environ | of_slurm | {"PATH": path}
    job = subprocess.Popen(["sh", script], env=env)
    eventually((tmp_path / "begun").exists)
    job.send_signal(signal.SIGUSR2)
    assert job.wait(30) == 0 and (tmp_path / "left").exists()
    assert (tmp_path / "asked").read_text() == "requeue 7_1\n"
