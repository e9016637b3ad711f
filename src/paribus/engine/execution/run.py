"""Running a study: every trial that is not finished yet, by worker processes."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

from paribus.decision import require_comparison
from paribus.engine.data import Dataset
from paribus.engine.execution.backends import Backend, find_backend
from paribus.engine.execution.backends.jobs import JobBackend
from paribus.engine.execution.budgets import settled_budgets
from paribus.engine.execution.crew import PoolCrew
from paribus.engine.execution.following import Followers, Live, Progress, Sinks, Watch, known_sinks
from paribus.engine.execution.jobs.crew import JobCrew
from paribus.engine.execution.jobs.entry import entered, note_backend
from paribus.engine.execution.start import (
    Beginning,
    Tried,
    as_registered,
    described,
    read_data,
)
from paribus.engine.execution.trial.checkpoints import begun_stacks, keep_stacks
from paribus.engine.execution.trial.heldout_part import judge_on_heldout_part, require_sealed
from paribus.engine.execution.trial.stacks import sharing_arms
from paribus.engine.execution.workers.messages import Finished, Resumed, Train, Trained
from paribus.engine.execution.workers.pool import Pool
from paribus.engine.execution.workers.processes import Device
from paribus.engine.setting import Data
from paribus.errors import require_positive
from paribus.results import (
    Results,
    ResultsFolder,
    load_results,
    needed_trials,
    read_looks,
)
from paribus.results.opened_texts import note, require_fresh
from paribus.results.registration import FILE, registered_retries
from paribus.results.store import DATA
from paribus.study import Study
from paribus.study.trainer import Trial
from paribus.trainers.looking import take_look
from paribus.trainers.run import results_folder
from paribus.trainers.tune import tune

CHECKPOINT_SECONDS = 60.0
MOST_NAMED = 3  # trials of a stack that a line of news names


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
    backend: str | Backend = "local",
    open_test: bool = True,
    progress: bool | None = None,
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
        watch: hears of progress, several times a second at most; first when the study is
            registered, and nothing can refuse it any more.
        log: trackers that follow the run, by name (see `paribus.engine.execution.following`).
        backend: where workers run: a name, your own by its import path (docs/how-to/cluster.md), or
            what `find_backend` gives.
        open_test: evaluate on the sealed test part, where there is one, once all is trained; a
            later call may.
        progress: show a bar, if no `watch` is given; by default in a terminal or a notebook.

    A precision "auto" is settled by the device of the first run, or of `register`, and kept; where
    a later device has to emulate it, one warning of the logger "paribus" says so.

    Returns what `load_results` reads. Raises ParibusError on bad input, before anything is
    written, and where a trial fails; trials that are finished by then are kept.
    """
    from paribus.engine.execution.progress import bar

    require_positive(workers=workers, stack=stack)
    backend = find_backend(backend)
    known_sinks(log)
    options = RunOptions(workers, device, stack, eager, checkpoint_seconds, watch, log, backend)
    folder = results_folder(study, results)
    folder.require_home()
    # The lock is taken first and given back last: no worker of ours outlives it.
    with entered(folder, backend), bar(progress if watch is None else False) as shown:
        options = replace(options, open_test=open_test, watch=watch or shown)
        study, datasets = _opened(study, folder, options)

        def train_round(round_: Study, there: ResultsFolder) -> None:
            """Train a round of tuning trials, in the folder of its own."""
            has_jobs = isinstance(backend, JobBackend)  # which may be writing to it
            with there.lock(swept=not has_jobs):
                _train(round_, there, datasets, options, is_tuning=True)

        if study.tuning is not None:
            if not (folder.path / FILE).is_file():
                study = _register(study, folder, datasets, options)
            note_backend(folder, backend)
            note(folder, is_begun=True)

        while True:
            if study.tuning is not None:
                study = tune(study, folder, train_round)
            if not _train(study, folder, datasets, options):
                break
    return load_results(folder.path)


