"""The trainer `command`: starts a program for each trial, and reads what it gave."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import math
import os
import shlex
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from paribus.digests import canonical_json
from paribus.errors import ParibusError, nearest
from paribus.files import remove_folder
from paribus.numbers import some
from paribus.programs.machine import VISIBLE, gpus, interpreter, machine, names_of, packages, shares
from paribus.programs.process import run_program
from paribus.programs.values import NUMBER, Finder
from paribus.results import ResultsFolder, read_registration
from paribus.results.record_format import TRAINER
from paribus.results.store import OUTPUTS
from paribus.runs.processes import children, end_children
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

if TYPE_CHECKING:
    from paribus.runs.worker import Context

Hear = Callable[[Mapping[str, Finder]], None]
REPORT_SECONDS = 1.0  # between two reports of what a program has printed
LOG_ = logging.getLogger("paribus")
SHOWN_LINES = 3
SEEDS_ASKED = 4  # finished trials of an arm, up to which their scores are compared
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


@dataclass(frozen=True)
class ProgramTask:
    """What is started for a trial: its folder, its environment, and what looks for its values."""

    folder: Path
    env: dict[str, str]
    finders: dict[str, Finder]


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
        self._sources: dict[str, Source] = {}
        self._interpreters: dict[str, dict[str, Any]] = {}

    def into(self, folder: ResultsFolder) -> Command:
        """Return the same, for the trials of `folder`: a study's, or its tuning's."""
        self._folder = folder
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
        if self._context is None:
            _tell_uncommitted(sources)
        declares = study.program.declares
        controls = {name: (*keys, *declares.get(name, ())) for name, keys in KEYS.items()}
        if not any(setting.program.config for setting in settings.values()):
            del controls["configuration"]
        metrics = tuple(template.declared(name) for name, template in metrics_of(study).items())
        record = {"program": {arm: source.about for arm, source in sources.items()}}
        digests = {
            arm: {key: hashlib.sha256(text.encode()).hexdigest() for key, text in template.items()}
            for arm, template in templates.items()
            if template
        }
        if digests:
            record["templates"] = digests
        return Declaration(metrics, controls, must_be_finite=study.primary.metric, about=record)

    def run(self, study: Study, trials: Sequence[Trial]) -> Iterator[tuple[Trial, TrialRecord]]:
        """Run the program for each of `trials`, and yield the record of each when it has ended."""
        for arm, seed in trials:
            job = self._job(study, arm, seed)

            def hear(finders: Mapping[str, Finder], trial: Trial = (arm, seed)) -> None:
                t, value = _latest(finders, study.primary.metric)
                self._report("trained", trials=[trial], t=t, losses=[value])

            self._report("resumed", trials=[(arm, seed)], t=0)
            record = None
            while record is None:  # a program that fails is started again
                ended = self._run_program(study, job, hear)
                record = self._ended(study, job, ended)
            yield (arm, seed), record

    def changed_files(self, study: Study, registered: Mapping[str, Any]) -> list[str]:
        """Return the files that changed since the study began; `registered` is by arm."""
        for arm in study.arms:
            source, before = self._source(study, arm), registered.get(arm, {})
            if source.is_copied or source.about == before:
                continue
            files = before.get("files", {})
            names = [name for name in source.files if source.files[name] != files.get(name)]
            names += [name for name in files if name not in source.files]
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
        trials = [folder.trial(arm, seed) for seed in study.seeds]
        done = [trial for trial in trials if trial.is_finished]
        if not 2 <= len(done) <= SEEDS_ASKED:
            return
        name = study.primary.metric
        scores = {trial.seed: trial.read_json("evaluation.json").get(name) for trial in done}
        known = {seed: value for seed, value in scores.items() if value is not None}
        if len(known) > 1 and len(set(known.values())) == 1:
            words = ask_about_seed(arm, list(known), next(iter(known.values())))
            LOG_.warning("%s", words, extra={"once": f"seed {arm}"})

    def try_briefly(self, study: Study, seconds: float | None = None) -> dict[str, str]:
        """Run each arm's first seed for some seconds, into folders that are not kept.

        Returns by arm what was seen. Raises ParibusError where a program fails, or ended and a
        metric is not found.
        """
        limit = study.program.check_seconds if seconds is None else seconds
        if not limit:
            return dict.fromkeys(study.arms, "not started (trainer.check is 0)")
        seen: dict[str, str] = {}
        for arm in study.arms:
            job = self._job(study, arm, study.seeds[0])
            ended = self._run_program(study, job, lambda finders: None, timeout=limit)
            if ended.get("why") == "timeout":
                names = [name for name, finder in ended["found"].items() if finder.n]
                metrics = f"{', '.join(names)} seen" if names else "no metric seen yet"
                seen[arm] = f"still running after {limit:g} s, and ended; {metrics}"
                continue
            self._require_success(job, ended, is_kept=False)
            record = self._record(study, job, ended)
            scores = ", ".join(f"{name} {value:g}" for name, value in record.scores.items())
            seen[arm] = f"ended by itself after {ended['seconds']:.3g} s; {scores}"
        remove_copies(self._copies)
        return seen

    def _report(self, event: str, **content: Any) -> None:
        if self._context is not None:
            self._context.report(event, **content)

    def _run_program(
        self, study: Study, job: Job, hear: Hear, timeout: float | None = None
    ) -> dict[str, Any]:
        """Run the program of a trial once; returns how it ended."""
        task = self._task(study, job)
        program = job.setting.program
        env = os.environ | task.env
        slot = 0 if self._context is None else self._context.slot
        try:
            if program.gpus is not None:
                env[VISIBLE] = ",".join(shares(gpus(), program.gpus, slot))
            python = interpreter(job.command, str(task.folder), env)
            if python and python not in self._interpreters:
                self._interpreters[python] = packages(python, str(task.folder), env)
            reported, before = time.monotonic(), children()

            def hear_line(line: str) -> None:
                for finder in task.finders.values():
                    finder.hear(line)

            def tick() -> None:
                nonlocal reported
                if time.monotonic() - reported > REPORT_SECONDS:
                    reported = time.monotonic()
                    hear(task.finders)

            end = run_program(
                job.command,
                folder=task.folder,
                env=env,
                log=job.home / LOG,
                log_bytes=program.log_mib * MIB,
                hear=hear_line,
                timeout=program.timeout_seconds if timeout is None else timeout,
                tick=tick,
                end_others=partial(end_children, before),
            )
        except OSError as error:
            words = f"{error.strerror or error}: {error.filename}" if error.filename else str(error)
            return {"started": False, "words": words}
        return {
            "started": True,
            "code": end.code,
            "words": end.words,
            "seconds": end.seconds,
            "why": end.why,
            "n_bytes": end.n_bytes,
            "n_left_out": end.n_left_out,
            "last": end.last,
            "found": task.finders,
            "gpus": names_of(env.get(VISIBLE)),
            "software": self._interpreters.get(python, {}),
            "machine": machine(),
        }

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
        registered = read_registration(ResultsFolder(self._home))
        of_arms = (registered or {}).get(TRAINER, {}).get("program", {})
        return str(of_arms.get(arm, {}).get("commit", ""))

    def _require_programs(self, study: Study, sources: Mapping[str, Source]) -> None:
        """Raise ParibusError for a program that this machine does not have, where it runs here."""
        if not self._is_here:
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
        return Job(arm, seed, study.setting(arm), self._job_home(arm, seed))

    def _job_home(self, arm: str, seed: int) -> Path:
        return self._folder.path.absolute() / OUTPUTS / arm / f"seed-{seed}"

    def _task(self, study: Study, job: Job) -> ProgramTask:
        """Make the folder of a trial, put values in, and return what is started."""
        program, source = job.setting.program, self._source(study, job.arm)
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
            content = put(template, unlike).encode()
            job.controls["configuration"] = hashlib.sha256(content).hexdigest()
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
            name: (metric, metric.better) for name, metric in metrics_of(study).items()
        }
        if program.train_loss is not None:
            sources[TRAIN_LOSS] = (program.train_loss, "lower")
        finders = {
            name: Finder(source.stdout, source.take, better)
            for name, (source, better) in sources.items()
            if source.stdout
        }
        return ProgramTask(folder, env, finders)

    def _ended(self, study: Study, job: Job, ended: Mapping[str, Any]) -> TrialRecord | None:
        """Return the record of a trial that has ended; None where it is to be tried again."""
        program = job.setting.program
        is_failed = not ended["started"] or ended["why"] == "timeout" or ended["code"] != 0
        attempt = {"ended": ended["words"], "seconds": round(ended.get("seconds", 0.0), 3)}
        job.attempts.append(attempt)
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

    def _require_success(self, job: Job, ended: Mapping[str, Any], *, is_kept: bool = True) -> None:
        if not ended["started"]:
            raise ParibusError(f"trial {job.label} cannot be started: {ended['words']}")
        if ended["code"] or ended["why"]:
            way_on = (
                f"all it printed is in {job.home / LOG}; finished trials are kept: fix it and run "
                "again"
                if is_kept
                else "fix the program and check again"
            )
            raise ParibusError(
                f"trial {job.label} failed: {ended['words']}{_last(ended)}; {way_on}"
            )

    def _record(self, study: Study, job: Job, ended: Mapping[str, Any]) -> TrialRecord:
        """Return the record of a trial that ended well. Raises ParibusError for what it lacks."""
        reported = read_reported(job.home)
        finders: dict[str, Finder] = {}
        for name, metric in metrics_of(study).items():
            finders[name] = self._found(job, name, metric, metric.better, ended, reported)
            if not finders[name].n:
                self._refuse(job, name, metric, finders[name], ended, reported)
        scores = {name: _score(one) for name, one in finders.items()}
        loss = job.setting.program.train_loss
        if loss is not None:
            finders[TRAIN_LOSS] = self._found(job, TRAIN_LOSS, loss, "lower", ended, reported)
            if not finders[TRAIN_LOSS].n:
                self._refuse(job, TRAIN_LOSS, loss, finders[TRAIN_LOSS], ended, reported)
        for name, one in finders.items():
            if one.passed:
                LOG_.warning(
                    "trial %s: in the place of %s, %s was passed over; %g counts",
                    *(job.label, name, one.passed, _score(one)),
                    extra={"once": f"passed {job.arm} {name}"},
                )
            if len(one.labels) > 1:
                kinds = ", ".join(f"'{label}'" for label in one.labels)
                LOG_.warning(
                    "trial %s: the pattern of %s matches numbers of several names, %s; that of "
                    "'%s' counts: make it match one of them",
                    *(job.label, name, kinds, one.label),
                    extra={"once": f"names {name}"},
                )
        return self._written(study, job, ended, scores, reported, finders)

    def _found(
        self,
        job: Job,
        name: str,
        source: MetricSource,
        better: str,
        ended: Mapping[str, Any],
        reported: Reported,
    ) -> Finder:
        printed = {name: ended["found"][name]} if source.stdout else {}
        out = job.home / OUT
        return found_of(
            job.label, name, source, better, out=out, printed=printed, reported=reported
        )

    def _refuse(
        self,
        job: Job,
        name: str,
        source: MetricSource,
        finder: Finder,
        ended: Mapping[str, Any],
        reported: Reported,
    ) -> None:
        """Raise ParibusError: a trial that ended well has no value of a metric."""
        key = source.key or name
        if finder.unread:
            is_number = NUMBER.match(finder.unread)
            no = f"which '{source.stdout}' does not read whole" if is_number else "and no number"
            why = f"what was found in its place is '{finder.unread}', {no}"
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
        record = {
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
            record["last_steps"] = steps
        if passed := {name: one.passed for name, one in found.items() if one.passed}:
            record["passed"] = passed
        if labels := {name: [one.label, *one.labels] for name, one in found.items() if one.labels}:
            record["labels"] = labels
        if files := files_read(metrics_of(study).values(), job.home / OUT):
            record["files"] = files
        if job.config:
            record["config"] = job.config
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
            losses=[value for _, value in losses],
            steps=[round(step) for step, _ in losses],
            controls=job.controls,
            seconds=ended["seconds"],
            curves={name: one.points for name, one in found.items() if one.points},
            about=record,
            files=files,
        )


def _score(finder: Finder) -> float:
    assert finder.value is not None
    return finder.value


def _last(ended: Mapping[str, Any]) -> str:
    """Return the last lines of a program, for the end of a sentence."""
    lines = ended.get("last", [])[-SHOWN_LINES:]
    return (
        f"; its last lines: {' | '.join(line[-160:] for line in lines)}"
        if lines
        else ("; it printed nothing")
    )


def _latest(finders: Mapping[str, Finder], primary: str) -> tuple[int, float | None]:
    """Return step and value that a program printed last: of the training loss, or what decides."""
    for name in (TRAIN_LOSS, primary):
        finder = finders.get(name)
        if finder is not None and finder.n:
            is_number = finder.value is not None and math.isfinite(finder.value)
            return int(finder.step or 0), finder.value if is_number else None
    return 0, None


def _tell_uncommitted(sources: Mapping[str, Source]) -> None:
    warned = set()
    for source in sources.values():
        if source.uncommitted and source.uncommitted not in warned:
            warned.add(source.uncommitted)
            LOG_.warning(
                "%s has uncommitted changes (%s), of which the digest alone is recorded; commit "
                "them to run this again some day",
                *(source.top, some(source.changed, CHANGED_SHOWN)),
            )
