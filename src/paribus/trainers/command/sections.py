"""What a study file says of a command: `[trainer]`, `[metrics.NAME]`, `[set]`, and arms of these.

A file may be written as people think of it (`[trainer]` is a table, an arm has a `ref`, a margin
stands beside its metric). A study has it in the form of every other one: `trainer = "command"`, the
sections `program`, `metrics` and `set`, endpoints, and arms as dotted overrides.
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.metric import LONGEST, Better, Metric, Scale, readable
from paribus.study.base import Part, TrialSetting
from paribus.study.bounds import MOST_ENTRIES
from paribus.study.study import Study
from paribus.study.trainer import COMMAND, StudyFacts, StudyFormat

KEY = r"^[A-Za-z_][A-Za-z0-9_-]*$"
NAMED = "[A-Za-z_][A-Za-z0-9_.-]*"
# `{name}` stands for a value, `{{name}}` for {name} itself; other braces are braces.
PLACE = re.compile(rf"\{{\{{({NAMED})\}}\}}|\{{({NAMED})\}}")
# What stands for itself in a command, whatever is in [set].
GIVEN = ("seed", "arm", "folder", "config", "python")
DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(s|m|min|h|d)")
NONE = re.compile(r"0+(\.0+)?s?")
UNITS = {"s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}
MIB = 2**20

Word = Annotated[str, Field(max_length=100_000)]
Words = Annotated[tuple[Word, ...], Field(strict=False, max_length=MOST_ENTRIES)]
Value = bool | int | float | str


def seconds(text: str) -> float:
    """Return a time such as "90s", "10m", "2h" or "1d" in seconds. Raises ValueError."""
    match = DURATION.fullmatch(text.strip())
    if not match or not float(match[1]):
        raise ValueError(f"'{text}' must be a number and a unit, such as 90s, 10m, 2h or 1d")
    return float(match[1]) * UNITS[match[2]]


class MetricSource(Part):
    """Where a number of a trial is read: from what it prints, a file, a reader, or its report."""

    stdout: Word = ""
    """A regular expression (Python's) of a line that is printed, its first group the number, or the
    group named `value`; a group named `step` makes a curve of it."""
    file: Word = ""
    """A file of JSON, or of JSON lines, in `{folder}`; `key` says which number."""
    key: Word = ""
    """The name of the number there, with dots for tables in tables; by default the metric's."""
    step: Word = ""
    """The name of the step there; it makes a curve of it."""
    reader: Word = ""
    """A reader of finished runs (`paribus judge`), which reads `path`; `key` is its score."""
    path: Word = ""
    """What `reader` reads, in `{folder}`."""
    take: Literal["last", "first", "best"] = "last"
    """Which of several values is the score; where they have steps, the last is that of the last
    step. `best` chooses, and flatters whoever is measured more often."""

    @model_validator(mode="after")
    def _is_one(self) -> Self:
        stated = [name for name in ("stdout", "file", "reader") if getattr(self, name)]
        if len(stated) > 1:
            raise ValueError(f"{' and '.join(stated)} are two sources; state one")
        if self.stdout:
            try:
                groups = re.compile(self.stdout).groups
            except re.error as error:
                raise ValueError(f"stdout = '{self.stdout}' is no pattern: {error}") from None
            if not groups:
                raise ValueError(
                    f"stdout = '{self.stdout}' has no group; put the number in parentheses, such "
                    r"as 'val_loss: (\S+)'"
                )
        if self.reader and not self.path:
            raise ValueError(f"reader = '{self.reader}' reads a path in {{folder}}; state path")
        return self

    @property
    def is_reported(self) -> bool:
        """Whether the program reports it itself, by `paribus.trial`."""
        return not (self.stdout or self.file or self.reader)


class Program(Part):
    """How a trial is started: the table `[trainer]` of a study file."""

    command: Words | Word = ()
    """The program and its arguments, each a text of its own; no shell reads them. `{seed}`,
    `{arm}`, `{folder}` (of the trial, empty), `{config}`, `{python}` (the one that runs paribus)
    and the keys of `[set]` stand for their values; `{{lr}}` is `{lr}` itself."""
    args: Words = ()
    """Further arguments, after those of `command`: what an arm adds."""
    shell: bool = False
    """Whether `command` is one text that a shell reads; what is put into it is quoted."""
    folder: Word = "."
    """Where the program is started: the working copy, relative to the study file."""
    env: Annotated[dict[str, Word], Field(max_length=MOST_ENTRIES)] = Field(default_factory=dict)
    """Environment variables, besides those that paribus was started with."""
    config: Word = ""
    """A configuration file that is a template: `{config}` is the path of what it gives with values
    put in."""
    ref: Word = ""
    """A commit, branch or tag of the repository that `folder` is in: the program is run in a copy
    of it. Empty runs it in `folder` as it is."""
    patch: Word = ""
    """A patch file that is applied to such a copy."""
    link: Words = ()
    """Of a copy: what it lacks and finds in `folder` through links, such as "data/*.bin"."""
    timeout: Word = ""
    """The longest that a trial may take, such as "2h"; it is ended then. Empty sets no limit."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """How often a trial is started again that failed or took too long, with the same seed."""
    failure: Literal["stop", "exclude"] = "stop"
    """What a trial means that failed for good: the run stops; or it counts as an event, and is left
    out by name."""
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    """How many GPUs a trial is given by `CUDA_VISIBLE_DEVICES`, so that several trials share a
    machine; left out, it sees what paribus sees, and one runs at a time."""
    log_mib: Annotated[int, Field(ge=1, le=1024)] = 16
    """How much of what a trial prints is kept, its beginning and its end."""
    check: Word = "10s"
    """How long `paribus check` runs each arm; "0s" runs none."""
    declares: Annotated[dict[str, Words], Field(max_length=MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    """By control (`data`, `initial weights`, ...) the keys by which an arm means to differ there:
    `{ data = ["set.batch_size"] }`."""
    train_loss: MetricSource | None = None
    """Where the training loss of each step is read, which spikes and divergence are seen in."""

    @model_validator(mode="after")
    def _can_be_run(self) -> Self:
        if self.shell != isinstance(self.command, str):
            raise ValueError(
                "command is one text, which a shell would read: set shell = true, or write a list "
                'such as ["python", "train.py", "--seed={seed}"]'
                if isinstance(self.command, str)
                else "shell = true takes one text as command, as it is typed"
            )
        if not self.command or not self.command[0].strip():
            raise ValueError('command is missing, such as ["python", "train.py", "--seed={seed}"]')
        for name in ("timeout", "check"):
            text = getattr(self, name)
            if text and not (name == "check" and NONE.fullmatch(text)):
                try:
                    seconds(text)
                except ValueError as error:
                    raise ValueError(f"{name} = {error}") from None
        return self

    @property
    def timeout_seconds(self) -> float | None:
        """The longest that a trial may take; None without a limit."""
        return seconds(self.timeout) if self.timeout else None

    @property
    def check_seconds(self) -> float:
        """How long a check runs an arm."""
        return 0.0 if NONE.fullmatch(self.check) else seconds(self.check)

    @property
    def is_copied(self) -> bool:
        """Whether the program is run in a copy of its repository."""
        return bool(self.ref or self.patch)


class CommandMetric(MetricSource):
    """A number of a trial: where it is read, what it is, and whether it decides."""

    better: Better
    """Which direction is an improvement: "lower", "higher" or "neither"."""
    label: Annotated[str, Field(max_length=LONGEST)] = ""
    """What readers are shown; by default its name."""
    unit: Annotated[str, Field(max_length=LONGEST)] = ""
    """Of its values."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Decimal places that are shown."""
    scale: Scale = "linear"
    """"log" where changes are ratios, and a margin is a share."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Differences within +- margin are too small to matter; with it, the metric decides."""
    primary: bool | None = None
    """Whether it decides; by default where it has a margin."""
    smallest_effect: Annotated[float, Field(gt=0)] | None = None
    """The smallest change worth detecting, as of any endpoint."""

    def declared(self, name: str) -> Metric:
        """Return what it is, as records have it."""
        about = (self.label or readable(name), self.unit, self.better)
        return Metric(name, *about, "evaluation", self.digits, scale=self.scale)


ENDPOINT = ("margin", "primary", "smallest_effect")


class Sections(Part):
    """All of a study file that the trainer `command` reads."""

    program: Program
    metrics: Annotated[dict[str, CommandMetric], Field(min_length=1, max_length=MOST_ENTRIES)]
    set: Annotated[
        dict[Annotated[str, Field(pattern=KEY)], Value], Field(max_length=MOST_ENTRIES)
    ] = Field(default_factory=dict)


class CommandSetting(TrialSetting, Part):
    """What a trial of an arm is started with, besides its seed."""

    program: Program
    set: dict[str, Value] = Field(default_factory=dict)

    @property
    def texts(self) -> dict[str, str]:
        """The texts that values are put into, by their key; the template of `config` is a file."""
        program = self.program
        words = [program.command] if isinstance(program.command, str) else program.command
        places = {f"command[{n}]": word for n, word in enumerate(words)}
        places |= {f"args[{n}]": word for n, word in enumerate(program.args)}
        return places | {f"env.{name}": text for name, text in program.env.items()}

    def places(self, also: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
        """Return {name: key of the text that has it} of all placeholders; `also` are more texts."""
        return {
            match[2]: key
            for key, text in {**self.texts, **also}.items()
            for match in PLACE.finditer(text)
            if match[2]
        }

    def values(self, arm: str, seed: int | str, folder: str, config: str) -> dict[str, str]:
        """Return what placeholders stand for."""
        from sys import executable

        given = (str(seed), arm, folder, config, executable)
        of_set = {key: str(value) for key, value in self.set.items()}
        return of_set | dict(zip(GIVEN, given, strict=True))

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the program and its arguments; of a shell's, the shell and its line."""
        program = self.program
        if isinstance(program.command, str):
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            line = " ".join(put(text, quoted) for text in (program.command, *program.args))
            return ["/bin/sh", "-c", line]
        return [put(text, values) for text in (*program.command, *program.args)]


def put(text: str, values: Mapping[str, str]) -> str:
    """Return a text with values in the place of `{name}`, and `{name}` in that of `{{name}}`."""
    return PLACE.sub(lambda match: values[match[2]] if match[2] else match[0][1:-1], text)


def _in_this_form(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a study file in the form of a study. Raises ParibusError."""
    section = table.get("trainer")
    if not isinstance(section, dict):
        return table
    table = {key: value for key, value in table.items() if key != "trainer"}
    if "program" in table:
        raise ParibusError("[program] and [trainer] say the same; write [trainer] alone")
    table["trainer"] = COMMAND
    table["program"] = {key: value for key, value in section.items() if key != "kind"}
    arms = table.get("arms")
    if isinstance(arms, dict):
        table["arms"] = {name: _arm(name, arm) for name, arm in arms.items()}
    tuning = table.get("tuning")
    if isinstance(tuning, dict):
        table["tuning"] = tuning | _tuned(tuning)
    return table


def _tuned(tuning: dict[str, Any]) -> dict[str, Any]:
    """Return what a tuning tries, by dotted keys of the study."""
    arms: dict[str, Any] = {}
    if isinstance(grid := tuning.get("grid"), dict):
        arms["grid"] = {_key(key): values for key, values in grid.items()}
    if isinstance(listed := tuning.get("combinations"), list):
        arms["combinations"] = [
            {_key(key): value for key, value in candidate.items()}
            if isinstance(candidate, dict)
            else candidate
            for candidate in listed
        ]
    return arms


OF_ARMS = ("ref", "patch", "args", "command", "config", "folder", "env")


def _arm(name: str, arm: Any) -> Any:
    """Return an arm whose short keys are dotted overrides: `ref` is "program.ref"."""
    if not isinstance(arm, dict):
        return arm
    table = {key: value for key, value in arm.items() if key not in OF_ARMS}
    given = arm.get("set", {})
    if isinstance(given, dict):
        for key, value in given.items():
            if isinstance(value, dict):
                raise ParibusError(
                    f"arm '{name}': set.{key} is a table; a key of [set] is one value"
                )
        table["set"] = {_key(key): value for key, value in given.items()}
        for key in OF_ARMS:
            if key in arm and key != "env":
                table["set"][f"program.{key}"] = arm[key]
        env = arm.get("env", {})
        if not isinstance(env, dict):
            raise ParibusError(f"arm '{name}': env = {env!r:.40} must be a table of texts")
        table["set"] |= {f"program.env.{key}": value for key, value in env.items()}
    return table


def _key(key: str) -> str:
    """Return the dotted key of what a file may call shortly: `lr` is "set.lr"."""
    head, _, rest = str(key).partition(".")
    if head in ("trainer", "program") and rest:
        return f"program.{rest}"
    return key if head == "set" and rest else f"set.{key}"


class CommandFormat(StudyFormat):
    """How studies of commands are read."""

    free = (("program", "env"), ("program", "declares"))

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Return a study file's table in the form of a study. Raises ParibusError."""
        metrics = table.get("metrics")
        is_file = isinstance(table.get("trainer"), dict)
        table = _in_this_form(table)
        if isinstance(metrics, dict) and metrics:
            stated = table.get("endpoints")
            stated_metrics = {
                endpoint["metric"]: endpoint
                for endpoint in (stated if isinstance(stated, list | tuple) else ())
                if isinstance(endpoint, dict) and "metric" in endpoint
            }
            endpoints = dict(stated_metrics)
            for name, metric in metrics.items():
                if isinstance(metric, dict):
                    endpoints[name] = _endpoint(
                        name, metric, stated_metrics.get(name, {}), strict=is_file
                    )
            table = table | {"endpoints": [endpoints[name] for name in endpoints]}
            if not any(endpoint.get("primary") for endpoint in endpoints.values()):
                raise ParibusError(
                    "no metric decides; give one a margin, the largest change that you would call "
                    f"no change, such as [metrics.{next(iter(metrics))}] margin = 0.02"
                )
        return table

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides in order; a file's `trainer` is called `program` here."""
        return [(re.sub(r"^trainer\.", "program.", key), value) for key, value in overrides.items()]

    def sections(self, table: dict[str, Any], others: Sequence[str]) -> dict[str, Any]:
        """Return the sections, validated. Raises ParibusError."""
        missing = {"program": "[trainer]", "metrics": "[metrics.NAME]"}
        for name, written in missing.items():
            if name not in table:
                raise ParibusError(f"{written} is missing: a command needs one")
        try:
            found = Sections.model_validate(table)
        except ValidationError as error:
            text = explain(error, Sections, others)
            raise ParibusError(text.replace("program.", "trainer.")) from None
        return {name: getattr(found, name) for name in Sections.model_fields}

    def setting(self, shared: dict[str, Any]) -> CommandSetting:
        """Return what a trial is started with. Raises ParibusError."""
        try:
            return CommandSetting.model_validate(shared)
        except ValidationError as error:
            raise ParibusError(
                explain(error, CommandSetting).replace("program.", "trainer.")
            ) from None

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        return study.model_dump(include={"program", "set"})

    def validate(self, study: Study) -> None:
        """Raise ParibusError if arms are not treated alike, or a key of [set] has no effect."""
        if study.tuning is not None and study.tuning.iterations is not None:
            raise ParibusError(
                "tuning.iterations shortens trials of the trainer 'stacked'; a command has its "
                "steps in [set]: remove tuning.iterations",
                code="unsupported",
            )
        for arm, spec in study.arms.items():
            for key in spec.set:
                if key.removeprefix("program.") in ALIKE:
                    raise ParibusError(
                        f"arm '{arm}' sets {key}, which is the same for every arm; set it in "
                        "[trainer]"
                    )
        settings = {arm: study.setting(arm) for arm in study.arms}
        for arm, setting in settings.items():
            require_known(arm, setting)
        if not any(setting.program.config for setting in settings.values()):
            require_put(settings)
        tuned = study.tuning.keys if study.tuning else ()
        known = study.model_extra["set"] if study.model_extra else {}
        for key in tuned:
            if key.removeprefix("set.") not in known:
                raise ParibusError(
                    f"tuning has '{key}', which is no key of [set]: "
                    f"{nearest(key.removeprefix('set.'), known)}"
                )
        names = {"data", "initial weights", *CONTROLS}
        for name in study.program.declares:
            if name not in names:
                raise ParibusError(
                    f"trainer.declares has '{name}', which is no control: {nearest(name, names)}"
                )

    def tuning_problem(self, key: str) -> str:
        """Return why a key cannot be tuned; empty if it can."""
        if key.startswith("set."):
            return ""
        return f"tuning has '{key}'; only keys of [set] of a command can be tuned"

    def facts(self, study: Study) -> StudyFacts:
        """Return the templates and patches that the study names."""
        files = []
        for arm in study.arms:
            program = study.setting(arm).program
            files += [study.folder / name for name in (program.config, program.patch) if name]
        return StudyFacts(texts=tuple(file.resolve() for file in dict.fromkeys(files)))


# Keys of a program that are of the whole study.
ALIKE = ("timeout", "retries", "failure", "gpus", "log_mib", "check", "declares", "train_loss")
CONTROLS = ("source", "command", "configuration", "software", "device", "seed", "steps")


def _endpoint(
    name: str, metric: Mapping[str, Any], there: Mapping[str, Any], *, strict: bool
) -> dict[str, Any]:
    """Return the endpoint of a metric, which states it itself or in `[[endpoints]]`."""
    stated = {key: metric[key] for key in ENDPOINT if metric.get(key) is not None}
    for key in stated if strict else ():
        if key in there and there[key] != stated[key]:
            raise ParibusError(
                f"[metrics.{name}] and its endpoint state {key} as {stated[key]} and {there[key]}; "
                "state it once"
            )
    metric_table = {key: value for key, value in there.items() if value is not None} | stated
    primary = {"primary": bool(stated.get("margin"))} if stated else {}
    return primary | metric_table | {"metric": name}


def require_known(
    arm: str, setting: CommandSetting, also: Mapping[str, str] = MappingProxyType({})
) -> None:
    """Raise ParibusError where a text, or one of `also`, has a place for what nobody knows."""
    known = {*setting.set, *GIVEN}
    if not setting.program.config:
        known.discard("config")
    for name, key in setting.places(also).items():
        if name not in known:
            raise ParibusError(
                f"arm '{arm}': {{{name}}} in {key} is nothing that is known: "
                f"{nearest(name, known)} (as it stands it is written {{{{{name}}}}})"
            )
    for name, value in setting.set.items():
        if name in GIVEN:
            raise ParibusError(f"set.{name} is a name that paribus gives; choose another")
        if isinstance(value, float) and not math.isfinite(value):
            raise ParibusError(f"set.{name} = {value} is no finite number")


def require_put(
    settings: Mapping[str, CommandSetting],
    templates: Mapping[str, Mapping[str, str]] = MappingProxyType({}),
) -> None:
    """Raise ParibusError for a key of [set] that no text has a place for: no trial would differ."""
    used = {
        name
        for arm, template in settings.items()
        for name in template.places(templates.get(arm, {}))
    }
    for setting in settings.values():
        for key in setting.set:
            if key not in used:
                raise ParibusError(
                    f"set.{key} is put nowhere, so that no trial would differ by it; write "
                    f"{{{key}}} into the command, env or config"
                )


FORMAT = CommandFormat()
