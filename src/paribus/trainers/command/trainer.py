"""Trainer `command`, which runs a program for each trial and reads its scores."""

from __future__ import annotations

import contextlib
import logging
import math
import os
import shlex
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.digests import canonical_json, digest
from paribus.errors import ParibusError
from paribus.files import move_folder, remove_folder
from paribus.numbers import some
from paribus.programs import machine
from paribus.programs.process import LOG_BYTES, Ending, Output, run_program
from paribus.results import ResultsFolder, read_registration
from paribus.results.records import TRAINER
from paribus.results.store import OUTPUTS
from paribus.runs.processes import children, end_children
from paribus.schema import stamped
from paribus.study import Study
from paribus.study.trainer import Declaration, Trial, TrialRecord
from paribus.trainers.command import scores, sections, sources
from paribus.trainers.command.records import LOG, MACHINE, REPORTED, TRAIN_LOSS
from paribus.trial import FOLDER as TRIAL_FOLDER, SEED as TRIAL_SEED
from paribus.untrusted_io import is_regular, read_bytes, read_text

if TYPE_CHECKING:
    from paribus.runs.queue import Context

MOST_NAMED = 3  # files that an error names
CHECK_SECONDS = 10.0  # of each arm
LOGGER = logging.getLogger("paribus")
REPORT_SECONDS = 1.0  # between two reports of what a program has printed
CODE_KEYS = ("program.ref", "program.folder", "program.command")
# {control: the keys by which an arm declares that it differs there}
CONTROLS: dict[str, tuple[str, ...]] = {
    "source": CODE_KEYS,
    "command": ("set.", "program."),
    "configuration": ("set.", "program.config"),
    "software": ("program.command", "program.env", "program.folder"),
    "device": (),
    "steps": (),
    "seed": (),
    "data": (),
    "initial weights": CODE_KEYS,
}


@dataclass
class Job:
    """Command, folders and state of a trial that a program runs.

    Attributes:
        home: temporary folder of the trial, exclusive to this worker; `{folder}` is its subfolder
            `out`.
        kept: final path of `home`, after the program has exited.
        config: path and text of the configuration file, or None if the arm has none.
        controls: recorded evidence, keyed by control.
        environment: content of machine.json.
        finders: collectors of metric values, keyed by metric.
        n_attempts: number of times that the program was started.
    """

    study: Study
    trial: Trial
    home: Path
    kept: Path
    command: list[str]
    env: dict[str, str]
    config: tuple[Path, str] | None
    controls: dict[str, str]
    environment: dict[str, Any] = field(default_factory=dict)
    finders: dict[str, scores.Finder] = field(default_factory=dict)
    n_attempts: int = 0

    @property
    def label(self) -> str:
        """Name of the trial in messages, such as `trial baseline/seed-1`."""
        return f"trial {self.trial[0]}/seed-{self.trial[1]}"


