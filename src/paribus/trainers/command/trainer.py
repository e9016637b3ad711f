"""The trainer `command`: runs a program for each trial, and reads its numbers."""

from __future__ import annotations

import contextlib
import hashlib
import logging
import math
import os
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.digests import canonical_json
from paribus.errors import ParibusError, nearest
from paribus.files import remove_folder
from paribus.numbers import some
from paribus.programs.machine import (
    VISIBLE,
    gpu_names,
    interpreter,
    machine,
    packages,
    share_gpus,
)
from paribus.programs.process import Ending, run_program
from paribus.programs.values import Finder
from paribus.results import ResultsFolder, read_registration
from paribus.results.record_format import TRAINER
from paribus.results.store import OUTPUTS
from paribus.runs.processes import children, end_children
from paribus.schema import stamped
from paribus.study import Study
from paribus.study.trainer import Declaration, Trial, TrialRecord
from paribus.trainers.command.records import LOG, MACHINE, REPORTED, TRAIN_LOSS, seed_question
from paribus.trainers.command.scores import (
    OUT,
    Report,
    file_digests,
    find_values,
    finders_of,
    metrics_of,
    read_report,
    sources_of,
)
from paribus.trainers.command.sections import (
    CommandSetting,
    MetricSource,
    fill,
    require_filled,
    seconds,
)
from paribus.trainers.command.sources import COPIES, Source, find_source, prepare_folder
from paribus.trial import FOLDER as TRIAL_FOLDER
from paribus.trial import SEED as TRIAL_SEED
from paribus.untrusted_io import CODE_BYTES, MIB, RECORD_BYTES, is_regular, read_bytes, read_text

if TYPE_CHECKING:
    from paribus.runs.worker import Context

REPORT_SECONDS = 1.0  # between two reports of what a program has printed
LOGGER = logging.getLogger("paribus")
SEEDS_ASKED = 4  # finished trials of an arm, up to which their scores are compared
CODE_KEYS = ("program.ref", "program.patch", "program.folder", "program.command")
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
    """A trial that is under way.

    Attributes:
        home: its folder in `runs`, with `out`, which is `{folder}`.
        controls: the evidence by control.
        environment: the content of machine.json.
        finders: by metric, the values in its output.
        attempts: the ends of all attempts.
    """

    arm: str
    seed: int
    setting: CommandSetting
    home: Path
    command: list[str] = field(default_factory=list)
    config: str = ""
    controls: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    finders: dict[str, Finder] = field(default_factory=dict)
    attempts: list[dict[str, Any]] = field(default_factory=list)

    @property
    def label(self) -> str:
        """`trial <arm>/seed-<seed>`."""
        return f"trial {self.arm}/seed-{self.seed}"


