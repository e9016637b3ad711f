"""The trainer `command`: starts a program for each trial, on workers, and reads what it gave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shlex
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from pkgutil import resolve_name
from queue import Queue
from types import MappingProxyType
from typing import Any

from paribus.digests import canonical_json
from paribus.errors import ParibusError, nearest, require_positive
from paribus.files import remove_folder
from paribus.numbers import some
from paribus.programs.values import NUMBER, Finder
from paribus.programs.worker import HELLO
from paribus.results import ResultsFolder, read_registration
from paribus.results.live import Followed, Watch
from paribus.results.record_format import TRAINER
from paribus.results.store import OUTPUTS
from paribus.schema import stamped
from paribus.study import Study
from paribus.study.trainer import Declaration, Trial, TrialRecord
from paribus.trainers.command.records import (
    DATA,
    DEVICE,
    INITIAL,
    LOG,
    MACHINE,
    REPORTED,
    SEED,
    SOFTWARE,
    STEPS,
    TRAIN_LOSS,
    ask_about_seed,
    metrics_of,
)
from paribus.trainers.command.reported import Reported, read_reported
from paribus.trainers.command.scores import OUT, files_read, found_of
from paribus.trainers.command.sections import (
    CommandSetting,
    MetricSource,
    put,
    require_known,
    require_put,
)
from paribus.trainers.command.sources import COPIES, Source, place, remove_copies, source_of
from paribus.trial import FOLDER as TRIAL_FOLDER
from paribus.trial import SEED as TRIAL_SEED
from paribus.untrusted_io import (
    CODE_BYTES,
    MIB,
    RECORD_BYTES,
    is_regular,
    read_bytes,
    read_text,
)

Hear = Callable[[Trial, int, float | None], None]
BACKENDS = "paribus.engine.execution.backends"
LOG_ = logging.getLogger("paribus")
SHOWN_LINES = 3
LINES = "*"  # what was told of all arms
POLL_SECONDS = 0.5
CHANGED_SHOWN = 3
# By which keys an arm declares that it differs in a control.
KEYS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "source": ("program.ref", "program.patch", "program.folder", "program.command"),
        "command": ("set.", "program."),
        "configuration": ("set.", "program.config"),
        SOFTWARE: ("program.command", "program.env", "program.folder"),
        DEVICE: (),
        STEPS: (),
        SEED: (),
        DATA: (),
        INITIAL: ("program.ref", "program.patch", "program.folder", "program.command"),
    }
)


@dataclass
class Job:
    """A trial that is under way.

    Attributes:
        home: its folder in `runs`, with `out`, which is `{folder}`.
        attempts: how those before ended.
        is_kept: whether its folder stays when it fails; that of `paribus check` does not.
    """

    arm: str
    seed: int
    setting: CommandSetting
    home: Path
    command: tuple[str, ...] = ()
    config: str = ""
    controls: dict[str, str] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)
    is_kept: bool = True

    @property
    def printed(self) -> str:
        """Where all that it printed is, for an error; empty where that is removed."""
        return f"; all it printed is in {self.home / LOG}" if self.is_kept else ""

    @property
    def label(self) -> str:
        """`<arm>/seed-<seed>`."""
        return f"{self.arm}/seed-{self.seed}"


class Command:
    """Runs the program that a study names.

    Args:
        home: the results folder of the study, where copies of repositories are kept meanwhile.
        workers: how many trials run at the same time; by default one, or where `trainer.gpus` is
            stated as many as have their own.
        backend: where workers run, as of our own engine.
        watch: hears of progress.
        part: of a job that runs a part of the trials: its name. How far the run is, whoever
            follows the job tells.
        hear: is given, by a job, each trial that begins or has printed something: with the step
            and the value that it printed last.
    """

    def __init__(
        self,
        home: Path,
        *,
        workers: int | None = None,
        backend: Any = "local",
        watch: Watch | None = None,
        part: str = "",
        hear: Hear = lambda trial, step, value: None,
    ) -> None:
        require_positive(workers=workers)
        self._home = home.absolute()
        self._workers, self._watch, self._part, self._hear = workers, watch, part, hear
        # Jobs do not share copies: one may be remaking what another's program stands in.
        self._copies = self._home / COPIES / part
        self._backend = resolve_name(f"{BACKENDS}:find_backend")(backend)
        self._folder = ResultsFolder(home)
        self._sources: dict[str, Source] = {}
        self._scores: dict[str, dict[int, float]] = {}
        self._asked: set[str] = set()
        self._told: set[tuple[str, str]] = set()

    def into(self, folder: ResultsFolder) -> Command:
        """Return the same, for the trials of `folder`: a study's, or of a round of its tuning."""
        self._folder = folder
        self._scores, self._asked = {}, set()
        return self

    def declare(self, study: Study) -> Declaration:
        """Return what its trials measure and hold equal. Raises ParibusError on bad sections."""
        templates = {arm: self._template(study, arm) for arm in study.arms}
        settings = {arm: study.setting(arm) for arm in study.arms}
        for arm, setting in settings.items():
            require_known(arm, setting, templates[arm])
        require_put(settings, templates)
        sources = {arm: self._source(study, arm) for arm in study.arms}
        self._require_programs(study, sources)
        if not self._part:
            _tell_uncommitted(sources)
        declares = study.program.declares
        controls = {name: (*keys, *declares.get(name, ())) for name, keys in KEYS.items()}
        if not any(setting.program.config for setting in settings.values()):
            del controls["configuration"]
        metrics = tuple(one.declared(name) for name, one in metrics_of(study).items())
        about = {"program": {arm: source.about for arm, source in sources.items()}}
        digests = {
            arm: {key: hashlib.sha256(text.encode()).hexdigest() for key, text in one.items()}
            for arm, one in templates.items()
            if one
        }
        if digests:
            about["templates"] = digests
        return Declaration(metrics, controls, must_be_finite=study.primary.metric, about=about)

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Run the program for each of `trials`, and yield the record of each when it has ended."""
        jobs = [self._job(study, arm, seed) for arm, seed in trials]
        for job in {job.arm: job for job in jobs}.values():  # a patch fails before any trial
            if (source := self._source(study, job.arm)).is_copied:
                place(study, job.arm, job.setting, source, self._copies)
        followed = None if self._part else Followed(study, self._folder, self._watch)
        with followed or contextlib.nullcontext(), self._pool(study, len(jobs)) as pool:

            def heard(job: Job, latest: Mapping[str, Any]) -> None:
                at = _latest(latest, study.primary.metric)
                self._hear((job.arm, job.seed), *at)
                if followed is not None:
                    followed.running((job.arm, job.seed), *at)

            def task(job: Job) -> dict[str, Any]:
                heard(job, {})
                return self._task(study, job)

            for job, ended in pool.work(jobs, task, heard):
                record = self._ended(study, job, ended)
                if record is None:  # it is tried again
                    pool.again(job)
                    continue
                yield (job.arm, job.seed), record
                _tidy(job)
                if followed is not None:
                    followed.finished((job.arm, job.seed))
                self._ask(study, job, record.scores[study.primary.metric])
        is_whole = all(self._folder.trial(*trial).is_finished for trial in study.trials)
        if self._part or (is_whole and self._folder.path.absolute() == self._home):
            remove_copies(self._copies)

    def try_briefly(self, study: Study, seconds: float | None = None) -> dict[str, str]:
        """Run each arm's first seed for some seconds, into folders that are not kept.

        Returns by arm what was seen. Raises ParibusError where a program fails, or ended and a
        metric is not found.
        """
        limit = study.program.check_seconds if seconds is None else seconds
        if not limit:
            return dict.fromkeys(study.arms, "not started (trainer.check is 0)")
        told = {}
        jobs = [self._job(study, arm, study.seeds[0]) for arm in study.arms]
        for job in jobs:
            job.is_kept = False
        with self._pool(study, len(jobs)) as pool:
            task = lambda job: self._task(study, job) | {"timeout": limit}  # noqa: E731
            for job, ended in pool.work(jobs, task, lambda job, latest: None):
                if ended.get("why") == "timeout":
                    seen = [name for name, one in ended["found"].items() if one["n"]]
                    names = f"{', '.join(seen)} seen" if seen else "no metric seen yet"
                    told[job.arm] = f"still running after {limit:g} s, and ended; {names}"
                    continue
                self._require_success(job, ended)
                record = self._record(study, job, ended)
                scores = ", ".join(f"{name} {value:g}" for name, value in record.scores.items())
                told[job.arm] = f"ended by itself after {ended['seconds']:.3g} s; {scores}"
        remove_copies(self._copies)
        return {arm: told[arm] for arm in study.arms}

    def _pool(self, study: Study, n_jobs: int) -> Pool:
        return Pool(self._backend, self._workers, study.program.gpus, n_jobs)

    def _template(self, study: Study, arm: str) -> dict[str, str]:
        """Return the template of an arm's configuration, by its key; none where it has none."""
        name = study.setting(arm).program.config
        if not name:
            return {}
        path = study.folder / name
        missing = f"trainer.config: no file {path}; it is relative to the study file"
        return {"config": read_text(path, CODE_BYTES, missing=missing)}

    def _source(self, study: Study, arm: str) -> Source:
        setting = study.setting(arm)
        program = setting.program
        key = json.dumps([program.folder, program.ref, program.patch, program.command])
        if key not in self._sources:
            at = self._registered_commit(arm) if program.ref else ""
            self._sources[key] = source_of(study, arm, setting, at)
        return self._sources[key]

    def _registered_commit(self, arm: str) -> str:
        """Return the commit that was registered for an arm; a branch may have moved since."""
        there = read_registration(ResultsFolder(self._home))
        of_arms = (there or {}).get(TRAINER, {}).get("program", {})
        return str(of_arms.get(arm, {}).get("commit", ""))

    def _require_programs(self, study: Study, sources: Mapping[str, Source]) -> None:
        """Raise ParibusError for a program that this machine does not have, where it runs here."""
        if self._backend.name != "local":
            return
        for arm, source in sources.items():
            setting = study.setting(arm)
            name = setting.argv(setting.values(arm, "0", "", ""))[0]
            path = (os.environ | setting.program.env).get("PATH")
            there = source.folder / name if os.sep in name else shutil.which(name, path=path)
            if not there or (os.sep in name and not source.is_copied and not Path(there).exists()):
                raise ParibusError(
                    f"arm '{arm}': there is no program '{name}'"
                    + (f" in {source.folder}" if os.sep in name else " on the PATH")
                    + "; state its path, or {python} for the Python that runs paribus"
                )

    def _job(self, study: Study, arm: str, seed: int) -> Job:
        home = self._folder.path.absolute() / OUTPUTS / arm / f"seed-{seed}"
        return Job(arm, seed, study.setting(arm), home)

    def _task(self, study: Study, job: Job) -> dict[str, Any]:
        """Make the folder of a trial, put values in, and return what a worker is told."""
        program, source = job.setting.program, self._now(study, job)
        folder = place(study, job.arm, job.setting, source, self._copies)
        remove_folder(job.home)
        out = job.home / OUT
        out.mkdir(parents=True)
        config = ""
        template = self._template(study, job.arm).get("config")
        marks = {name: f"{{{name}}}" for name in ("seed", "arm", "folder", "config")}
        unlike = job.setting.values("", "", "", "") | marks
        if template is not None:
            config = str(job.home / f"config{Path(program.config).suffix}")
            values = job.setting.values(job.arm, job.seed, str(out), config)
            job.config = put(template, values)
            Path(config).write_text(job.config, encoding="utf-8")
            said = put(template, unlike).encode()
            job.controls["configuration"] = hashlib.sha256(said).hexdigest()
        values = job.setting.values(job.arm, job.seed, str(out), config)
        job.command = tuple(job.setting.argv(values))
        env = {name: put(text, values) for name, text in program.env.items()}
        alike = [shlex.join(job.setting.argv(unlike))]
        alike += sorted(f"{name}={put(text, unlike)}" for name, text in program.env.items())
        job.controls["command"] = " ".join(alike)
        if evidence := source.evidence:
            job.controls["source"] = evidence
        env |= {TRIAL_FOLDER: str(job.home), TRIAL_SEED: str(job.seed)}
        sources: dict[str, tuple[MetricSource, str]] = {
            name: (one, one.better) for name, one in metrics_of(study).items()
        }
        if program.train_loss is not None:
            sources[TRAIN_LOSS] = (program.train_loss, "lower")
        return {
            "message": "StartProgram",
            "argv": list(job.command),
            "folder": str(folder),
            "env": env,
            "log": str(job.home / LOG),
            "log_bytes": program.log_mib * MIB,
            "timeout": program.timeout_seconds,
            "gpus": program.gpus,
            "patterns": {
                name: [one.stdout, one.take, better]
                for name, (one, better) in sources.items()
                if one.stdout
            },
        }

    def _now(self, study: Study, job: Job) -> Source:
        """Return the code of an arm. Raises ParibusError where it was edited meanwhile."""
        before = self._source(study, job.arm)
        if before.is_copied:
            return before
        now = source_of(study, job.arm, job.setting)
        if now.evidence != before.evidence:
            names = [name for name, _ in before.files.items() ^ now.files.items()]
            names = [*dict.fromkeys([*sorted(names), *now.changed, *before.changed])]
            is_commit = now.commit != before.commit or not names
            what = f"the commit of {now.folder}" if is_commit else some(names, CHANGED_SHOWN)
            raise ParibusError(
                f"{what} changed since the study began, before trial {job.label}; restore it, or "
                "give the arm `ref`"
            )
        return now

    def _ended(self, study: Study, job: Job, ended: Mapping[str, Any]) -> TrialRecord | None:
        """Return the record of a trial that has ended; None where it is to be tried again."""
        program = job.setting.program
        is_failed = not ended["started"] or ended["why"] == "timeout" or ended["code"] != 0
        said = {"ended": ended["words"], "seconds": round(ended.get("seconds", 0.0), 3)}
        job.attempts.append(said)
        if not is_failed:
            return self._record(study, job, ended)
        if ended["started"] and len(job.attempts) <= program.retries:
            LOG_.warning(
                "trial %s failed (%s); started again, %d of %d times",
                *(job.label, ended["words"], len(job.attempts), program.retries),
            )
            return None
        if program.failure == "stop" or not ended["started"]:
            self._require_success(job, ended)
        names = metrics_of(study)
        return self._written(
            study,
            job,
            ended,
            dict.fromkeys(names, math.nan),
            read_reported(job.home),
            {},
            failed=ended["words"],
        )

    def _require_success(self, job: Job, ended: Mapping[str, Any]) -> None:
        if not ended["started"]:
            raise ParibusError(f"trial {job.label} cannot be started: {ended['words']}")
        if ended["code"] or ended["why"]:
            kept = "; finished trials are kept: fix it and run again" if job.is_kept else ""
            raise ParibusError(
                f"trial {job.label} failed: {ended['words']}{_last(ended)}{job.printed}{kept}"
            )

    def _record(self, study: Study, job: Job, ended: Mapping[str, Any]) -> TrialRecord:
        """Return the record of a trial that ended well. Raises ParibusError for what it lacks."""
        reported = read_reported(job.home)
        found: dict[str, Finder] = {}
        for name, metric in metrics_of(study).items():
            found[name] = self._found(job, name, metric, metric.better, ended, reported)
            if not found[name].n:
                self._refuse(job, name, metric, found[name], ended, reported)
        scores = {name: _score(one) for name, one in found.items()}
        loss = job.setting.program.train_loss
        if loss is not None:
            found[TRAIN_LOSS] = self._found(job, TRAIN_LOSS, loss, "lower", ended, reported)
            if not found[TRAIN_LOSS].n:
                self._refuse(job, TRAIN_LOSS, loss, found[TRAIN_LOSS], ended, reported)
        for name, one in found.items():
            if one.passed and (job.arm, name) not in self._told:
                self._told.add((job.arm, name))
                LOG_.warning(
                    "trial %s: in the place of %s, %s was passed over; %g counts",
                    *(job.label, name, one.passed, _score(one)),
                )
            if len(one.labels) > 1 and (LINES, name) not in self._told:
                self._told.add((LINES, name))
                kinds = ", ".join(f"'{label}'" for label in one.labels)
                LOG_.warning(
                    "trial %s: the pattern of %s matches numbers of several names, %s; that of "
                    "'%s' counts: make it match one of them",
                    *(job.label, name, kinds, one.label),
                )
        return self._written(study, job, ended, scores, reported, found)

    def _found(
        self,
        job: Job,
        name: str,
        source: MetricSource,
        better: str,
        ended: Mapping[str, Any],
        reported: Reported,
    ) -> Finder:
        printed = {name: Finder.of(ended["found"][name])} if source.stdout else {}
        out = job.home / OUT
        return found_of(
            job.label, name, source, better, out=out, printed=printed, reported=reported
        )

    def _refuse(
        self,
        job: Job,
        name: str,
        source: MetricSource,
        found: Finder,
        ended: Mapping[str, Any],
        reported: Reported,
    ) -> None:
        """Raise ParibusError: a trial that ended well has no value of a metric."""
        key = source.key or name
        if found.unread:
            is_number = NUMBER.match(found.unread)
            no = f"which '{source.stdout}' does not read whole" if is_number else "and no number"
            why = f"what was found in its place is '{found.unread}', {no}"
        elif source.stdout:
            why = f"the pattern '{source.stdout}' matches no line that it printed{_last(ended)}"
        elif source.file:
            why = f"no row of {source.file} has '{key}'"
        elif source.reader:
            why = f"the reader {source.reader} finds no '{key}' in {source.path}"
        elif not reported.n_lines:
            why = (
                "it reported nothing: call paribus.trial.report, or state where it is read "
                f"(stdout, file){_last(ended)}"
            )
        else:
            names = {one for row in (*reported.results, *reported.rows) for one in row}
            why = f"it did not report it: {nearest(key, names)}"
        raise ParibusError(
            f"trial {job.label} ended ({ended['words']}) without a value of '{name}': {why}"
            f"{job.printed}"
        )

    def _written(
        self,
        study: Study,
        job: Job,
        ended: Mapping[str, Any],
        scores: Mapping[str, float],
        reported: Reported,
        found: Mapping[str, Finder],
        failed: str = "",
    ) -> TrialRecord:
        losses = found[TRAIN_LOSS].points if TRAIN_LOSS in found else ()
        enough = len(losses) >= (study.stability.steps_needed if study.is_gated else 1)
        about = {
            "command": list(job.command),
            "attempts": job.attempts,
            "failed": failed,
            "deciding": study.primary.metric,
            "seed_used": reported.seed,
            "printed": {"bytes": ended["n_bytes"], "left_out": ended["n_left_out"]},
            "counts": {name: one.n for name, one in found.items()},
            **reported.about,
        }
        if steps := {name: one.step for name, one in found.items() if one.step is not None}:
            about["last_steps"] = steps
        if passed := {name: one.passed for name, one in found.items() if one.passed}:
            about["passed"] = passed
        if labels := {name: [one.label, *one.labels] for name, one in found.items() if one.labels}:
            about["labels"] = labels
        if files := files_read(metrics_of(study).values(), job.home / OUT):
            about["files"] = files
        if job.config:
            about["config"] = job.config
        software = ended["software"]
        gpus = ended["gpus"]
        environment = ended["machine"] | {
            "device": ", ".join(gpus) or "cpu",
            "python": software.get("python", ""),
            "packages": software.get("packages", {}),
        }
        files = {
            MACHINE: canonical_json(stamped(environment)).encode(),
            LOG: read_bytes(job.home / LOG, 2048 * MIB),
        }
        report = job.home / REPORTED
        if is_regular(report):
            files[REPORTED] = read_bytes(report, RECORD_BYTES)
        return TrialRecord(
            scores=scores,
            losses=[value for _, value in losses] if enough else (),
            steps=[round(step) for step, _ in losses] if enough else (),
            controls=job.controls,
            seconds=ended["seconds"],
            curves={name: one.points for name, one in found.items() if one.points},
            about=about,
            files=files,
        )

    def _ask(self, study: Study, job: Job, value: float) -> None:
        """Ask, once an arm, whether a program reads its seed that gives one score at all."""
        mine = self._scores.setdefault(job.arm, {})
        if not math.isfinite(value):  # it failed or diverged, whatever its seed
            return
        mine[job.seed] = value
        if len(mine) > 1 and len(set(mine.values())) == 1 and job.arm not in self._asked:
            self._asked.add(job.arm)
            LOG_.warning("%s", ask_about_seed(job.arm, list(mine), value))


