"""The work of a run, by jobs: submitted in arrays, followed by files, found again by later calls.

Whoever follows may die at any moment: jobs go on, and the next `paribus run` finds them by the
folder that they share. What is to be done is always what the results folder lacks, less what a
job that is queued or running has been given; so nothing is submitted twice. A job whose end
nobody caused counts as a death of every trial it was in the middle of, and a trial that died too
often ends the run. A job that was asked to leave (its time was over, or another needed the node)
does not count, as long as it had got anywhere.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from paribus.digests import digest
from paribus.engine.execution.backends.jobs import JobBackend, JobState
from paribus.engine.execution.crew import Say
from paribus.engine.execution.jobs.folder import Batch, JobsFolder, Kind, Order, tail
from paribus.engine.execution.jobs.job import software
from paribus.engine.execution.jobs.standing import end_jobs
from paribus.engine.execution.start import Beginning
from paribus.engine.execution.workers.messages import (
    EvaluateHeldoutPart,
    Finished,
    Resumed,
    Train,
    Trained,
    decode,
    encode,
)
from paribus.engine.execution.workers.pool import Asked
from paribus.engine.setting import with_precision
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.results.heldout_part import is_tested
from paribus.results.live import Followed, Watch
from paribus.results.registration import registered_retries, repetitions
from paribus.search_path import own_folders, shared_folders
from paribus.study import Study
from paribus.study.study import substance
from paribus.study.trainer import COMMAND, Trial
from paribus.trainers.command.sources import COPIES, remove_copies

LOOK_SECONDS = 0.5  # between two looks at what jobs have told
ASK_SECONDS = 2.0  # between two questions to the scheduler, at least
WAIT_SECONDS = 10.0  # that a job may wait before that is told
UNKNOWN_SECONDS = 30.0  # a scheduler may not know yet what it was just given
SILENT_SECONDS = 600.0
LEAVE_SECONDS = 15.0  # for jobs that are done to leave by themselves
END_SECONDS = 300.0  # and then for the scheduler to end them
HELDOUT_JOBS = 2  # evaluating takes little of what training takes


class UnansweredError(ParibusError):
    """A scheduler that does not answer; jobs may be well."""


class Scheduler:
    """A backend that is asked at most once in ASK_SECONDS, whoever asks.

    One that has answered before may fail to for SILENT_SECONDS, as those do that are restarted.
    """

    def __init__(self, backend: JobBackend) -> None:
        self.backend = backend
        self._asked = -ASK_SECONDS
        self._answered: float | None = None
        self._is_told = False

    def states(
        self, names: Collection[str], *, waits: bool = False
    ) -> Mapping[tuple[str, int], JobState] | None:
        """Return what the scheduler says; None where it was asked just now, unless this `waits`."""
        wait = self._asked + ASK_SECONDS - time.monotonic()
        if wait > 0 and not waits:
            return None
        time.sleep(max(wait, 0))
        self._asked = time.monotonic()
        if not names:
            return {}
        try:
            found = self.backend.states(names)
        except ParibusError as error:
            silent = time.monotonic() - (self._answered or -SILENT_SECONDS)
            if silent >= SILENT_SECONDS:
                raise UnansweredError(str(error)) from None
            if not self._is_told:
                logging.getLogger("paribus").warning("%s; it is asked again", error)
            self._is_told = True
            return None
        self._answered, self._is_told = time.monotonic(), False
        return found


@dataclass
class _Followed:
    """A job that is followed.

    Attributes:
        tasks: its lines.
        begun: those that it is in the middle of, as far as it has told: with the last step.
        moved: whether it has trained a step, or finished something, in this attempt.
    """

    batch: Batch
    number: int
    tasks: list[str]
    read: int = 0
    begun: dict[str, int] = field(default_factory=dict)
    moved: bool = False
    was_held: bool = False
    is_over: bool = False
    is_old: bool = False  # an earlier call has submitted it, and it was not seen to be alive yet
    id: str = ""

    @property
    def key(self) -> tuple[str, int]:
        return self.batch.order.name, self.number


class _Waits:
    """Says once why jobs wait, in the scheduler's words, when they do for WAIT_SECONDS."""

    def __init__(self) -> None:
        self._since: dict[str, float] = {}
        self._told: set[str] = set()

    def tell(self, states: Iterable[JobState | None]) -> None:
        """Take what the scheduler says of every job now."""
        waiting = Counter(
            state.words
            for state in states
            if state and state.phase in ("queued", "requeued") and not state.is_held
        )
        now = time.monotonic()
        self._since = {words: self._since.get(words, now) for words in waiting}
        for words, n in waiting.items():
            if words not in self._told and now - self._since[words] >= WAIT_SECONDS:
                self._told.add(words)
                jobs = "1 job waits" if n == 1 else f"{n} jobs wait"
                logging.getLogger("paribus").warning("%s (%s)", jobs, words)


