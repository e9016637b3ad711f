"""Runs of a program: sealed once, whoever is killed, and followed."""

from __future__ import annotations

import json
import logging
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import paribus
from paribus.results import ResultsFolder
from paribus.results.store import LOCK, results_folder
from paribus.runs.executors import find_backend
from paribus.runs.processes import TRACEBACK
from paribus.runs.queue import Queue, Task
from paribus.runs.run import Options, _order
from paribus.runs.standing import cancel, is_active
from paribus.runs.worker import _failure
from paribus.study import Study
from paribus.study.custom_code import load_own

from ..tools import eventually, in_one_process, processes, refused, verb
from .conftest import records, study_in

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
COMMAND = [sys.executable, "-m", "paribus", "run", "study.toml", "--results", "r"]
COMMAND += ["--workers", "1", "--no-pdf"]
CALL = "import paribus; paribus.run(paribus.load_study('study.toml'), 'r')"


def start(folder: Path, *words: str, **environment: str) -> subprocess.Popen[bytes]:
    """Start a command on the study in a folder."""
    return subprocess.Popen(
        words,
        cwd=folder,
        env=os.environ | environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def sealed(folder: Path) -> list[Path]:
    """Return the manifests of finished trials."""
    return sorted((folder / "r" / "trials").glob("*/*/manifest.json"))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """Return the records of a run that nobody disturbs."""
    folder = tmp_path_factory.mktemp("whole")
    with in_one_process():
        return records(paribus.run(study_in(folder), folder / "r"))


def test_results_are_beside_the_study_file(
    study: Study, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = study.folder / "results" / study.name
    monkeypatch.chdir(tmp_path.parent)
    assert results_folder(study, None).path.resolve() == folder.resolve()
    monkeypatch.chdir(study.folder)
    assert results_folder(study, None).path == Path("results") / study.name
    assert results_folder(study, "r").path == Path("r")


def test_workers_seal_every_trial_leave_no_queue_and_say_little(
    study: Study,
    tmp_path: Path,
    whole: dict[str, bytes],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("paribus.runs.progress.PLAIN_SECONDS", 1000.0)
    results = paribus.run(study, tmp_path / "r", workers=3, progress=True)
    assert results.scores["loss"].to_pylist() == pytest.approx([1.51, 1.26, 1.52, 1.27])
    assert records(results) == whole
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names.isdisjoint({".run", "worktrees", "repeats"})
    (line,) = capsys.readouterr().out.splitlines()
    assert line == "4/4 trials"


@LINUX
def test_a_run_is_followed_and_cancelled_from_outside(study: Study, tmp_path: Path) -> None:
    """Its command says why it ends; a run that was killed is not running."""
    home = tmp_path / "r"
    run = start(tmp_path, *COMMAND, STEP_SECONDS="30")
    eventually(lambda: processes(tmp_path, "train.py"))
    follower = start(tmp_path, *COMMAND[:3], "status", "--follow", "r")
    assert is_active(home)
    with pytest.raises(subprocess.TimeoutExpired):
        follower.wait(3)
    assert "was cancelled" in cancel(home)
    assert run.wait(30) == 2 and follower.wait(30) == 0
    assert run.stderr and b"cancelled" in run.stderr.read()
    assert not processes(tmp_path, "train.py")
    Queue.locate(home).open(_order(study, ResultsFolder(home), Options(), find_backend("local")))
    (home / LOCK).write_text(f"{run.pid}\n{platform.node()}\n")
    assert not is_active(home)
    with refused("missing"):
        cancel(home)


@LINUX
def test_a_child_that_dies_is_begun_again_and_named(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kill = "os.path.exists('killed') or (open('killed', 'w'), os.kill(os.getppid(), 9))\n"
    (tmp_path / "train.py").write_text("import os\n" + kill + (tmp_path / "train.py").read_text())
    with caplog.at_level(logging.WARNING, "paribus"):
        results = paribus.run(study, tmp_path / "r", workers=1)
    assert len(results.finished) == 4
    (words,) = [one.getMessage() for one in caplog.records if "died" in one.getMessage()]
    assert "signal 9" in words and "baseline/seed-1" in words and "retry 1 of 2" in words


@LINUX
def test_a_child_that_dies_too_often_ends_the_run_in_one_line(study: Study, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import os; os.kill(os.getppid(), 9)")
    with refused("value") as raised:
        backend = find_backend("local", {"retries": 1})
        paribus.run(study, tmp_path / "r", workers=1, backend=backend)
    words = str(raised.value)
    assert "signal 9" in words and "on baseline/seed-1" in words and "\n" not in words
    assert not (tmp_path / "r" / ".run").exists()


TRAINER = """
import multiprocessing, os
from pathlib import Path
from paribus.extend import Declaration, Metric, TrialRecord

class Exiting:
    def declare(self, study):
        return Declaration((Metric("loss", "loss", "", "lower", "evaluation", 3),))

    def run(self, study, trials):
        raise SystemExit("no data: download it first")

class Killed(Exiting):  # once, in the child that decides what comes next
    def declare(self, study):
        marker = Path(study.folder, "killed")
        if multiprocessing.parent_process() and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), 9)
        return super().declare(study)

    def run(self, study, trials):
        for trial in trials:
            yield trial, TrialRecord({"loss": 1.0 + trial[1]})
"""


def toy_study(folder: Path, trainer: str) -> Study:
    """Return a study of two arms with a trainer of TRAINER."""
    (folder / "toy.py").write_text(TRAINER)
    head, _, _ = (folder / "study.toml").read_text().partition("[set]")
    arms = '[toy]\nx = 1\n[arms.baseline]\n[arms.new]\nset."toy.x" = 2\n'
    endpoint = '[[endpoints]]\nmetric = "loss"\nprimary = true\nmargin = 0.1\n'
    (folder / "toy.toml").write_text(f'{head}trainer = "toy.py:{trainer}"\n{endpoint}{arms}')
    return paribus.load_study(folder / "toy.toml")


def test_a_trainer_that_exits_ends_the_run(study: Study, tmp_path: Path) -> None:
    toy = toy_study(tmp_path, "Exiting")
    with refused("value", match="baseline/seed-1: SystemExit"):
        paribus.run(toy, tmp_path / "r", workers=1)
    assert [line.split()[1:3] for line in verb("status", tmp_path / "r")[1].splitlines()[2:4]] == [
        ["✗", "failed"],
        ["waiting", "0"],
    ]
    (tmp_path / "toy.py").write_text(TRAINER + "# fixed")
    with refused("value", match="nothing has finished: delete .*r, or give"):
        paribus.run(toy, tmp_path / "r", workers=1)


def test_the_failing_line_of_custom_code_is_named_and_its_traceback_printed_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ideas.py").write_text("def fail():\n    raise RuntimeError('out of luck')\n")
    fail = load_own("ideas.py:fail", "own", "function", callable, tmp_path)
    with pytest.raises(RuntimeError) as raised:
        fail()
    task = Task("t", "train", "on l1/seed-1", "")
    assert "out of luck; raised in ideas.py:2, in fail;" in _failure(task, raised.value)
    monkeypatch.setenv(TRACEBACK, "1")
    assert TRACEBACK not in _failure(task, raised.value)


@LINUX
def test_a_child_that_dies_while_it_decides_what_comes_next_is_begun_again(
    study: Study, tmp_path: Path
) -> None:
    results = paribus.run(toy_study(tmp_path, "Killed"), tmp_path / "r", workers=1)
    assert len(results.finished) == 4 and (tmp_path / "killed").exists()


@LINUX
@pytest.mark.parametrize("victim", ["command", "worker", "asked worker", "program"])
def test_whoever_is_killed_nothing_is_lost_and_nothing_runs_on(
    victim: str, tmp_path: Path, whole: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    study = study_in(tmp_path)
    monkeypatch.chdir(tmp_path)
    run = start(tmp_path, sys.executable, "-c", CALL, STEP_SECONDS="0.2")
    eventually(lambda: len(sealed(tmp_path)) >= 1)
    eventually(lambda: processes(tmp_path, "train.py"))
    before = {path: path.read_bytes() for path in sealed(tmp_path)}
    if victim == "command":
        run.kill()
    else:
        word = "train.py" if victim == "program" else "paribus.runs.worker"
        how = signal.SIGTERM if victim == "asked worker" else signal.SIGKILL
        for pid in processes(tmp_path, word)[:1]:
            os.kill(pid, how)
    if victim == "program":
        assert run.wait(60) == 1  # a program that fails stops the run
    elif victim != "command":
        assert run.wait(60) == 0
    run.wait()
    eventually(lambda: not processes(tmp_path, "train.py"))
    eventually(lambda: not processes(tmp_path, "paribus.runs.worker"))
    assert {path: path.read_bytes() for path in before} == before
    if victim == "command":  # what it left is read wherever it is now
        (tmp_path / "r").rename(tmp_path / "moved")
        assert verb("status", "moved")[0] == 0
        (tmp_path / "moved").rename(tmp_path / "r")
    with in_one_process():
        assert records(paribus.run(study, tmp_path / "r")) == whole


@LINUX
def test_a_second_command_is_refused_and_an_interrupted_one_ends_workers_and_programs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study_in(tmp_path)
    run = start(tmp_path, *COMMAND, STEP_SECONDS="30")
    eventually(lambda: processes(tmp_path, "train.py"))
    monkeypatch.chdir(tmp_path)
    code, _, error = verb(*COMMAND[3:])
    assert code == 2 and error.count("\n") == 1 and "another run" in error
    run.terminate()
    assert run.wait(60) == 130
    eventually(lambda: not processes(tmp_path, "train.py"))
    assert not (tmp_path / "r" / ".run").exists()


def worker(queue: Queue, name: str, folder: Path) -> subprocess.Popen[bytes]:
    """Start a worker as a scheduler does."""
    command = [sys.executable, "-P", "-m", "paribus.runs.worker", str(queue.path), "--name", name]
    search = os.pathsep.join(sys.path)
    return subprocess.Popen(command, cwd=folder, env=os.environ | {"PYTHONPATH": search})


@pytest.fixture
def opened(tmp_path: Path) -> Callable[..., Queue]:
    """Open the queue of a study in the folder `r`."""

    def open_queue(study: Study, **settings: object) -> Queue:
        folder = ResultsFolder(tmp_path / "r")
        order = _order(study, folder, Options(), find_backend("local"))
        queue = Queue.locate(folder.path)
        queue.open(replace(order, settings=order.settings | settings, cwd=str(tmp_path)))
        return queue

    return open_queue


def test_workers_need_no_command(
    study: Study, tmp_path: Path, opened: Callable[..., Queue], whole: dict[str, bytes]
) -> None:
    queue = opened(study)
    workers = [worker(queue, f"w{k}", tmp_path) for k in range(2)]
    assert [one.wait(120) for one in workers] == [0, 0] and queue.is_finished
    assert records(paribus.load_results(tmp_path / "r")) == whole


@LINUX
def test_a_stopped_worker_is_replaced_and_may_go_on(
    tmp_path: Path, opened: Callable[..., Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both run a trial to its end: the first record counts, and other numbers are a repeat."""
    monkeypatch.setenv("STEP_SECONDS", "0.3")
    study = study_in(tmp_path, **{"[1, 2]": "[1]", '"{shift}"': '"{shift}", "{folder}"'})
    log = "    open(sys.argv[3] + '/steps', 'a').write(str(step))\n    time.sleep"
    text = (tmp_path / "train.py").read_text().replace("    time.sleep", log)
    (tmp_path / "train.py").write_text(f"{text}\nprint('final', os.getpid())\n")
    queue = opened(study, stale_seconds=0.5)
    first = worker(queue, "first", tmp_path)
    eventually(lambda: processes(tmp_path, "train.py"))
    stopped = [*processes(tmp_path, "paribus.runs.worker"), *processes(tmp_path, "train.py")]
    for pid in stopped:
        os.kill(pid, signal.SIGSTOP)
    second = worker(queue, "second", tmp_path)
    eventually(lambda: len(processes(tmp_path, "train.py 1 0.5")) == 2)
    for pid in stopped:
        os.kill(pid, signal.SIGCONT)
    assert (first.wait(60), second.wait(60)) == (0, 0) and queue.failure() is None
    results = paribus.load_results(tmp_path / "r")
    assert len(results.finished) == 2
    steps = [path.read_text() for path in (tmp_path / "r" / "runs").glob("*/*/out/steps")]
    assert steps == ["012", "012"]
    words = [event["words"] for event in queue.events({}) if event["event"] == "warning"]
    assert any("not answer" in line for line in words)
    assert any("two workers" in line for line in words)
    assert (tmp_path / "r" / "repeats" / "baseline" / "seed-1.1").is_dir()


def test_a_record_that_differs_is_kept_beside_the_first(
    study: Study, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    from paribus.runs.trainer_runner import declared_by, find_trainer, write_record
    from paribus.study.trainer import TrialRecord

    with in_one_process():
        results = paribus.run(study, tmp_path / "r")
    folder = ResultsFolder(tmp_path / "r").trial("new", 2)
    seal = folder.seal
    declaration = declared_by(study, find_trainer(study, ResultsFolder(tmp_path / "r")))
    for loss in (1.27, 0.5):
        assert not (tmp_path / "r" / "repeats").exists()  # of equal numbers
        record = TrialRecord({"loss": loss}, about={"command": ["x"]}, controls={})
        write_record(study, folder, declaration, record)
        assert folder.seal == seal
    kept = json.loads((tmp_path / "r/repeats/new/seed-2.1/evaluation.json").read_text())
    assert kept["loss"] == 0.5
    assert any("two workers" in one.getMessage() for one in caplog.records)
    assert paribus.load_results(tmp_path / "r").scores.equals(results.scores)