class Command:
    """Runs the program that a study names.

    Args:
        home: the results folder of the study, where copies of repositories are kept meanwhile.
        context: of the child process that runs a trial; None where none is run.
        is_here: whether programs run on this machine.
    """

    def __init__(self, home: Path, *, context: Context | None = None, is_here: bool = True) -> None:
        self._home = home.absolute()
        self._context, self._is_here = context, is_here
        # Workers do not share copies: one may be remaking what another's program stands in.
        part = "" if context is None else f"{context.worker}-{context.slot}"
        self._copies = self._home / COPIES / part
        self._folder = ResultsFolder(home)
        self._sources: dict[Any, Source] = {}

    def into(self, folder: ResultsFolder) -> Command:
        """Return the same, for the trials of `folder`: a study's, or its tuning's."""
        self._folder = folder
        return self

    def declare(self, study: Study) -> Declaration:
        """Return the metrics and controls of its trials. Raises ParibusError on bad sections."""
        settings = {arm: study.setting(arm) for arm in study.arms}
        templates = {
            arm: _template(study, setting)
            for arm, setting in settings.items()
            if setting.program.config
        }
        require_filled(settings, templates)
        sources = {arm: self._source(study, arm) for arm in study.arms}
        if self._is_here:
            for arm, source in sources.items():
                _require_program(arm, settings[arm], source)
        if self._context is None:
            for source in {source.uncommitted: source for source in sources.values()}.values():
                if source.uncommitted:
                    LOGGER.warning(
                        "%s has uncommitted changes (%s), of which the digest alone is recorded; "
                        "commit them to run this again some day",
                        *(source.top, some(source.changed)),
                    )
        controls = {
            name: (*keys, *study.program.declares.get(name, ()))
            for name, keys in CONTROLS.items()
            if templates or name != "configuration"
        }
        record: dict[str, Any] = {"program": {arm: code.record for arm, code in sources.items()}}
        if templates:
            record["templates"] = {arm: _sha256(text) for arm, text in templates.items()}
        metrics = tuple(metric.declared(name) for name, metric in metrics_of(study).items())
        return Declaration(metrics, controls, must_be_finite=study.primary.metric, about=record)

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Run the program for each of `trials`, and yield the record of each when it has ended."""
        program = study.program
        limit = seconds(program.timeout) or None
        for trial in trials:
            job = self._job(study, *trial)
            self._report("resumed", trials=[trial], t=0)
            ending = self._start(study, job, limit)
            while ending.is_failed and len(job.attempts) <= program.retries:
                LOGGER.warning(
                    "%s failed (%s); started again, %d of %d times",
                    *(job.label, ending, len(job.attempts), program.retries),
                )
                ending = self._start(study, job, limit)
            if ending.is_failed and program.failure == "stop":
                raise ParibusError(
                    f"{job.label} failed: {ending}{_last_lines(ending)}; all it printed is in "
                    f"{job.home / LOG}; finished trials are kept: fix it and run again",
                    code="own_code",
                )
            try:
                record = self._record(study, job, ending)
            except ParibusError as error:
                raise ParibusError(
                    f"{error}; all it printed is in {job.home / LOG}", code=error.code
                ) from None
            yield trial, record

    def try_briefly(self, study: Study) -> dict[str, str]:
        """Run the first seed of each arm for some seconds; return by arm what was seen.

        Raises ParibusError where a program fails, or ends and a metric is missing.
        """
        limit = seconds(study.program.check)
        if not limit:
            return dict.fromkeys(study.arms, "not started (trainer.check is 0)")
        seen: dict[str, str] = {}
        for arm in study.arms:
            job = self._job(study, arm, study.seeds[0])
            ending = self._start(study, job, limit)
            if ending.timed_out:
                names = ", ".join(name for name, finder in job.finders.items() if finder.n)
                metrics = f"{names} seen" if names else "no metric seen yet"
                seen[arm] = f"still running after {limit:g} s, and ended; {metrics}"
                continue
            if ending.is_failed:
                raise ParibusError(
                    f"{job.label} failed: {ending}{_last_lines(ending)}; fix the program and check "
                    "again",
                    code="own_code",
                )
            scores = self._record(study, job, ending).scores.items()
            values = ", ".join(f"{name} {value:g}" for name, value in scores)
            seen[arm] = f"ended by itself after {ending.seconds:.3g} s; {values}"
        remove_folder(self._copies)
        return seen

    def changed_files(self, study: Study, registered: Mapping[str, Any]) -> list[str]:
        """Return the files that changed since the study began; `registered` is by arm."""
        for arm in study.arms:
            source, before = self._source(study, arm), registered.get(arm, {})
            if study.setting(arm).program.is_copied or source.record == before:
                continue
            files = before.get("files", {})
            changed = files.items() ^ source.files.items()
            names = sorted({name for name, _ in changed})
            return names or list(source.changed) or [str(source.folder)]
        return []

    def tidy(self, trial: Trial) -> None:
        """Remove what the sealed records of a trial have; what the program wrote stays."""
        home = self._job_home(*trial)
        for name in (LOG, REPORTED):
            (home / name).unlink(missing_ok=True)
        for folder in (home / OUT, home, home.parent, home.parent.parent):
            with contextlib.suppress(OSError):  # it is not empty
                folder.rmdir()

    def ask_about_seeds(self, study: Study, folder: ResultsFolder, arm: str) -> None:
        """Ask whether a program reads its seed that gives the first seeds of an arm one score."""
        finished = [t for seed in study.seeds if (t := folder.trial(arm, seed)).is_finished]
        if len(finished) <= SEEDS_ASKED:
            name = study.primary.metric
            scores = {t.seed: t.read_json("evaluation.json").get(name) for t in finished}
            if question := seed_question(arm, scores):
                LOGGER.warning("%s", question, extra={"once": f"seed {arm}"})

    def _report(self, event: str, **content: Any) -> None:
        if self._context is not None:
            self._context.report(event, **content)

    def _job(self, study: Study, arm: str, seed: int) -> Job:
        return Job(arm, seed, study.setting(arm), self._job_home(arm, seed))

    def _job_home(self, arm: str, seed: int) -> Path:
        return self._folder.path.absolute() / OUTPUTS / arm / f"seed-{seed}"

    def _source(self, study: Study, arm: str) -> Source:
        program = study.setting(arm).program
        key = (program.folder, program.ref, program.patch, program.command)
        if key not in self._sources:
            registered = read_registration(ResultsFolder(self._home)) or {}
            record = registered.get(TRAINER, {}).get("program", {}).get(arm, {})
            self._sources[key] = find_source(study, arm, program, record.get("commit", ""))
        return self._sources[key]

    def _start(self, study: Study, job: Job, timeout: float | None) -> Ending:
        """Run the program of a trial once. Raises ParibusError where it cannot be started."""
        folder, env = self._prepare(study, job)
        slot, reported = 0 if self._context is None else self._context.slot, time.monotonic()

        def listen(line: str) -> None:
            for finder in job.finders.values():
                finder.read(line)

        def tick() -> None:
            nonlocal reported
            if time.monotonic() - reported > REPORT_SECONDS:
                reported = time.monotonic()
                t, value = _latest(job.finders, study.primary.metric)
                self._report("trained", trials=[(job.arm, job.seed)], t=t, losses=[value])

        try:
            if (gpus := job.setting.program.gpus) is not None:
                env[VISIBLE] = share_gpus(gpus, slot)
            python = interpreter(job.command, folder, env)
            software = packages(python, folder, env) if python else {}
            job.environment = machine() | {
                "device": ", ".join(gpu_names(env.get(VISIBLE))) or "cpu",
                "python": software.get("python", ""),
                "packages": software.get("packages", {}),
            }
            ending = run_program(
                job.command,
                folder=folder,
                env=env,
                log=job.home / LOG,
                log_bytes=job.setting.program.log_mib * MIB,
                listen=listen,
                timeout=timeout,
                tick=tick,
                end_others=partial(end_children, children()),
            )
        except OSError as error:
            raise ParibusError(f"{job.label} cannot be started: {error}", code="system") from None
        job.attempts.append({"ended": str(ending), "seconds": round(ending.seconds, 3)})
        return ending

    def _prepare(self, study: Study, job: Job) -> tuple[Path, dict[str, str]]:
        """Make the folder of a trial; return the working directory and environment."""
        setting, program = job.setting, job.setting.program
        source = self._source(study, job.arm)
        folder = prepare_folder(study, job.arm, program, source, self._copies)
        remove_folder(job.home)
        out, config = job.home / OUT, job.home / f"config{Path(program.config).suffix}"
        out.mkdir(parents=True)
        values = setting.values(job.arm, str(job.seed), str(out), str(config))
        # Of what two trials of a study differ in anyway, the names.
        common = values | {name: f"{{{name}}}" for name in ("seed", "arm", "folder", "config")}
        if program.config:
            template = _template(study, setting)
            job.config = fill(template, values)
            config.write_text(job.config, encoding="utf-8")
            job.controls["configuration"] = _sha256(fill(template, common))
        job.command = setting.argv(values)
        environment = sorted(f"{name}={fill(text, common)}" for name, text in program.env.items())
        job.controls["command"] = " ".join([shlex.join(setting.argv(common)), *environment])
        if evidence := source.evidence:
            job.controls["source"] = evidence
        job.finders = finders_of(study)
        env = os.environ | {name: fill(text, values) for name, text in program.env.items()}
        return folder, env | {TRIAL_FOLDER: str(job.home), TRIAL_SEED: str(job.seed)}

    def _record(self, study: Study, job: Job, ending: Ending) -> TrialRecord:
        """Return the record of a trial that has ended. Raises ParibusError for missing values."""
        report = read_report(job.home)
        finders = {} if ending.is_failed else _values(study, job, ending, report)
        losses = finders[TRAIN_LOSS].points if TRAIN_LOSS in finders else []
        optional = {
            "last_steps": {n: f.step for n, f in finders.items() if f.step is not None},
            "passed": {name: f.passed for name, f in finders.items() if f.passed},
            "labels": {name: [f.label, *f.labels] for name, f in finders.items() if f.labels},
            "files": file_digests(study, job.home / OUT),
            "config": job.config,
        }
        record = {
            "command": job.command,
            "attempts": job.attempts,
            "failed": str(ending) if ending.is_failed else "",
            "deciding": study.primary.metric,
            "seed_used": report.seed,
            "printed": {"bytes": ending.n_bytes, "left_out": ending.n_left_out},
            "counts": {name: finder.n for name, finder in finders.items()},
            "batches": sorted(map(list, report.batches.items())),
            "initial": report.initial,
        } | {name: content for name, content in optional.items() if content}
        files = {
            MACHINE: canonical_json(stamped(job.environment)).encode(),
            LOG: read_bytes(job.home / LOG, 2048 * MIB),
        }
        if is_regular(job.home / REPORTED):
            files[REPORTED] = read_bytes(job.home / REPORTED, RECORD_BYTES)
        values = {name: f.value for name, f in finders.items() if f.value is not None}
        return TrialRecord(
            scores={name: values.get(name, math.nan) for name in metrics_of(study)},
            losses=[value for _, value in losses],
            steps=[round(step) for step, _ in losses],
            controls=job.controls,
            seconds=ending.seconds,
            curves={name: finder.points for name, finder in finders.items() if finder.points},
            about=record,
            files=files,
        )


def _template(study: Study, setting: CommandSetting) -> str:
    path = study.folder / setting.program.config
    missing = f"trainer.config: no file {path}; it is relative to the study file"
    return read_text(path, CODE_BYTES, missing=missing)


def _require_program(arm: str, setting: CommandSetting, source: Source) -> None:
    """Raise ParibusError for a program that this machine does not have."""
    name = setting.argv(setting.values(arm, "0", "", ""))[0]
    is_path, path = os.sep in name, (os.environ | setting.program.env).get("PATH")
    if is_path and setting.program.is_copied:
        return  # it may be in the copy alone
    if not (os.path.exists(source.folder / name) if is_path else shutil.which(name, path=path)):
        raise ParibusError(
            f"arm '{arm}': there is no program '{name}' "
            f"{f'in {source.folder}' if is_path else 'on the PATH'}; state its path, or {{python}} "
            "for the Python that runs paribus",
            code="not_installed",
        )


def _values(study: Study, job: Job, ending: Ending, report: Report) -> dict[str, Finder]:
    """Return the values of a trial that ended well. Raises ParibusError if a metric has none."""
    finders: dict[str, Finder] = {}
    for name, (source, better) in sources_of(study).items():
        where = f"{job.label}: metrics.{name}"
        out = job.home / OUT
        finder = job.finders.get(name) or find_values(where, name, source, better, out, report)
        if not finder.n:
            why = _why_missing(name, source, finder, ending, report)
            raise ParibusError(
                f"{job.label} ended ({ending}) without a value of '{name}': {why}", code="missing"
            )
        if finder.passed:
            LOGGER.warning(
                "%s: in the place of %s, %s was passed over; %g counts",
                *(job.label, name, finder.passed, finder.value),
                extra={"once": f"passed {job.arm} {name}"},
            )
        if len(finder.labels) > 1:
            names = ", ".join(f"'{label}'" for label in finder.labels)
            LOGGER.warning(
                "%s: the pattern of %s matches numbers of several names, %s; that of '%s' counts: "
                "make it match one of them",
                *(job.label, name, names, finder.label),
                extra={"once": f"names {name}"},
            )
        finders[name] = finder
    return finders


def _why_missing(
    name: str, source: MetricSource, finder: Finder, ending: Ending, report: Report
) -> str:
    key = source.key or name
    if finder.unread:
        pattern = f" that '{source.stdout}' reads whole" if source.stdout else ""
        return f"in its place is '{finder.unread}', which is no number{pattern}"
    if source.stdout:
        return f"no line that it printed matches '{source.stdout}'{_last_lines(ending)}"
    if source.file:
        return f"no row of {source.file} has '{key}'"
    if source.reader:
        return f"the reader {source.reader} finds no '{key}' in {source.path}"
    if not report.n_lines:
        return (
            "it reported nothing: call paribus.trial.report, or state where it is read (stdout, "
            f"file){_last_lines(ending)}"
        )
    names = {key for row in (*report.results, *report.logged) for key in row}
    return f"it did not report it: {nearest(key, names)}"


def _last_lines(ending: Ending) -> str:
    """Return the last lines of a program, for the end of a sentence."""
    if not ending.last:
        return "; it printed nothing"
    return f"; its last lines: {' | '.join(line[-160:] for line in ending.last)}"


def _latest(finders: Mapping[str, Finder], primary: str) -> tuple[int, float | None]:
    """Return step and value that a program printed last: of the training loss, or what decides."""
    for name in (TRAIN_LOSS, primary):
        finder = finders.get(name)
        if finder is not None and finder.value is not None:
            is_finite = math.isfinite(finder.value)
            return int(finder.step or 0), finder.value if is_finite else None
    return 0, None


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