class JobCrew:
    """Jobs of one run; as a context manager, it ends them where the run fails.

    After Ctrl-C, or the death of this process, they go on.
    """

    def __init__(
        self,
        backend: JobBackend,
        study: Study,
        folder: ResultsFolder,
        settings: dict[str, Any],
    ) -> None:
        self._backend, self._scheduler = backend, Scheduler(backend)
        self._study, self._folder, self._settings = study, folder, settings
        self._jobs = JobsFolder.of(folder.path)
        self._options = backend.options.model_dump(mode="json")
        self._token = self._jobs.open(backend.name, self._options)
        registered = registered_retries(folder)
        self.retries = backend.retries if registered is None else registered
        self._software = software(study)
        by_itself = backend.workers(_devices(study))  # refuses what does not fit, whoever asks
        self._workers: int | None = settings["workers"] or by_itself

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None
    ) -> None:
        if kind is KeyboardInterrupt:
            if self._jobs.live():  # else somebody has cancelled them
                logging.getLogger("paribus").warning(
                    "jobs go on without this command; `paribus cancel %s` ends them",
                    self._folder.path,
                )
        elif kind is not None and kind is not UnansweredError:
            with contextlib.suppress(ParibusError):
                end_jobs(self._backend, self._jobs)

    # What a run asks for

    def start(self, begins: Beginning) -> tuple[Study, list[list[Trial]]]:
        """Let a job try a step of every arm and register the study, or take what one has found."""
        settings = {
            "n_trials": begins.n_trials,
            "n_jobs": self._backend.n_jobs(max(begins.n_trials, 1), self._workers),
            "tried": sorted(begins.tried),
            "briefly": begins.briefly,
        }
        found: dict[str, Any] = {}
        self._follow(
            "start", [""], lambda _: bool(found), lambda _, about: found.update(about), settings
        )
        begins.tried.update((one, size) for one, size in found["tried"])
        self._study = with_precision(begins.study, found["precision"])
        return self._study, [[(arm, seed) for arm, seed in one] for one in found["stacks"]]

    def work(
        self,
        tasks: Iterable[Asked],
        hear: Callable[[Asked, Any], None] = lambda task, message: None,
    ) -> None:
        """Do tasks, in as many jobs as the backend packs them into."""
        by_line = {encode(task): task for task in tasks}

        def heard(line: str, message: Any) -> None:
            if line in by_line:
                hear(by_line[line], message)

        self._follow("work", list(by_line), lambda line: self._is_done(by_line[line]), heard, {})

    def retrain(self, study: Study, folder: ResultsFolder, say: Say) -> None:
        """Let a job train again what is registered to be and was not yet."""
        done = folder.read_repeated(study.arms)
        if repetitions(folder).keys() <= done.keys():
            return
        is_done = [False]
        say("training again first steps of arms with custom code")
        self._follow("retrain", [""], lambda _: is_done[0], lambda *_: None, {}, is_done)

    def time(self, study: Study, folder: ResultsFolder, trials: Collection[Trial]) -> None:
        """Let a job time all arms in turn."""
        needed = [list(trial) for trial in trials]
        is_timed = lambda _: folder.has_timed(trials)  # noqa: E731
        self._follow("time", [""], is_timed, lambda *_: None, {"trials": needed})

    # How it is done

    def _is_done(self, task: Any) -> bool:
        match task:
            case Train():
                return all(self._folder.trial(arm, seed).is_finished for arm, seed in task.trials)
            case EvaluateHeldoutPart():
                return is_tested(self._folder, self._folder.trial(task.arm, task.seed))
        raise ValueError(f"jobs do no {task}")

    def _follow(
        self,
        kind: Kind,
        lines: list[str],
        is_done: Callable[[str], bool],
        hear: Callable[[str, Any], None],
        settings: dict[str, Any],
        done_at_end: list[bool] | None = None,
    ) -> None:
        """Return once every line is done, by jobs that are there or by new ones.

        What a job tells goes to `hear`: (its task, message), or of a "start" what it found. Where
        only the end of a job tells that it is done, `done_at_end` is set.
        """
        waiting = dict.fromkeys(lines)
        followed = self._known(kind, lines, settings)
        deaths: Counter[str] = Counter()
        unknown_since: dict[tuple[str, int], float] = {}
        waits = _Waits()

        def listen() -> None:
            for job in followed:
                for line, message in self._read(job, hear):
                    if line not in waiting:
                        continue
                    if not isinstance(message, Finished):
                        hear(line, message)
                    elif is_done(line):
                        del waiting[line]
                        hear(line, message)

        for job in followed:  # what was told to an earlier call is known by the results folder
            self._read(job, hear if kind == "start" else None)
        while True:
            listen()
            states = self._scheduler.states({job.batch.order.name for job in followed})
            if states is not None:
                for job in followed:
                    if not job.is_over:
                        self._look(job, states, unknown_since, deaths, done_at_end)
                waits.tell(states.get(job.key) for job in followed if not job.is_over)
                listen()
            if states is not None or kind == "start":
                for line in [line for line in waiting if is_done(line)]:
                    del waiting[line]
                    if line:
                        hear(line, Finished())
            if not waiting:
                return
            given = {line for job in followed if not job.is_over for line in job.tasks}
            if left := [line for line in waiting if line not in given]:
                followed += self._submit(kind, left, settings)
            time.sleep(LOOK_SECONDS)

    def _known(
        self, kind: Kind, lines: Collection[str], settings: dict[str, Any]
    ) -> list[_Followed]:
        """Return jobs of this kind that earlier calls have submitted."""
        here = str(self._folder.path.absolute())
        mine = [b for b in self._jobs.live() if (b.order.kind, b.order.results) == (kind, here)]
        for batch in mine:
            if not self._is_same(batch, kind, lines, settings) or self._waits_otherwise(batch):
                batch.close()
                batch.revoke_all()
                self._backend.cancel([batch.order.name])
        mine = [batch for batch in mine if not batch.is_closed]
        lost = [batch for batch in mine if not batch.is_submitted]
        if lost:  # who submitted them died on the way: the scheduler knows whether it had them
            names = [batch.order.name for batch in lost]
            time.sleep(UNKNOWN_SECONDS / 6)
            known = {name for name, _ in self._scheduler.states(names, waits=True) or {}}
            for batch in lost:
                batch.note_submitted() if batch.order.name in known else batch.close()
        found = [job for batch in mine if not batch.is_closed for job in self._jobs_of(batch)]
        for job in found:
            job.is_old = True
        return found

    def _is_same(
        self, batch: Batch, kind: Kind, lines: Collection[str], settings: dict[str, Any]
    ) -> bool:
        """Return whether a submission does what is asked now, and nothing else: by another size of
        stacks, or with more seeds, trials come together otherwise."""
        if kind != "work":
            return batch.order.settings["key"] == self._key(settings)
        tasks = [line for part in batch.order.jobs for line in part]
        return all(line in lines or self._is_done(decode(line)) for line in tasks)

    def _waits_otherwise(self, batch: Batch) -> bool:
        """Tell if a submission has other options than are given now, and none of it has begun."""
        given, now = batch.order.settings.get("options"), self._options
        if given is None or given == now:
            return False
        parts = (f"{k} = {given.get(k)}" for k in now if given.get(k) != now[k])
        options, log = ", ".join(parts), logging.getLogger("paribus").warning
        states = self._scheduler.states([batch.order.name], waits=True) or {}
        begun = any(batch.told(number, 0)[0] for number in range(len(batch.order.jobs)))
        if begun or not states or any(state.phase != "queued" for state in states.values()):
            log("jobs that were submitted with %s go on with it", options)
            return False
        log("jobs that waited with %s are submitted anew", options)
        return True

    def _key(self, settings: dict[str, Any]) -> str:
        """Return what tells one order of its kind from another."""
        dump = substance(self._study.model_dump(mode="json"))
        for section in ("training", "evaluation"):  # settled by the first job
            dump[section] = {k: v for k, v in dump.get(section, {}).items() if k != "precision"}
        return digest([dump, self._settings, settings, self._software])

    def _jobs_of(self, batch: Batch) -> list[_Followed]:
        return [
            _Followed(batch, k, lines or [""])
            for k, lines in enumerate(batch.order.jobs)
            if not batch.is_revoked(k)
        ]

    def _submit(self, kind: Kind, lines: list[str], settings: dict[str, Any]) -> list[_Followed]:
        n = self._backend.n_jobs(len(lines), self._workers)
        if kind != "work":
            parts: list[list[str]] = [[]]
        else:
            if isinstance(decode(lines[0]), EvaluateHeldoutPart):
                n = min(n, HELDOUT_JOBS)
            # In the order of seeds, so that pairs are whole.
            parts = [lines[k::n] for k in range(n)]
        study = self._study
        order = Order(
            name="",
            kind=kind,
            study=study.model_dump(mode="json"),
            folder=str(study.folder.absolute()),
            results=str(self._folder.path.absolute()),
            jobs=parts,
            settings=self._settings
            | {"retries": self.retries, "workers": self._workers}
            | {"options": self._options}
            | {"iterations": {arm: study.format.steps(study, arm) for arm in study.arms}}
            | settings
            | {"key": self._key(settings)},
            software=self._software,
            cwd=os.getcwd(),
            search=own_folders(),
        )
        batch = self._jobs.new(order, self._token)
        commands = [command(batch, k) for k in range(len(parts))]
        try:
            self._backend.submit(batch.order.name, commands, batch.scheduler)
        except BaseException:
            batch.close()
            raise
        batch.note_submitted()
        return self._jobs_of(batch)

    def _read(
        self, job: _Followed, hear: Callable[[str, Any], None] | None
    ) -> list[tuple[str, Any]]:
        """Return what a job has told since it was asked last: (its task, message)."""
        told, job.read = job.batch.told(job.number, job.read)
        found: list[tuple[str, Any]] = []
        for about in told:
            if "warn" in about and hear is not None:
                logging.getLogger("paribus").warning("%s", about["warn"])
            elif "begun" in about:
                job.begun, job.moved = {}, False
            elif "result" in about and hear is not None:
                hear("", about["result"])
            elif "message" in about:
                line, message = about["task"], decode(about["message"])
                match message:
                    case Resumed():
                        job.begun[line] = message.t
                    case Trained():
                        job.moved = job.moved or message.t > job.begun.get(line, message.t)
                    case Finished():
                        job.begun.pop(line, None)
                        job.moved = True
                found.append((line, message))
        return found

    def _look(
        self,
        job: _Followed,
        states: Mapping[tuple[str, int], JobState],
        unknown_since: dict[tuple[str, int], float],
        deaths: Counter[str],
        done_at_end: list[bool] | None,
    ) -> None:
        """See whether a job is over, and what follows. Raises ParibusError where the run ends."""
        how, state = job.batch.end(job.number), states.get(job.key)
        job.id = state.id if state else job.id
        if how and how["how"] == "refused" and not job.is_old:
            raise ParibusError(str(how["words"]))
        if how and how["how"] == "done":
            job.is_over = True
            if done_at_end is not None:
                done_at_end[0] = True
            self._fail_unfinished(job, deaths)
            return
        if state is not None and state.phase != "ended":
            unknown_since.pop(job.key, None)
            job.is_old = False
            if state.is_held and not job.was_held:
                logging.getLogger("paribus").warning(
                    "job %s is held (%s): it begins when it is released", job.id, state.words
                )
            job.was_held = state.is_held
            return
        since = unknown_since.setdefault(job.key, time.monotonic())
        if time.monotonic() - since < (UNKNOWN_SECONDS if state is None else ASK_SECONDS):
            return  # its last words may be on their way
        job.batch.revoke(job.number)
        job.is_over = True
        if job.is_old:  # it ended, in whatever way, while nobody looked
            return
        named = f"job {job.id or job.batch.order.name}"
        said = state.words if state else "is gone from the queue"
        if state is not None and state.is_cancelled:
            raise ParibusError(f"{named} was cancelled; run again to continue")
        if how and how["how"] == "stopped" and job.moved:
            logging.getLogger("paribus").warning(
                "%s ended (%s); its trials go on in another", named, said
            )
            return
        last = next(tail(self._backend.log(job.batch.scheduler, job.number)), "")
        where = ""
        if not job.read:
            where = f"; it wrote nothing to {job.batch.path}: does every machine see that folder?"
        for line in job.begun or job.tasks:
            deaths[line] += 1
            if deaths[line] > self.retries:
                about = decode(line).doing if line else "before any trial"
                raise ParibusError(
                    f"{named} ended ({said}) {about}{f': {last}' if last else ''}{where}; finished "
                    "trials are kept: run again to continue"
                )
        logging.getLogger("paribus").warning(
            "%s ended (%s)%s; its trials are begun again", named, said, f": {last}" if last else ""
        )

    def _fail_unfinished(self, job: _Followed, deaths: Counter[str]) -> None:
        """Count what a job left undone that says it is done: it is not submitted for ever."""
        if job.batch.order.kind == "work":
            for line in job.tasks:
                if line and not self._is_done(task := decode(line)):
                    deaths[line] += 1
                    if deaths[line] > self.retries:
                        raise ParibusError(
                            f"job {job.id} says that it is done {task.doing}, and "
                            f"{self._folder.path} does not show it; does every machine see it?"
                        )


