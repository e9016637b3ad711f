"""Running a study: every trial that is not finished yet, by local worker processes."""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paribus.data import Dataset, describe_data
from paribus.errors import require_positive
from paribus.execution.checks.retrain import retrain
from paribus.execution.device_precision import as_registered
from paribus.execution.live import Live
from paribus.execution.looking import take_look
from paribus.execution.messages import Finished, Resumed, Train, Trained
from paribus.execution.pool import Device, Pool
from paribus.execution.sinks import Sinks, known_sinks
from paribus.execution.stacks import Trial
from paribus.execution.start import start
from paribus.execution.texts import read_data, settled_budgets
from paribus.execution.turns import time_in_turn
from paribus.results import (
    Results,
    ResultsFolder,
    TrialFolder,
    load_results,
    needed_trials,
    read_looks,
)
from paribus.results.checkpoints import begun_stacks, keep_stacks
from paribus.results.store import DATA
from paribus.study import Data, Study

CHECKPOINT_SECONDS = 60.0
MOST_NAMED = 3  # trials of a stack that a line of news names


@dataclass
class Progress:
    """Where a run stands.

    Attributes:
        n_trials, n_finished: trials of the study, and those that are finished.
        tokens, tokens_done: training tokens of the study, and those that have been trained on.
        tokens_before: those of `tokens_done` that earlier runs had done.
        running: steps done and last training loss (nats/token) of each trial under way, by label.
        news: what has just happened, if worth a line.
        doing: what is done once every token has been trained on; empty before.
    """

    n_trials: int
    n_finished: int
    tokens: int
    tokens_done: int
    tokens_before: int
    running: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    news: str = ""
    doing: str = ""
    _began: float = field(default_factory=time.monotonic)

    @property
    def tokens_per_second(self) -> float:
        """Over this run."""
        return (self.tokens_done - self.tokens_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Of training, at the speed so far; None before there is one."""
        speed = self.tokens_per_second
        return (self.tokens - self.tokens_done) / speed if speed > 0 else None


Watch = Callable[[Progress], None]


def results_folder(study: Study, results: str | os.PathLike[str] | None) -> ResultsFolder:
    """Where the results of `study` are: `results`, by default `results/<name of the study>`."""
    return ResultsFolder(Path(results) if results else Path("results") / study.name)


def run(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    workers: int | None = None,
    device: Device = "auto",
    stack: int | None = None,
    eager: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
    watch: Watch | None = None,
    log: Sequence[str] = (),
) -> Results:
    """Train, evaluate and record every trial of `study` that is not finished yet.

    Args:
        study: what `load_study` gives.
        results: the results folder; by default `results/<name of the study>`.
        workers: worker processes; by default one per core on a CPU, one on a GPU.
        device: where to train.
        stack: replicas trained side by side in one process; by default 1 on a CPU, and on a GPU
            all trials of one model, spread over the GPUs there are. Where memory holds fewer, fewer
            are, and it is said.
        eager: launch a GPU's kernels one by one, for an own module that asks the host for a
            tensor's value in the middle of a step; otherwise a step is recorded and replayed.
        checkpoint_seconds: how often an unfinished trial is saved.
        watch: hears of progress, several times a second at most.
        log: trackers that follow the run, by name (see `paribus.execution.sinks`).

    A precision "auto" is settled by the device of the first run, or of `register`, and kept; where
    a later device has to emulate it, one warning of the logger "paribus" says so.

    Returns what `load_results` reads. Raises ParibusError on bad input, before anything is
    written, and where a trial fails; trials that are finished by then are kept.
    """
    require_positive(workers=workers, stack=stack)
    folder, study, datasets = _opened(study, results)
    known_sinks(log)
    # The lock is taken first and given back last: no worker of ours outlives it.
    with folder.lock() as held:
        todo = _to_train(study, folder)
        with Pool(
            study,
            folder.path,
            device=device,
            checkpoint_seconds=checkpoint_seconds,
            eager=eager,
            run=held,
        ) as pool:
            study, stacks = start(pool, folder, study, datasets, workers, stack, len(todo))
            followers = _Followers(watch, Live(folder), Sinks(log, study, folder.path))
            # The text is described while the workers train.
            with contextlib.closing(followers), ThreadPoolExecutor(1) as aside:
                described = aside.submit(_describe_data, folder, study, datasets)
                _Run(study, folder, pool, followers).train(stacks)
                described.result()
        keep_stacks(folder.path, [])
    return load_results(folder.path)


def register(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    device: Device = "auto",
    eager: bool = False,
) -> Path:
    """Fix what would count before any run: write `registration.json`; returns its path.

    Every arm is tried in a dry run of one step. Raises ParibusError where something else is
    registered there already.
    """
    folder, study, datasets = _opened(study, results)
    with (
        folder.lock() as held,
        Pool(study, folder.path, device=device, eager=eager, run=held) as pool,
    ):
        start(pool, folder, study, datasets, workers=1, stack=None, n_trials=1)
    return folder.path / "registration.json"


def _to_train(study: Study, folder: ResultsFolder) -> list[Trial]:
    """The trials that are needed up to the next look, and not finished."""
    needed = needed_trials(study, read_looks(folder))
    return [(arm, seed) for arm, seed in needed if not folder.trial(arm, seed).is_finished]


def _opened(
    study: Study, results: str | os.PathLike[str] | None
) -> tuple[ResultsFolder, Study, dict[Data, Dataset]]:
    """The results folder, the study as it is registered there, and its text by what cuts it."""
    folder = results_folder(study, results)
    study = as_registered(settled_budgets(study), folder)
    folder.require_same(study)
    return folder, study, read_data(study)


def _describe_data(folder: ResultsFolder, study: Study, datasets: dict[Data, Dataset]) -> None:
    """Write data.json, once: the shared text, and under `arms` that of each arm that reads another.

    Text is the same where its tokens are, whatever the windows and their order.
    """
    if folder.has_sealed(DATA):
        return
    shared = datasets[study.data]
    described: dict[tuple[str, ...], dict[str, Any]] = {}
    found: dict[str, dict[str, Any]] = {}
    for arm in study.arms:
        dataset = datasets[study.setting(arm).data]
        key = tuple(dataset.digests.values())
        if key != tuple(shared.digests.values()):
            if key not in described:
                described[key] = describe_data(dataset)
            found[arm] = described[key]
    folder.write_data(describe_data(shared) | ({"arms": found} if found else {}))


@dataclass(frozen=True)
class _Followers:
    """Everyone who hears of a run."""

    watch: Watch | None
    live: Live
    sinks: Sinks

    def progress(self, progress: Progress) -> None:
        self.live.note(progress)
        if self.watch:
            self.watch(progress)

    def step(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        self.sinks.progress(arm, seed, t, loss)

    def finished(self, trial: TrialFolder) -> None:
        self.sinks.finished(trial)

    def close(self) -> None:
        self.live.close()
        self.sinks.close()


class _Run:
    """The trials of one call of `run`: what waits, who does what, and how far it is."""

    def __init__(
        self,
        study: Study,
        folder: ResultsFolder,
        pool: Pool,
        followers: _Followers,
    ) -> None:
        self.study = study
        self.folder = folder
        self.pool = pool
        self.followers = followers
        self.needed: list[Trial] = []
        self.steps_done: dict[Trial, int] = {}
        self.progress = Progress(0, 0, 0, 0, 0)
        self._add_needed()

    def train(self, stacks: list[list[Trial]]) -> None:
        """Train the stacks of which some trial is not finished, then what is done once.

        Of a study with looks, the stacks up to the next one; then it is taken. First steps of an
        arm with custom code are trained again, and in the end all arms are timed in turn.
        """
        while True:
            todo = _to_train(self.study, self.folder)
            left = [trials for trials in stacks if not set(todo).isdisjoint(trials)]
            keep_stacks(self.folder.path, left)
            tasks = [Train(trials[0][0], tuple(trials)) for trials in left]
            self.pool.work(tasks, self._doing, self._hear)
            retrain(self.pool, self.study, self.folder, self._say)
            if not take_look(self.study, self.folder, self._say):
                break
            self._add_needed()
        if not self.folder.has_timed(self.needed):
            # Nothing else of ours runs now.
            self._say("timing the arms in turn")
            time_in_turn(self.pool, self.study, self.folder, self.needed)

    def _add_needed(self) -> None:
        """Count in the trials that are needed now, and were not before."""
        begun = begun_stacks(self.folder.path)
        steps = {trial: t for stack, t in begun.items() for trial in stack}
        progress = self.progress
        for arm, seed in needed_trials(self.study, read_looks(self.folder)):
            if (arm, seed) in self.needed:
                continue
            self.needed.append((arm, seed))
            setting = self.study.setting(arm)
            done = setting.tokens
            progress.n_trials += 1
            if self.folder.trial(arm, seed).is_finished:
                progress.n_finished += 1
            else:
                self.steps_done[arm, seed] = steps.get((arm, seed), 0)
                done = self.steps_done[arm, seed] * setting.tokens_per_step
            progress.tokens += setting.tokens
            progress.tokens_done += done
            progress.tokens_before += done

    def _say(self, doing: str) -> None:
        self.progress.doing = self.progress.news = doing
        self.followers.progress(self.progress)

    def _hear(self, task: Train, message: Resumed | Trained | Finished) -> None:
        match message:
            case Resumed():
                self._note_start(message)
            case Trained():
                self._note_progress(message)
            case Finished():
                self._note_finished(task)

    def _note_start(self, message: Resumed) -> None:
        """A stack goes on from step t, which is earlier than thought where it is not usable."""
        if message.words:
            logging.getLogger("paribus").warning("%s", message.words)
        for arm, seed in self._left(message.trials):
            lost = self.steps_done[arm, seed] - message.t
            self.steps_done[arm, seed] = message.t
            tokens = lost * self.study.setting(arm).tokens_per_step
            self.progress.tokens_done -= tokens
            self.progress.tokens_before -= tokens

    def _left(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those of a stack that were not finished when this run began."""
        return [trial for trial in trials if trial in self.steps_done]

    def _note_progress(self, message: Trained) -> None:
        t, losses = message.t, dict(zip(message.trials, message.losses, strict=True))
        for arm, seed in self._left(message.trials):
            loss = losses[arm, seed]
            new_steps = t - self.steps_done[arm, seed]
            self.steps_done[arm, seed] = t
            self.progress.tokens_done += new_steps * self.study.setting(arm).tokens_per_step
            self.progress.running[self.folder.trial(arm, seed).label] = (t, loss)
            self.followers.step(arm, seed, t, loss)
        self.progress.news = ""
        if self.progress.tokens_done >= self.progress.tokens:
            self.progress.doing = "evaluating the last trials"
        self.followers.progress(self.progress)

    def _note_finished(self, task: Train) -> None:
        trials = [self.folder.trial(arm, seed) for arm, seed in self._left(task.trials)]
        for trial in trials:
            self.progress.running.pop(trial.label, None)
        self.progress.n_finished += len(trials)
        if self.progress.n_finished == self.progress.n_trials:
            self.progress.doing = ""
        # One line for a stack: its trials are finished all at once.
        more = f" and {len(trials) - MOST_NAMED} more" if len(trials) > MOST_NAMED else ""
        named = ", ".join(trial.label for trial in trials[:MOST_NAMED])
        self.progress.news = f"{named}{more} finished"
        self.followers.progress(self.progress)
        for trial in trials:
            self.followers.finished(trial)

    def _doing(self, task: Train) -> str:
        labels = (self.folder.trial(arm, seed).label for arm, seed in task.trials)
        return f"on {', '.join(labels)}"
