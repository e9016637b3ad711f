"""Trials as jobs: packed, followed by files, found again, begun again; by made-up schedulers."""

from __future__ import annotations

import itertools
import json
import logging
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

import paribus
from paribus.cli import main
from paribus.engine.execution.backends import find_backend
from paribus.engine.execution.backends.jobs import JobBackend, JobOptions, JobState
from paribus.engine.execution.backends.slurm import SlurmOptions
from paribus.engine.execution.jobs import crew as crews
from paribus.engine.execution.jobs import job as jobs_of
from paribus.engine.execution.jobs import standing
from paribus.engine.execution.jobs.crew import JobCrew
from paribus.engine.execution.jobs.entry import entered
from paribus.engine.execution.jobs.folder import Batch, JobsFolder
from paribus.engine.execution.jobs.standing import cancel, job_rows
from paribus.engine.execution.workers.messages import (
    Finished,
    Resumed,
    Train,
    decode,
    encode,
)
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.trial_folder import MANIFEST
from paribus.study import Study

from .conftest import Trained
from .job_backend import Options, Processes, assert_like_here, command_study
from .test_run import canonical_bytes

SETTINGS: dict[str, Any] = {
    "device": "cpu",
    "checkpoint_seconds": 60.0,
    "eager": False,
    "workers": None,
    "stack": None,
}