def _score(found: Finder) -> float:
    assert found.value is not None
    return found.value


def _last(ended: Mapping[str, Any]) -> str:
    """Return the last lines of a program, for the end of a sentence."""
    lines = ended.get("last", [])[-SHOWN_LINES:]
    return (
        f"; its last lines: {' | '.join(line[-160:] for line in lines)}"
        if lines
        else ("; it printed nothing")
    )


def _latest(latest: Mapping[str, Any], primary: str) -> tuple[int, float | None]:
    """Return step and value that a program printed last: of the training loss, or what decides."""
    step, value = latest.get(TRAIN_LOSS) or latest.get(primary) or (None, None)
    return int(step or 0), value


def _tidy(job: Job) -> None:
    """Remove what the sealed records of a trial have; what the program wrote stays."""
    for name in (LOG, REPORTED):
        (job.home / name).unlink(missing_ok=True)
    for folder in (job.home / OUT, job.home, job.home.parent):
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _tell_uncommitted(sources: Mapping[str, Source]) -> None:
    told = set()
    for source in sources.values():
        if source.uncommitted and source.uncommitted not in told:
            told.add(source.uncommitted)
            LOG_.warning(
                "%s has uncommitted changes (%s), of which the digest alone is recorded; commit "
                "them to run this again some day",
                *(source.top, some(source.changed, CHANGED_SHOWN)),
            )