def command(batch: Batch, number: int) -> list[str]:
    """Return the command line of a job."""
    searched = os.pathsep.join(shared_folders())
    module = "paribus.engine.execution.jobs.job"
    return [
        *("env", f"PYTHONPATH={searched}", sys.executable, "-P", "-m", module),
        *(str(batch.path.absolute()), str(number)),
    ]


def leave(backend: JobBackend, jobs: JobsFolder) -> None:
    """Wait until all jobs of a finished run have left, and remove what they shared.

    A job that does not leave is ended.
    """
    batches, scheduler, began = jobs.batches(), Scheduler(backend), time.monotonic()
    for batch in batches:
        batch.close()
    names = [batch.order.name for batch in batches]
    is_cancelled = False
    while (taken := time.monotonic() - began) < END_SECONDS:
        states = scheduler.states(names, waits=True)
        if states is not None and all(state.phase == "ended" for state in states.values()):
            jobs.remove()
            return
        if taken > LEAVE_SECONDS and not is_cancelled:  # such as one that waits to be begun again
            backend.cancel(names)
            is_cancelled = True


def train_by_jobs(
    backend: JobBackend,
    study: Study,
    folder: ResultsFolder,
    trials: Iterable[Trial],
    *,
    workers: int | None = None,
    watch: Watch | None = None,
) -> None:
    """Let jobs train trials by the study's own trainer.

    One after the other in each; of programs, `workers` at the same time, or as many as have GPUs of
    their own where the study says how many each takes.
    """
    if workers is None and not (study.trainer == COMMAND and study.program.gpus):
        workers = backend.options.workers or 1
    with (
        Followed(study, folder, watch) as followed,
        JobCrew(backend, study, folder, {"workers": workers}) as crew,
    ):

        def hear(task: Train, message: Any) -> None:
            (trial,) = task.trials
            match message:
                case Resumed():
                    followed.running(trial, 0, None)
                case Trained(t=t, losses=[value]):
                    followed.running(trial, t, value)
                case Finished():
                    followed.finished(trial)

        crew.work([Train(arm, ((arm, seed),)) for arm, seed in trials], hear)
    remove_copies(folder.path / COPIES)  # what a job has left that was killed


def _devices(study: Study) -> int:
    """Return how many devices a trial takes."""
    if study.trainer == COMMAND:
        return study.program.gpus or 1
    return getattr(getattr(study, "resources", None), "devices_per_trial", None) or 1
