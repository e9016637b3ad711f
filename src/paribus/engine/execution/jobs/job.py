"""A job: what a scheduler runs somewhere. It works as a run on that machine would, by workers of
its own, and tells what happens in files.

    python -P -m paribus.engine.execution.jobs.job SUBMISSION K

SUBMISSION is a folder of `paribus.engine.execution.jobs.folder`. On SIGTERM or SIGUSR2, which
schedulers send before they end a job, the workers write checkpoints and the job leaves; called
again it goes on from there.
"""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

from paribus.engine.execution.jobs.folder import Batch, Order
from paribus.engine.execution.workers.messages import (
    Finished,
    Resumed,
    Trained,
    decode,
    encode,
)
from paribus.errors import ParibusError
from paribus.results import ResultsFolder, package_versions
from paribus.results.record_format import records_of
from paribus.search_path import add_own_folder
from paribus.study import Study, parse_study
from paribus.study.trainer import STACKED, Trial
from paribus.trainers.run import train_here

TELL_SECONDS = 1.0  # between two lines on the progress of a stack
SIGNAL_SECONDS = 3.0  # a worker may have its signal before its job does


class Stopped(BaseException):
    """The scheduler wants the job to leave."""


class _Job:
    """One attempt of one job."""

    def __init__(self, batch: Batch, number: int) -> None:
        self.batch, self.number = batch, number
        self.order: Order = batch.order
        self.results = ResultsFolder(Path(self.order.results))
        self._told: dict[str, float] = {}
        self._lock = threading.Lock()

    def tell(self, **about: Any) -> None:
        """Write a line on what happens."""
        with self._lock:
            self.batch.tell(self.number, about)

    def work(self) -> None:
        """Do what is ordered."""
        order = self.order
        for folder in order.search:
            add_own_folder(Path(folder))
        if not self.results.path.is_dir():
            raise ParibusError(
                f"{self.results.path} is not there on {platform.node()}; results must lie in a "
                "folder that every machine of the cluster sees: choose one with --results"
            )
        study = parse_study(order.study, folder=Path(order.folder))
        _require_software(study, order.software)
        if study.trainer == STACKED:
            self._by_workers(study)
        else:
            self._by_its_trainer(study)

    def _by_its_trainer(self, study: Study) -> None:
        tasks = {decode(line).trials[0]: decode(line) for line in self.order.jobs[self.number]}
        begun = set[Trial]()

        def hear(trial: Trial, step: int, value: float | None) -> None:
            if value is None or trial not in begun:
                begun.add(trial)
                self._hear(tasks[trial], Resumed((trial,), 0, ""))
            if value is not None:
                self._hear(tasks[trial], Trained((trial,), step, [value]))

        part = f"{self.batch.number}-{self.number}"
        about = {"part": part, "hear": hear, "workers": self.order.settings["workers"]}
        for trial in train_here(study, self.results, list(tasks), **about):
            self.tell(task=encode(tasks[trial]), message=encode(Finished()))

    def _by_workers(self, study: Study) -> None:
        from paribus.engine.execution.crew import PoolCrew
        from paribus.engine.execution.workers.pool import Pool

        order, given = self.order, self.order.settings
        tasks = [decode(line) for line in order.jobs[self.number]]
        with Pool(
            study,
            self.results.path,
            device=given["device"],
            checkpoint_seconds=given["checkpoint_seconds"],
            eager=given["eager"],
            retries=given["retries"],
        ) as pool:
            crew = PoolCrew(pool, given["workers"], given["stack"])
            match order.kind:
                case "start":
                    self._start(crew, study)
                case "work":
                    pool.start_for(len(tasks), given["workers"])
                    pool.work(tasks, self._hear)
                case "retrain":
                    pool.start_for(1, 1)
                    crew.retrain(study, self.results, lambda words: self.tell(say=words))
                case "time":
                    pool.start_for(len(study.arms), 1)
                    crew.time(study, self.results, [(arm, seed) for arm, seed in given["trials"]])

    def _start(self, crew: Any, study: Study) -> None:
        from paribus.engine.execution.start import Beginning, read_data

        given = self.order.settings
        tried = {(one, size) for one, size in given["tried"]}
        about = (study, read_data(study), given["n_trials"], tried, given["n_jobs"])
        begun = crew.start(Beginning(self.results, *about, briefly=given["briefly"]))
        self.tell(
            result={
                "precision": begun[0].training.precision,
                "stacks": begun[1],
                "tried": sorted(tried),
            }
        )

    def _hear(self, task: Any, message: Any) -> None:
        line, now = encode(task), time.monotonic()
        if isinstance(message, Trained):
            study_steps = self.order.settings["iterations"].get(task.arm)
            if (
                message.t != study_steps
                and now - self._told.get(line, -TELL_SECONDS) < TELL_SECONDS
            ):
                return
            self._told[line] = now
        self.tell(task=line, message=encode(message))