class Pool:
    """Workers that run programs, started by a backend; none is left behind."""

    def __init__(self, backend: Any, workers: int | None, gpus: int | None, n_jobs: int) -> None:
        self._backend, self._wanted, self._gpus, self._n_jobs = backend, workers, gpus, n_jobs
        self._inbox: Queue[tuple[int, str | None]] = Queue()
        self._processes: list[Any] = []
        self._machines: dict[int, dict[str, Any]] = {}
        self._waiting: list[Job] = []

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *exception: object) -> None:
        with contextlib.ExitStack() as last:
            for process in self._processes:
                last.callback(process.close)
            for process in self._processes:
                last.callback(process.stop)

    def again(self, job: Job) -> None:
        """Let a job wait once more, before all others."""
        self._waiting.insert(0, job)

    def work(
        self, jobs: Sequence[Job], task: Any, hear: Any
    ) -> Iterator[tuple[Job, dict[str, Any]]]:
        """Yield each job when its program has ended, and how; in the order in which they end.

        Args:
            task: called with a job, gives what a worker is told.
            hear: called with a job and the latest values that were printed.
        """
        self._waiting = list(jobs)
        busy: dict[int, Job] = {}
        idle: list[int] = []
        if jobs:
            self._start()
        while self._waiting or busy:
            while self._waiting and idle:
                number, job = idle.pop(), self._waiting.pop(0)
                busy[number] = job
                self._processes[number].send(json.dumps(task(job)) + "\n")
            number, line = self._inbox.get()
            if line is None:
                raise self._died(number, busy)
            try:
                message = json.loads(line)
            except ValueError:
                raise ParibusError(
                    f"backend '{self._backend.name}' heard what is no message of a worker: "
                    f"{line!r:.80}"
                ) from None
            name = message.pop("message", "")
            if name == "ReadyProgram":
                self._machines[number] = {k: message[k] for k in ("processor", "system")}
                idle.append(number)
                if number == 0:
                    self._start_more(message)
            elif name == "Heard":
                hear(busy[number], message["latest"])
            elif name == "EndedProgram":
                job = busy.pop(number)
                idle.append(number)
                yield job, message | {"machine": self._machines[number]}

    def _start_more(self, first: Mapping[str, Any]) -> None:
        """Start the other workers: as many as are wanted, or as there are GPUs for."""
        wanted = self._wanted
        if wanted is None:
            wanted = max(1, len(first["gpus"]) // self._gpus) if self._gpus else 1
        for _ in range(min(wanted, self._n_jobs) - 1):
            self._start()

    def _start(self) -> None:
        number = len(self._processes)
        hear = lambda line: self._inbox.put((number, line))  # noqa: E731
        process = resolve_name(f"{BACKENDS}:called")(self._backend, "start_bare", hear)
        self._processes.append(process)
        process.send(json.dumps({"message": HELLO, "number": number}) + "\n")

    def _died(self, number: int, busy: Mapping[int, Job]) -> ParibusError:
        end = self._processes[number].end()
        doing = f" on {busy[number].label}" if number in busy else ""
        last = f": {end.last_words}" if end.last_words else ""
        return ParibusError(
            f"a worker died with {end.how}{doing}{last}; finished trials are kept: run again to "
            "continue"
        )