class Command:
    """Trainer that runs an external program.

    Args:
        home: results folder of the study, which contains clones of repositories during a run.
        context: context of the child process that runs a trial, or None if no trial is run.
    """

    def __init__(self, home: Path, *, context: Context | None = None) -> None:
        self._home = home.absolute()
        self._context = context
        # Workers do not share copies: one may be remaking what another's program stands in.
        part = "" if context is None else f"{context.worker}-{context.slot}"
        self._scratch = self._home / sources.COPIES / part
        self._folder = ResultsFolder(home)
        self._sources: dict[tuple[Any, ...], sources.Source] = {}

    def into(self, folder: ResultsFolder) -> Command:
        """Set the folder in which trials are stored, and return self."""
        self._folder = folder
        return self

    def declare(self, study: Study) -> Declaration:
        """Declare the study's metrics and controls, or raise ParibusError if they are invalid."""
        settings = {arm: study.setting(arm) for arm in study.arms}
        templates = {arm: t for arm in settings if (t := _template(study, settings[arm]))}
        sections.require_filled(settings, templates)
        controls = {
            name: (*keys, *study.program.declares.get(name, ()))
            for name, keys in CONTROLS.items()
            if templates or name != "configuration"
        }
        record: dict[str, Any] = {
            "program": {arm: self._source(study, arm).record for arm in study.arms}
        }
        if templates:
            record["templates"] = {arm: digest(text) for arm, text in templates.items()}
        metrics = tuple(m.declared(name) for name, m in scores.metrics_of(study).items())
        return Declaration(metrics, controls, must_be_finite=study.primary.metric, about=record)

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Run the program once per trial, and yield each trial with its record."""
        program = study.program
        limit = None if program.timeout_minutes is None else 60 * program.timeout_minutes
        for trial in trials:
            job, arms = self._job(study, trial), trial[:1]
            self._report("resumed", trials=[trial], t=0)
            ending = self._start(job, limit)
            try:
                while ending.is_failed and job.n_attempts <= program.retries:
                    LOGGER.warning(
                        "%s failed (%s); restarting it (retry %d of %d)",
                        *(job.label, ending, job.n_attempts, program.retries),
                    )
                    self._sources.clear()
                    self.require_unchanged(study, self._folder, arms)
                    ending = self._start(job, limit)
                record = _record(job, ending, accept=program.failure == "exclude")
                self._sources.clear()  # edited while it ran, it may have run either code
                self.require_unchanged(study, self._folder, arms)
            except ParibusError as error:
                self._keep(job)
                log = f"the output is in {job.kept / LOG}; " if ending.last else ""
                raise ParibusError(
                    f"{error}; {log}if the cause is outside the code, run again (finished trials "
                    "are kept); after a change of study or code, give the study another name",
                    code=error.code,
                ) from None
            self._keep(job)
            yield trial, record
            _tidy(job.kept)  # it is sealed

    def try_briefly(self, study: Study) -> dict[str, str]:
        """Run each arm's first seed for up to CHECK_SECONDS, and return {arm: summary}.

        Raises ParibusError if a program fails, or exits without a value for a metric.
        """
        seen: dict[str, str] = {}
        for arm in study.arms:
            job = self._job(study, (arm, study.seeds[0]))
            ending = self._start(job, CHECK_SECONDS)
            if ending.timed_out:
                names = ", ".join(name for name, finder in job.finders.items() if finder.n)
                metrics = f"read {names}" if names else "read no metric yet"
                seen[arm] = f"stopped after {CHECK_SECONDS:g} s, as intended; {metrics}"
            else:
                values = _record(job, ending).scores.items()
                text = ", ".join(f"{name} {value:g}" for name, value in values)
                seen[arm] = f"finished after {ending.seconds:.3g} s; {text}"
            words = job.controls["command"] + _template(study, study.setting(arm))
            if not (
                "{seed}" in words or "paribus.trial" in words or is_regular(job.home / REPORTED)
            ):
                seen[arm] += "; warning: {seed} is in neither its command, env nor config"
        remove_folder(self._scratch)
        return seen

    def require_unchanged(self, study: Study, folder: ResultsFolder, arms: Iterable[str]) -> None:
        """Raise ParibusError if an arm's code differs from the code registered in `folder`."""
        registered = (read_registration(folder) or {}).get(TRAINER, {}).get("program")
        if registered is None:
            return
        for arm in arms:
            source, before = self._source(study, arm), registered.get(arm, {})
            if source.record != before:
                files = {name for name, _ in before.get("files", {}).items() ^ source.files.items()}
                names = sorted(files) or list(source.changed) or [str(source.folder)]
                raise ParibusError(
                    f"{some(names, MOST_NAMED)} changed since registration; restore the "
                    "registered code, or give the study another name (or --results)",
                    code="changed",
                )

    def _keep(self, job: Job) -> None:
        """Move the program's files from `home` to `kept`, unless the trial is already finished."""
        while job.home.exists() and not self._folder.trial(*job.trial).is_finished:
            try:
                job.kept.parent.mkdir(parents=True, exist_ok=True)
                remove_folder(job.kept)
                move_folder(job.home, job.kept)
            except (ParibusError, FileNotFoundError):
                # Another worker has just put its own there, or removed the empty folder above.
                if not job.kept.exists() and job.kept.parent.exists():
                    raise

    def _report(self, event: str, **content: Any) -> None:
        if self._context is not None:
            self._context.report(event, **content)

    def _job(self, study: Study, trial: Trial) -> Job:
        """Create the job of a trial, with placeholders replaced by their values."""
        (arm, seed), place = trial, Path(OUTPUTS, trial[0], f"seed-{trial[1]}")
        home, kept = self._scratch / place, self._folder.path.absolute() / place
        setting, program = study.setting(arm), study.setting(arm).program
        path = home / f"config{Path(program.config).suffix}"
        values = setting.values(arm, str(seed), str(home / scores.OUT), str(path))
        # Of what two trials of a study differ in anyway, the names.
        common = values | {name: f"{{{name}}}" for name in ("seed", "arm", "folder", "config")}
        alike, env = (
            {name: sections.fill(text, texts) for name, text in program.env.items()}
            for texts in (common, values)
        )
        words = [shlex.join(setting.argv(common)), *(f"{k}={alike[k]}" for k in sorted(alike))]
        controls, config = {"command": " ".join(words)}, None
        if template := _template(study, setting):
            config = path, sections.fill(template, values)
            controls["configuration"] = digest(sections.fill(template, common))
        if evidence := self._source(study, arm).evidence:
            controls["source"] = evidence
        env = os.environ | env | {TRIAL_FOLDER: str(home), TRIAL_SEED: str(seed)}
        return Job(study, trial, home, kept, setting.argv(values), env, config, controls)

    def _source(self, study: Study, arm: str) -> sources.Source:
        program = study.setting(arm).program
        key = (program.folder, program.ref, program.command)
        if key not in self._sources:  # most arms share one
            registered = read_registration(ResultsFolder(self._home)) or {}
            record = registered.get(TRAINER, {}).get("program", {}).get(arm, {})
            self._sources[key] = sources.find_source(study, arm, record.get("commit", ""))
        return self._sources[key]

    def _start(self, job: Job, timeout: float | None) -> Ending:
        """Run a trial's program once, or raise ParibusError if it cannot be started."""
        study, program, reported = job.study, job.study.program, time.monotonic()
        source = self._source(study, job.trial[0])
        folder = sources.prepare_folder(study, job.trial[0], source, self._scratch)
        remove_folder(job.home)
        (job.home / scores.OUT).mkdir(parents=True)
        if job.config:
            job.config[0].write_text(job.config[1], encoding="utf-8")
        job.n_attempts += 1
        job.finders = scores.finders_of(study)

        def listen(line: str) -> None:
            for finder in job.finders.values():
                finder.read_line(line)

        def tick() -> None:
            nonlocal reported
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                shown = job.finders.get(TRAIN_LOSS) or job.finders.get(study.primary.metric)
                step, value = (shown.step, shown.value) if shown else (None, None)
                losses = [value if value is None or math.isfinite(value) else None]
                self._report("trained", trials=[job.trial], t=int(step or 0), losses=losses)

        try:
            if program.gpus is not None:
                slot = 0 if self._context is None else self._context.slot
                job.env[machine.VISIBLE] = machine.share_gpus(program.gpus, slot)
            job.environment = machine.describe(job.command, folder, job.env)
            return run_program(
                job.command,
                folder=folder,
                env=job.env,
                output=Output(job.home / LOG, listen),
                timeout=timeout,
                tick=tick,
                end_others=partial(end_children, children()),
            )
        except OSError as error:
            raise ParibusError(
                f"{job.label} cannot be started: {error}; correct [trainer], and use "
                "{python} for the Python that runs paribus",
                code="system",
            ) from None