@dataclass(frozen=True)
class RunOptions:
    """The arguments of a call of `run`."""

    workers: int | None = None
    device: Device = "auto"
    stack: int | None = None
    eager: bool = False
    checkpoint_seconds: float = CHECKPOINT_SECONDS
    watch: Watch | None = None
    log: Sequence[str] = ()
    backend: str | Backend = "local"
    open_test: bool = True
    tried: Tried = field(default_factory=set)

    @contextlib.contextmanager
    def crew(self, study: Study, folder: ResultsFolder) -> Iterator[PoolCrew | JobCrew]:
        """Yield who works for `study`, while the lock of its folder is held.

        Everything is done, or begun again, whatever happened before.
        """
        backend = find_backend(self.backend)
        if isinstance(backend, JobBackend):
            given = {
                "device": self.device,
                "checkpoint_seconds": self.checkpoint_seconds,
                "eager": self.eager,
                "workers": self.workers,
                "stack": self.stack,
            }
            with JobCrew(backend, study, folder, given) as crew:
                yield crew
            return
        with Pool(
            study,
            folder.path,
            device=self.device,
            checkpoint_seconds=self.checkpoint_seconds,
            eager=self.eager,
            backend=backend,
            retries=registered_retries(folder),
        ) as pool:
            yield PoolCrew(pool, self.workers, self.stack)


def _train(
    study: Study,
    folder: ResultsFolder,
    datasets: dict[Data, Dataset],
    options: RunOptions,
    *,
    is_tuning: bool = False,
) -> bool:
    """Train what is not finished of `study`; unless it tunes another, describe and time it.

    Returns whether seeds that a look added are to be tuned first; nothing is timed before.
    """
    todo = _to_train(study, folder)
    with options.crew(study, folder) as crew:
        study, stacks = crew.start(Beginning(folder, study, datasets, len(todo), options.tried))
        followers = Followers(options.watch, Live(folder), Sinks(options.log, study, folder.path))
        # The text is described while the workers train.
        if not is_tuning:
            note_backend(folder, find_backend(options.backend))
            note(folder, is_begun=True)
        with contextlib.closing(followers), ThreadPoolExecutor(1) as aside:
            trials = _Run(study, folder, crew, followers)
            followers.progress(trials.progress)  # nothing can refuse the study any more
            if is_tuning:
                trials.train(stacks)
            else:
                described = aside.submit(_describe_data, folder, study, datasets)
                if not trials.train(stacks):
                    described.result()
                    return True
                if options.open_test:
                    trials.judge(datasets[study.data])
                trials.time()
                described.result()
    keep_stacks(folder.path, [])
    return False


def register(
    study: Study,
    results: str | os.PathLike[str] | None = None,
    *,
    device: Device = "auto",
    eager: bool = False,
    backend: str | Backend = "local",
) -> Path:
    """Fix what would count before any run: write `registration.json`; returns its path.

    Every arm is tried in a dry run of one step. Raises ParibusError where something else is
    registered there already.
    """
    options = RunOptions(device=device, eager=eager, backend=find_backend(backend))
    folder = results_folder(study, results)
    folder.require_home()
    with entered(folder, options.backend):
        study, datasets = _opened(study, folder, options)
        _register(study, folder, datasets, options)
        note(folder)
    return folder.path / FILE


def _register(
    study: Study,
    folder: ResultsFolder,
    datasets: dict[Data, Dataset],
    options: RunOptions,
) -> Study:
    """Try a step of every arm and register `study`; returns it with its precision settled."""
    n_tried = len(sharing_arms(study))
    with replace(options, stack=None).crew(study, folder) as crew:
        begins = Beginning(folder, study, datasets, n_tried, options.tried, briefly=True)
        return crew.start(begins)[0]


def _to_train(study: Study, folder: ResultsFolder) -> list[Trial]:
    """Return the trials that are needed up to the next look, and not finished."""
    needed = needed_trials(study, read_looks(folder))
    return [(arm, seed) for arm, seed in needed if not folder.trial(arm, seed).is_finished]


def _opened(
    study: Study, folder: ResultsFolder, options: RunOptions
) -> tuple[Study, dict[Data, Dataset]]:
    """Return the study as it is registered in its folder, and its text by what cuts it."""
    study = settled_budgets(study)
    study = as_registered(study, folder)
    folder.require_same(study)
    require_comparison(study)
    require_sealed(study, folder)
    datasets = read_data(study)
    data = {arm: datasets[study.setting(arm).data].record for arm in study.arms}
    require_fresh(study, {"data": data}, folder)
    return study, datasets


def _describe_data(folder: ResultsFolder, study: Study, datasets: dict[Data, Dataset]) -> None:
    """Write data.json, once."""
    if not folder.has_sealed(DATA):
        folder.write_data(described(study, datasets))