class _Telling(logging.Handler):
    """Brings warnings of this process to whoever follows the job."""

    def __init__(self, job: _Job) -> None:
        super().__init__(logging.WARNING)
        self._job = job

    def emit(self, record: logging.LogRecord) -> None:
        self._job.tell(warn=record.getMessage())


def software(study: Study) -> dict[str, Any]:
    """Return what must be the same on every machine of a run."""
    records = records_of(study)
    own = {"the source of paribus": str(records.code())[:12], "Python": platform.python_version()}
    return own | package_versions(records.packages)


def _require_software(study: Study, wanted: dict[str, Any]) -> None:
    here = software(study)
    differing = [name for name in wanted if here.get(name) != wanted[name]]
    if differing:
        name = differing[0]
        raise ParibusError(
            f"{name} is {here.get(name)} on {platform.node()}, and {wanted[name]} where the run "
            "was submitted; use one environment on all machines"
        )


def main(folder: str, number: int) -> int:
    """Be job `number` of a submission; returns the exit code."""
    try:
        return _be(Batch(Path(folder)), number)
    except ParibusError as error:  # of the folder by which it would tell: its disk is full
        print(error, file=sys.stderr)
        return 1


def _be(batch: Batch, number: int) -> int:
    is_stopped: list[int] = []
    can_stop = [True]

    def stop(signum: int, frame: FrameType | None) -> None:
        is_stopped.append(signum)
        if len(is_stopped) == 1 and can_stop[0]:
            raise Stopped

    for one in (signal.SIGTERM, signal.SIGUSR2):
        signal.signal(one, stop)
    if batch.is_closed or batch.is_revoked(number):  # its tasks are another's by now
        return 0
    job = _Job(batch, number)
    logging.getLogger("paribus").addHandler(_Telling(job))
    try:
        batch.begin(number)
        os.chdir(batch.order.cwd)
        job.tell(begun=platform.node(), pid=os.getpid())
        how = _attempt(job.work, is_stopped)
    except Stopped:
        how = {"how": "stopped"}
    can_stop[0] = False
    if not batch.is_revoked(number):
        batch.end(number, how)
    print(how.get("words", how["how"]), file=sys.stderr)
    return 0


def _attempt(work: Callable[[], None], is_stopped: list[int]) -> dict[str, Any]:
    """Return how the attempt ended."""
    try:
        work()
        return {"how": "done"}
    except ParibusError as error:
        # Workers are signalled as well, and one that left first looks as if it had died.
        began = time.monotonic()
        while "exit code 0" in str(error) and time.monotonic() - began < SIGNAL_SECONDS:
            time.sleep(0.05)
        node = platform.node()
        where = "" if node in str(error) else f" (on {node})"
        return {"how": "refused", "words": f"{error}{where}"}
    except Exception as error:
        print(traceback.format_exc(), file=sys.stderr)
        words = f"{type(error).__name__}: {error}"
        return {"how": "refused", "words": f"a job failed: {words}; finished trials are kept"}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], int(sys.argv[2])))