def _record(job: Job, ending: Ending, *, accept: bool = False) -> TrialRecord:
    """Create the record of a trial after its program has exited.

    Raises ParibusError if values are missing, or if the program failed and `accept` is False.
    """
    if ending.is_failed and not accept:
        raise ParibusError(f"{job.label} failed: {ending}; {_printed(ending)}", code="own_code")
    report, finders = scores.read_report(job.home), {} if ending.is_failed else job.finders
    for name, finder in finders.items():
        where = f"{job.label}: metrics.{name}"
        scores.read_rest(name, finder, job.home / scores.OUT, report, where)
        _require_value(job, name, finder, ending)
    losses = finders[TRAIN_LOSS].points if TRAIN_LOSS in finders else []
    record = {
        "command": [word.replace(str(job.home), str(job.kept)) for word in job.command],
        "failed": str(ending) if ending.is_failed else "",
        "deciding": job.study.primary.metric,
        "left_out": ending.n_left_out,
        "attempts": job.n_attempts,
        "last_steps": {n: f.step for n, f in finders.items() if f.step is not None},
        "batches": sorted(map(list, report.batches.items())),
        "initial": report.initial,
    }
    files = {
        MACHINE: canonical_json(stamped(job.environment)).encode(),
        LOG: read_bytes(job.home / LOG, 2 * LOG_BYTES),
    }
    if is_regular(job.home / REPORTED):
        files[REPORTED] = read_bytes(job.home / REPORTED)
    values = {name: f.value for name, f in finders.items() if f.value is not None}
    return TrialRecord(
        scores={name: values.get(name, math.nan) for name in scores.metrics_of(job.study)},
        losses=[value for _, value in losses],
        steps=[round(step) for step, _ in losses],
        controls=job.controls,
        seconds=ending.seconds,
        curves={name: finder.points for name, finder in finders.items() if finder.points},
        about=record,
        files=files,
    )


def _tidy(home: Path) -> None:
    """Remove files that the record already contains, and empty folders."""
    for name in (LOG, REPORTED):
        (home / name).unlink(missing_ok=True)
    for folder in (home / scores.OUT, home, home.parent, home.parent.parent):
        with contextlib.suppress(OSError):  # it is not empty
            folder.rmdir()


def _require_value(job: Job, name: str, finder: scores.Finder, ending: Ending) -> None:
    """Raise ParibusError if a successful trial has no value for a metric."""
    if finder.n:
        return
    place = finder.source.stdout or finder.source.file or "a call of paribus.trial.report"
    unread = f" '{finder.unread}' is not a complete number;" if finder.unread else ""
    raise ParibusError(
        f"{job.label} ended ({ending}) without a value of '{name}', which is read from {place};"
        f"{unread} {_printed(ending)}",
        code="missing",
    )


def _printed(ending: Ending) -> str:
    """Format the last lines of a program's output for the end of a message."""
    if not ending.last:
        return "it printed nothing"
    return f"its last lines: {' | '.join(line[-160:] for line in ending.last)}"


def _template(study: Study, setting: sections.CommandSetting) -> str:
    """Return the text of an arm's configuration template, or "" if it has none.

    Raises ParibusError if the file cannot be read.
    """
    if not setting.program.config:
        return ""
    path = study.folder / setting.program.config
    missing = f"trainer.config: {path} does not exist; set a path relative to the study file"
    return read_text(path, missing=missing)