class _Run:
    """The trials of one call of `run`: what waits, who does what, and how far it is."""

    def __init__(
        self,
        study: Study,
        folder: ResultsFolder,
        crew: PoolCrew | JobCrew,
        followers: Followers,
    ) -> None:
        self.study = study
        self.folder = folder
        self.crew = crew
        self.followers = followers
        self.needed: list[Trial] = []
        self.steps_done: dict[Trial, int] = {}
        self.progress = Progress(0, 0, 0, 0, 0)
        self._add_needed()

    def train(self, stacks: list[list[Trial]]) -> bool:
        """Train the stacks of which some trial is not finished; return whether that was all.

        Of a study with looks, the stacks up to the next one; then it is taken. It is not all where
        seeds after it are to be tuned first. First steps of an arm with custom code are trained
        again.
        """
        while True:
            todo = set(_to_train(self.study, self.folder))
            left = [trials for trials in stacks if not todo.isdisjoint(trials)]
            keep_stacks(self.folder.path, left)
            tasks = [Train(trials[0][0], tuple(trials)) for trials in left]
            self.crew.work(tasks, self._hear)
            self.crew.retrain(self.study, self.folder, self._say)
            if not take_look(self.study, self.folder, self._say):
                return True
            if self.study.tunes_anew:
                return False
            self._add_needed()

    def judge(self, dataset: Dataset) -> None:
        """Evaluate all on the sealed test part, where there is one: what the verdict is of."""
        judge_on_heldout_part(self.crew, self.study, self.folder, dataset, self.needed, self._say)

    def time(self) -> None:
        """Time all arms in turn, once."""
        if not self.folder.has_timed(self.needed):
            # Nothing else of ours runs now.
            self._say("timing the arms in turn")
            self.crew.time(self.study, self.folder, self.needed)

    def _add_needed(self) -> None:
        """Count in the trials that are needed now, and were not before."""
        begun = begun_stacks(self.folder.path)
        steps = {trial: t for stack, t in begun.items() for trial in stack}
        progress, there = self.progress, set(self.needed)
        for arm, seed in needed_trials(self.study, read_looks(self.folder)):
            if (arm, seed) in there:
                continue
            self.needed.append((arm, seed))
            setting = self.study.setting(arm)
            done = setting.tokens
            progress.n_trials += 1
            if self.folder.trial(arm, seed).is_finished:
                progress.n_finished += 1
            else:
                self.steps_done[arm, seed] = steps.get((arm, seed), 0)
                done = setting.tokens_before(self.steps_done[arm, seed])
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
        """Note that a stack goes on from step t, earlier than thought where that is not usable."""
        if message.words:
            logging.getLogger("paribus").warning("%s", message.words)
        for arm, seed in self._left(message.trials):
            before = self.study.setting(arm).tokens_before
            tokens = before(self.steps_done[arm, seed]) - before(message.t)
            self.steps_done[arm, seed] = message.t
            self.progress.tokens_done -= tokens
            self.progress.tokens_before -= tokens

    def _left(self, trials: Iterable[Trial]) -> list[Trial]:
        """Those of a stack that were not finished when this run began."""
        return [trial for trial in trials if trial in self.steps_done]

    def _note_progress(self, message: Trained) -> None:
        t, losses = message.t, dict(zip(message.trials, message.losses, strict=True))
        for arm, seed in self._left(message.trials):
            loss = losses[arm, seed]
            self._account(arm, seed, t)
            self.progress.running[self.folder.trial(arm, seed).label] = (t, loss)
            self.followers.sinks.progress(arm, seed, t, loss)
        self.progress.news = ""
        if self.progress.tokens_done >= self.progress.tokens:
            self.progress.doing = "evaluating the last trials"
        self.followers.progress(self.progress)

    def _account(self, arm: str, seed: int, t: int) -> None:
        """Note that a trial has done t steps."""
        before = self.study.setting(arm).tokens_before
        self.progress.tokens_done += before(t) - before(self.steps_done[arm, seed])
        self.steps_done[arm, seed] = t

    def _note_finished(self, task: Train) -> None:
        trials = [self.folder.trial(arm, seed) for arm, seed in self._left(task.trials)]
        for trial in trials:
            self._account(trial.arm, trial.seed, self.study.setting(trial.arm).iterations)
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
            self.followers.sinks.finished(trial)