class Scripted(JobBackend):
    """Jobs that are no processes: each does what `script` says of (the submission, its number)."""

    name = "scripted"

    def __init__(self, script: Callable[[Batch, int], str], **options: Any) -> None:
        super().__init__(JobOptions(**options))
        self.script = script
        self.batches: list[Batch] = []
        self.says: dict[tuple[str, int], JobState] = {}
        self.n_asked = 0
        self.cancelled: list[str] = []

    def submit(self, name: str, commands: Sequence[Sequence[str]], scratch: Path) -> None:
        batch = Batch(scratch.parent)
        assert batch.order.name == name and commands[0][-2:] == [str(batch.path.absolute()), "0"]
        self.batches.append(batch)
        for number in range(len(commands)):
            words = self.script(batch, number)
            phase = words if words in ("queued", "running") else "ended"
            self.says[name, number] = JobState(f"{len(self.batches)}_{number}", phase, words)  # type: ignore[arg-type]

    def states(self, names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        self.n_asked += 1
        return {key: state for key, state in self.says.items() if key[0] in names}

    def cancel(self, names: Collection[str]) -> None:
        self.cancelled += names


def seal(batch: Batch, line: str) -> None:
    """Finish the trials of a task, as far as anybody looks."""
    for arm, seed in decode(line).trials:
        folder = ResultsFolder(Path(batch.order.results)).trial(arm, seed)
        folder.path.mkdir(parents=True, exist_ok=True)
        (folder.path / MANIFEST).write_text("{}")


def well(batch: Batch, number: int) -> str:
    """A job that does all it was given."""
    for line in batch.order.jobs[number]:
        seal(batch, line)
        batch.tell(number, {"task": line, "message": encode(Finished())})
    batch.end(number, {"how": "done"})
    return "COMPLETED"


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("LOOK_SECONDS", "ASK_SECONDS", "UNKNOWN_SECONDS"):
        monkeypatch.setattr(crews, name, 0.01)


@pytest.fixture
def study(small_study: Callable[..., Study]) -> Study:
    return small_study(seeds=list(range(1, 101)))  # of three arms: 300 trials


def work(backend: Scripted, study: Study, results: Path, n: int | None = None) -> list[Any]:
    """Let jobs train the first n trials of a study; what was heard of them."""
    heard: list[Any] = []
    folder = ResultsFolder(results)
    results.mkdir(exist_ok=True)
    tasks = [Train(arm, ((arm, seed),)) for arm, seed in study.trials[:n]]
    todo = [task for task in tasks if not folder.trial(*task.trials[0]).is_finished]
    with folder.lock(), JobCrew(backend, study, folder, SETTINGS) as crew:
        crew.work(todo, lambda task, message: heard.append((task, message)))
    return heard


def left_alone(study: Study, results: Path, phase: str, **options: Any) -> Scripted:
    """Return the backend of a command that died once it had submitted jobs, now in `phase`."""
    backend = Scripted(lambda batch, number: phase, **options)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "states", lambda names: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            work(backend, study, results, 4)
    return backend


def says_and_then_does_well(backend: Scripted, n_asked: int, state: JobState) -> None:
    """Let the scheduler say that of every job; asked more often, the first submission is done."""
    states = backend.states

    def ask(names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        if backend.n_asked > n_asked:
            batch = backend.batches[0]
            for number in range(len(batch.order.jobs)):
                well(batch, number)
        return dict.fromkeys(states(names), state)

    backend.states = ask  # type: ignore[method-assign]


def test_three_hundred_trials_are_a_few_jobs(study: Study, tmp_path: Path) -> None:
    """With what tries the arms before, and times them after, at most 20; a trial is in one."""
    backend = Scripted(well)
    heard = work(backend, study, tmp_path / "r")
    (batch,) = backend.batches
    assert len(batch.order.jobs) + 2 <= 20
    assert sorted(line for part in batch.order.jobs for line in part) == sorted(
        encode(Train(arm, ((arm, seed),))) for arm, seed in study.trials
    )
    assert [message for _, message in heard] == [Finished()] * 300
    packed = Scripted(well, trials_per_job=7)
    assert [packed.n_jobs(n) for n in (1, 7, 8, 300)] == [1, 1, 2, 43]


def test_a_scheduler_is_asked_at_most_once_a_second(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However often the files are looked at; by a clock of the test's own."""
    now, asked = [0.0], list[float]()
    monkeypatch.undo()
    monkeypatch.setattr(crews.time, "monotonic", lambda: now[0])

    def sleep(seconds: float) -> None:
        now[0] += seconds

    monkeypatch.setattr(crews.time, "sleep", sleep)
    backend = Scripted(lambda batch, number: "running")
    states = backend.states

    def ask(names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        asked.append(now[0])
        if len(asked) == 30:
            for one in range(len(backend.batches[0].order.jobs)):
                well(backend.batches[0], one)
        return states(names)

    monkeypatch.setattr(backend, "states", ask)
    work(backend, study, tmp_path / "r")
    assert len(asked) >= 30 and min(b - a for a, b in itertools.pairwise(asked)) >= 1


def test_who_comes_after_a_dead_submitter_submits_nothing_twice(
    study: Study, tmp_path: Path
) -> None:
    """Jobs are queued; one submission was written down and never came to the scheduler, another
    did. What finishes meanwhile is heard of once."""

    class DeadError(BaseException):
        pass

    backend = Scripted(lambda batch, number: "queued", jobs=4)
    asked = backend.states

    def die(names: Collection[str]) -> Any:
        raise KeyboardInterrupt

    backend.states = die  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        work(backend, study, tmp_path / "r", 8)
    assert backend.cancelled == []
    # Another one, that died before its submission.
    backend.submit, submit = die, backend.submit  # type: ignore[method-assign,assignment]
    first = backend.batches[0]
    jobs = JobsFolder.of(tmp_path / "r")
    lost = jobs.new(first.order, (jobs.about() or {})["token"])
    (first.path / "submitted").unlink()  # and the first one died before it could note that it was
    backend.states, backend.submit = asked, submit  # type: ignore[method-assign]
    seen = backend.n_asked

    def later(names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        if backend.n_asked > seen + 3:
            for number in range(4):
                well(first, number)
        return asked(names)

    backend.states = later  # type: ignore[method-assign]
    heard = work(backend, study, tmp_path / "r", 8)
    assert backend.batches == [first] and lost.is_closed and first.is_submitted
    assert len([message for _, message in heard if message == Finished()]) == 8


def test_trials_that_come_together_otherwise_are_no_job_any_more(
    study: Study, tmp_path: Path
) -> None:
    """A queued job would train them one by one, and now they are asked for side by side."""
    backend = left_alone(study, tmp_path / "r", "queued", jobs=1)
    backend.script = well
    folder, pair = ResultsFolder(tmp_path / "r"), tuple(study.trials[:2])
    with folder.lock(), JobCrew(backend, study, folder, SETTINGS) as crew:
        crew.work([Train(pair[0][0], pair)])
    first, second = backend.batches
    assert backend.cancelled == [first.order.name] and first.is_closed
    assert second.order.jobs == [[encode(Train(pair[0][0], pair))]]


@pytest.mark.parametrize("how", ["refused", "cancelled"])
def test_what_ended_while_nobody_looked_is_submitted_anew(
    study: Study, tmp_path: Path, how: str
) -> None:
    """The user has mended what was refused, and asks again."""
    backend = left_alone(study, tmp_path / "r", "running", jobs=1)
    if how == "refused":
        backend.batches[0].end(0, {"how": "refused", "words": "numpy"})
    ended = JobState("1", "ended", "COMPLETED", is_cancelled=how == "cancelled")
    backend.says = dict.fromkeys(backend.says, ended)
    backend.script = well
    work(backend, study, tmp_path / "r", 4)
    assert len(backend.batches) == 2


def dying(deaths: int, words: str, begun: bool = True) -> Callable[[Batch, int], str]:
    """Jobs of which the first so many die in the middle of their first task."""
    left = [deaths]

    def script(batch: Batch, number: int) -> str:
        if left[0] == 0:
            return well(batch, number)
        left[0] -= 1
        if begun:
            batch.tell(number, {"begun": "node1"})
            first = batch.order.jobs[number][0]
            batch.tell(number, {"task": first, "message": encode(Resumed((), 3, ""))})
        return words

    return script


def test_a_job_that_dies_is_begun_again(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its trials are another job's, and the dead one may not begin again."""
    backend = Scripted(dying(2, "NODE_FAIL"), jobs=1)
    work(backend, study, tmp_path / "r", 4)
    assert [len(batch.order.jobs[0]) for batch in backend.batches] == [4, 4, 4]
    assert backend.batches[0].is_revoked(0)
    assert caplog.text.count("NODE_FAIL") == 2


@pytest.mark.parametrize(("begun", "where"), [(True, "on baseline/seed-1"), (False, "does every")])
def test_a_job_that_dies_too_often_is_told_in_one_line(
    study: Study, tmp_path: Path, begun: bool, where: str
) -> None:
    """In the scheduler's words; what else the study has running is ended. The next call goes on."""
    backend = Scripted(dying(9, "OUT_OF_MEMORY", begun), jobs=1, retries=2)
    with pytest.raises(ParibusError, match=r"OUT_OF_MEMORY.*run again to continue") as caught:
        work(backend, study, tmp_path / "r", 4)
    assert where in str(caught.value) and "\n" not in str(caught.value)
    assert len(backend.batches) == 3 and set(backend.cancelled) >= {backend.batches[-1].order.name}
    work(Scripted(well, jobs=1), study, tmp_path / "r", 4)


def test_time_that_is_over_is_no_death(study: Study, tmp_path: Path) -> None:
    """As long as something was done in it: a trial of a thousand hours is trained in pieces."""
    left = [6]

    def script(batch: Batch, number: int) -> str:
        if left[0] == 0:
            return well(batch, number)
        left[0] -= 1
        line = batch.order.jobs[number][0]
        batch.tell(number, {"begun": "node1"})
        for t in (3, 4):
            name = "Resumed" if t == 3 else "Trained"
            more = {"words": ""} if t == 3 else {"losses": [1.0]}
            message = {"message": name, "trials": [], "t": t} | more
            batch.tell(number, {"task": line, "message": json.dumps(message)})
        batch.end(number, {"how": "stopped"})
        return "TIMEOUT"

    backend = Scripted(script, jobs=1, retries=0)
    work(backend, study, tmp_path / "r", 2)
    assert len(backend.batches) == 7


def test_what_a_job_refuses_ends_the_run(study: Study, tmp_path: Path) -> None:
    def script(batch: Batch, number: int) -> str:
        batch.end(number, {"how": "refused", "words": "numpy is 2.0 on node7, and 2.3 where"})
        return "COMPLETED"

    with pytest.raises(ParibusError, match=r"numpy is 2\.0 on node7"):
        work(Scripted(script), study, tmp_path / "r", 4)


def test_jobs_that_wait_with_other_options_are_submitted_anew(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = left_alone(study, tmp_path / "r", "queued", jobs=1)
    other = Scripted(well, jobs=2)
    other.says, other.batches = backend.says, backend.batches
    work(other, study, tmp_path / "r", 4)
    first, second = other.batches
    assert other.cancelled == [first.order.name] and first.is_closed
    assert len(second.order.jobs) == 2 and "jobs = 1" in caplog.text


def test_jobs_that_run_go_on_with_their_own_options(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = left_alone(study, tmp_path / "r", "running", jobs=1)
    other = Scripted(well, jobs=2)
    other.says, other.batches = backend.says, backend.batches
    (batch,) = other.batches
    says_and_then_does_well(other, 1, JobState("1_0", "running", "running"))
    work(other, study, tmp_path / "r", 4)
    assert other.cancelled == [] and other.batches == [batch]
    assert "jobs = 1 go on" in caplog.text


def test_why_jobs_wait_is_told_once(
    study: Study,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crews, "WAIT_SECONDS", 0.0)
    backend = Scripted(lambda batch, number: "queued", jobs=2)
    says_and_then_does_well(backend, 4, JobState("9", "queued", "PENDING: PartitionConfig"))
    work(backend, study, tmp_path / "r", 2)
    assert caplog.text.count("2 jobs wait (PENDING: PartitionConfig)") == 1


def test_a_job_that_failed_and_was_ended_after_it_has_failed(
    study: Study,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """`status` says so before any job has registered the study."""
    backend = left_alone(study, tmp_path / "r", "running", jobs=1)
    backend.batches[0].end(0, {"how": "refused", "words": "a worker died with signal 9"})
    backend.says = {k: JobState("9", "ended", "CANCELLED", is_cancelled=True) for k in backend.says}
    monkeypatch.setattr(standing, "_backend_of", lambda about: backend)
    (row,) = job_rows(tmp_path / "r")
    assert (row.state, row.reason) == ("failed", "a worker died with signal 9")
    assert not ResultsFolder(tmp_path / "r").exists
    assert main(["status", str(tmp_path / "r")]) == 0
    assert "died with signal 9" in " ".join(capsys.readouterr().out.split())


def test_a_held_job_is_told_once(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backend = Scripted(lambda batch, number: "queued", jobs=1)
    held = JobState("16", "queued", "PENDING: launch failed requeued held", is_held=True)
    says_and_then_does_well(backend, 4, held)
    work(backend, study, tmp_path / "r", 2)
    assert caplog.text.count("job 16 is held") == 1 and "launch failed" in caplog.text


def test_a_scheduler_that_is_restarted_ends_nothing(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """It is asked again. One that never answered is told at once, and jobs are left alone."""
    backend = Scripted(lambda batch, number: "running", jobs=1)
    states = backend.states

    def ask(names: Collection[str]) -> Mapping[tuple[str, int], JobState]:
        if backend.n_asked > 8:
            well(backend.batches[0], 0)
        if 2 < backend.n_asked < 7:
            backend.n_asked += 1
            raise ParibusError("squeue: Unable to contact slurm controller")
        return states(names)

    backend.states = ask  # type: ignore[method-assign]
    work(backend, study, tmp_path / "r", 2)
    assert caplog.text.count("Unable to contact") == 1 and backend.cancelled == []

    def silent(names: Collection[str]) -> Any:
        raise ParibusError("squeue: Unable to contact slurm controller")

    backend = Scripted(lambda batch, number: "running", jobs=1)
    backend.states = silent  # type: ignore[method-assign]
    with pytest.raises(ParibusError, match="Unable to contact"):
        work(backend, study, tmp_path / "other", 2)
    assert backend.cancelled == [] and not backend.batches[0].is_closed


def test_other_software_on_a_node_is_refused(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = jobs_of.software(study)
    jobs_of._require_software(study, wanted)
    with pytest.raises(ParibusError, match=r"numpy is .* and 1.0 where the run was submitted"):
        jobs_of._require_software(study, wanted | {"numpy": "1.0"})


def test_jobs_of_another_backend_keep_a_run_out(study: Study, tmp_path: Path) -> None:
    """And so does one that may be writing; after `cancel` there is none."""
    backend = left_alone(study, tmp_path / "r", "running")
    folder = ResultsFolder(tmp_path / "r")
    with pytest.raises(ParibusError, match=r"jobs of backend 'scripted'.*paribus cancel"):
        entered(folder, "local").__enter__()
    (said,) = cancel(folder.path, backend)
    name = backend.batches[0].order.name
    assert name in said and backend.cancelled == [name]
    with entered(folder, "local"):
        pass
    with pytest.raises(ParibusError, match="nothing runs in"):
        cancel(folder.path)


def test_cancel_names_no_submission_whose_jobs_have_ended(study: Study, tmp_path: Path) -> None:
    backend = left_alone(study, tmp_path / "r", "running")
    (batch,) = backend.batches
    for key in backend.says:
        backend.says[key] = JobState("1", "ended", "FAILED")
    with pytest.raises(ParibusError, match="nothing runs in"):
        cancel(tmp_path / "r", backend)
    assert backend.cancelled == [] and not batch.is_closed
    backend.says.clear()  # the scheduler has not listed it yet
    (said,) = cancel(tmp_path / "r", backend)
    assert batch.order.name in said and backend.cancelled == [batch.order.name]


HOLDER = """
import sys, time
from pathlib import Path
from paribus.results.lock import hold
with hold(Path(sys.argv[1])):
    print("held", flush=True)
    time.sleep(60)
"""


def test_cancel_interrupts_the_command_that_holds_a_folder(tmp_path: Path) -> None:
    """And no other one: a process is told by when it began."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None and process.stdout.readline() == "held\n"
    (said,) = cancel(tmp_path)
    assert str(process.pid) in said and process.wait(10) == -signal.SIGTERM
    with pytest.raises(ParibusError, match="nothing runs in"):
        cancel(tmp_path)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("slurm", r"unknown key 'tiem'.*--backend slurm"),
        ("queue", "'queue', which does not ship"),
        ("local", "'local', which has none"),
    ],
)
def test_whose_jobs_cannot_be_asked_of_is_said_as_it_is(
    study: Study, tmp_path: Path, kind: str, words: str
) -> None:
    """Options of another version of paribus are no backend that does not ship."""
    left_alone(study, tmp_path / "r", "running")
    about = tmp_path / ".r.jobs" / "about.json"
    there, options = json.loads(about.read_text()), {"tiem": 3} if kind == "slurm" else {}
    about.write_text(json.dumps(there | {"kind": kind, "options": options}))
    for ask in (cancel, job_rows):
        with pytest.raises(ParibusError, match=words) as told:
            ask(tmp_path / "r")
        assert ("does not ship" in str(told.value)) == (kind == "queue")
        assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("slurm", {"partition": ""}),
        ("slurm", {"time": " "}),
        ("slurm", {"options": {"constraint": ""}}),
        ("ray", {"address": ""}),
    ],
)
def test_an_empty_option_is_refused(name: str, options: dict[str, Any]) -> None:
    key = next(iter(options))
    with pytest.raises(
        ParibusError, match=f"--backend-option of '{name}': {key}.*is empty"
    ) as told:
        find_backend(name, options)
    assert "\n" not in str(told.value)


def test_a_strangers_folder_names_no_jobs_and_no_code(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The scratch folder may come with a results folder of somebody else's: it is data."""
    backend = left_alone(study, tmp_path / "r", "running")
    about = tmp_path / ".r.jobs" / "about.json"
    there = json.loads(about.read_text())
    about.write_text(json.dumps(there | {"kind": "evil.py:Backend"}))
    with pytest.raises(ParibusError, match="name it with --backend"):
        cancel(tmp_path / "r")
    about.write_text(json.dumps(there | {"kind": "slurm", "options": {}}))
    order = tmp_path / ".r.jobs" / "1" / "batch.json"
    order.write_text(order.read_text().replace(backend.batches[0].order.name, "thesis"))
    with pytest.raises(ParibusError, match=r"batch\.json was changed"):
        cancel(tmp_path / "r")


def test_a_revoked_job_does_not_begin(study: Study, tmp_path: Path) -> None:
    backend = left_alone(study, tmp_path / "r", "running")
    batch = backend.batches[0]
    batch.revoke(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(signal, "signal", lambda *_: None)
        assert jobs_of.main(str(batch.path), 0) == 0
    assert batch.end(0) is None and not (batch.path / "0.jsonl").exists()


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no disk that is full")
def test_a_job_that_cannot_tell_anything_says_so_in_one_line(
    study: Study, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On its standard error, the only file that is left."""
    backend = left_alone(study, tmp_path / "r", "running")
    scratch = backend.batches[0].path
    (scratch / "0.jsonl").symlink_to("/dev/full")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path)
        patch.setattr(signal, "signal", lambda *_: None)
        patch.setattr(logging.getLogger("paribus"), "handlers", [])
        assert jobs_of.main(str(scratch), 0) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"cannot write {scratch / '0.jsonl'}: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("time", "minutes"),
    [(30, 30), ("30", 30), ("90:30", 91), ("12:00:00", 720), ("2-00:00:00", 2880), ("1-6", 1800)],
)
def test_times_are_written_as_slurm_writes_them(time: int | str, minutes: int) -> None:
    assert SlurmOptions.model_validate({"time": time}).time == minutes


def test_a_job_has_longer_than_its_warning_comes_before_its_end() -> None:
    """Else it would be told to leave as it begins, and go back to the queue for ever."""
    for options in ({"time": 1}, {"time": 30, "checkpoint_seconds_before": 1800}):
        with pytest.raises(ParibusError, match=r"checkpoint_seconds_before = .* state a longer"):
            find_backend("slurm", options)
    find_backend("slurm", {"time": 1, "checkpoint_seconds_before": 59})


@pytest.mark.parametrize(
    ("name", "options", "devices", "words"),
    [
        ("slurm", {"gpus": 8}, 16, "devices_per_trial = 16.* gpus = 8"),
        ("ray", {"gpus": 8}, 16, "takes 16 GPUs of one.* gpus = 8"),
    ],
)
def test_devices_that_a_job_has_not_are_refused_before_it_is_queued(
    name: str, options: dict[str, Any], devices: int, words: str
) -> None:
    backend = find_backend(name, options)
    assert isinstance(backend, JobBackend)
    with pytest.raises(ParibusError, match=words) as told:
        backend.workers(devices)
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("options", "devices", "workers"),
    [
        ({"gpus": 8}, 8, 1),
        ({"gpus": 8}, 2, 4),
        ({"cpus": 8}, 2, 4),
        ({}, 8, 1),
    ],
)
def test_a_worker_has_the_devices_of_a_trial(
    options: dict[str, Any], devices: int, workers: int
) -> None:
    backend = find_backend("slurm", options)
    assert isinstance(backend, JobBackend)
    assert backend.workers(devices) == workers


def test_a_backend_may_be_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options of the command line come before its own; it is never taken from a results folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    Path("cluster.toml").write_text('kind = "slurm"\npartition = "gpu"\njobs = 3\n')
    options = find_backend("cluster.toml", {"jobs": 5}).options
    assert (options.partition, options.jobs) == ("gpu", 5)
    Path("other.toml").write_text('partition = "gpu"\n')
    with pytest.raises(ParibusError, match='it has no kind; write kind = "slurm"'):
        find_backend("other.toml")
    with pytest.raises(ParibusError, match="unknown key 'partitoin': did you mean 'partition'"):
        find_backend("slurm", {"partitoin": "gpu"})
    Path("r").mkdir()
    Path("r/study.json").write_text("{}")
    Path("cluster.toml").rename("r/cluster.toml")
    with pytest.raises(ParibusError, match="lies in the results folder"):
        find_backend("r/cluster.toml")
    assert main(["plan", "quickstart", "--backend", "slurm"]) == 2
    assert "there is no sbatch on this machine" in capsys.readouterr().err


@pytest.mark.slow
def test_jobs_give_the_same_bytes(trained: Trained, tmp_path: Path) -> None:
    """Real ones, which know each other by files alone; `trained` is by two workers of `local`."""
    home = tmp_path / "home"
    home.mkdir()
    backend = Processes(Options(home=str(home), jobs=1))
    seen = []
    results = paribus.run(
        trained.study,
        tmp_path / "r",
        backend=backend,
        watch=lambda progress: seen.append((progress.n_finished, progress.tokens_done)),
    )
    assert canonical_bytes(results) == canonical_bytes(trained.results)
    assert seen[-1] == trained.seen[-1]
    asked = (home / "asked").read_text().splitlines()
    assert [line.split()[2] for line in asked if line.startswith("submit")] == ["1", "1", "1"]
    assert not (tmp_path / ".r.jobs").exists() and job_rows(results.path) == []
    assert json.loads((results.path / "backend.json").read_text())["options"]["jobs"] == 1


TOY = """
name = "toy"
trainer = "toy.py:Toy"
seeds = [1, 2, 3, 4, 5]
toy = {shift = 0.0, rate = 2.0, text = "a"}
endpoints = [{metric = "loss", primary = true, margin = 0.02}]
arms = {baseline = {}, shifted = {set = {"toy.shift" = 0.05}}}
"""


def test_a_trainer_of_ones_own_runs_as_jobs(tmp_path: Path) -> None:
    """Each for its part of the trials; the same bytes as in this process."""
    shutil.copy(Path(__file__).parents[1] / "trainers" / "toy.py", tmp_path)
    (tmp_path / "study.toml").write_text(TOY)
    (tmp_path / "home").mkdir()
    study = paribus.load_study(tmp_path / "study.toml")
    backend = Processes(Options(home=str(tmp_path / "home"), jobs=2))
    ours = paribus.run(study, tmp_path / "jobs", backend=backend)
    theirs = paribus.run(study, tmp_path / "here")
    for one, other in zip(ours.finished, theirs.finished, strict=True):
        assert one.seal == other.seal
    assert "submit" in (tmp_path / "home" / "asked").read_text()


def test_a_command_runs_as_jobs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each job runs programs for its part, in copies of its own; what they print is heard."""
    study = command_study(tmp_path)
    (tmp_path / "home").mkdir()
    backend = Processes(Options(home=str(tmp_path / "home"), jobs=2))
    seen: list[tuple[int, str]] = []
    ours = paribus.run(
        study,
        tmp_path / "jobs",
        backend=backend,
        watch=lambda progress: seen.append((progress.n_finished, " ".join(progress.running))),
    )
    assert caplog.text.count("uncommitted") == 1
    assert seen[0] == (0, "") and seen[-1][0] == 4
    assert any("idea/seed-1" in running for _, running in seen)
    assert_like_here(ours, study, tmp_path / "here")


def test_a_program_that_changed_before_its_job_began_is_refused(tmp_path: Path) -> None:
    study = command_study(tmp_path)
    (tmp_path / "home").mkdir()

    class Late(Processes):
        def submit(self, *about: Any) -> None:
            (tmp_path / "repo" / "train.sh").write_text("echo loss: 3\n")
            super().submit(*about)

    backend = Late(Options(home=str(tmp_path / "home"), jobs=2))
    with pytest.raises(ParibusError, match="is not the one that was registered: its program"):
        paribus.run(study, tmp_path / "jobs", backend=backend)


AGAIN = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import paribus
from tests.execution.job_backend import Options, Processes
backend = Processes(Options(home=sys.argv[2], jobs=2))
paribus.run(paribus.load_study(sys.argv[3]), sys.argv[4], backend=backend)
"""


@pytest.mark.slow
def test_a_killed_command_finds_its_jobs_again(trained: Trained, tmp_path: Path) -> None:
    home, root = tmp_path / "home", str(Path(__file__).parents[2])
    home.mkdir()
    file = tmp_path / "study.json"
    file = Path(trained.study.folder, "again.toml")
    file.write_text(_toml(trained.study))
    arguments = [sys.executable, "-c", AGAIN, root, str(home), str(file), str(tmp_path / "r")]
    for at in ("submit paribus", "submit paribus"):
        process = subprocess.Popen(arguments)
        n_before = _count(home, at)
        while _count(home, at) == n_before and process.poll() is None:
            time.sleep(0.05)
        time.sleep(1.0)
        process.kill()
        process.wait()
    assert subprocess.run(arguments, check=False).returncode == 0
    asked = (home / "asked").read_text().splitlines()
    n_jobs = [int(line.split()[2]) for line in asked if line.startswith("submit")]
    assert sum(n_jobs) <= 5  # a start that was killed on its way may be asked for once more
    ours = canonical_bytes(paribus.load_results(tmp_path / "r"))
    assert ours == canonical_bytes(trained.results)


def _count(home: Path, words: str) -> int:
    path = home / "asked"
    return path.read_text().count(words) if path.exists() else 0


def _toml(study: Study) -> str:
    """The small study with three seeds, as a file."""
    return """
name = "small"
seeds = [1, 2, 3]
data = {corpus = "text", path = "text.txt", seq_len = 16}
model = {n_layer = 2, n_head = 2, d_model = 16}
training = {iterations = 8, batch_size = 4}
evaluation = {every = 3}
stability = {smoothing_steps = 2, median_steps = 3, spike_steps = 2}
[arms.baseline]
[arms.layernorm]
set."model.embedding.norm" = "layernorm"
[arms.rmsnorm]
set."model.embedding.norm" = "rmsnorm"
"""


LEAVES = """
import signal, sys, threading, os
from paribus.engine.execution.backends.slurm import Attempt
child = "import time; time.sleep(60)"
attempt = Attempt([sys.executable, "-c", child])
def told(*about):
    print(attempt.checkpoint().function.command == attempt.command)
signal.signal(signal.SIGUSR2, told)
threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGUSR2)).start()
attempt()
"""


def test_a_job_that_is_told_to_leave_waits_for_its_command_and_no_longer() -> None:
    """The signal comes while the command is waited for, as on a node."""
    pytest.importorskip("submitit")
    done = subprocess.run(
        [sys.executable, "-c", LEAVES], capture_output=True, text=True, timeout=30, check=False
    )
    assert done.stdout.split() == ["True"], done.stderr
