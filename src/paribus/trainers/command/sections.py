"""The sections of a study whose trainer is a command: `program`, `metrics` and `set`.

A study file has short forms for them: `[trainer]` is a table, an arm has a `ref`, and a margin is a
key of its metric. A loaded study has `trainer = "command"`, the section `program`, endpoints, and
arms as dotted overrides.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.errors import ParibusError, nearest
from paribus.metric import LONGEST, Better, Metric, Scale, readable
from paribus.study.base import MOST_ENTRIES, Part, TrialSetting
from paribus.study.protocol import StudyFormat
from paribus.study.study import Study
from paribus.study.trainer import COMMAND, StudyFacts

KEY = r"^[A-Za-z_][A-Za-z0-9_-]*$"
NAME = "[A-Za-z_][A-Za-z0-9_.-]*"
# `{name}` stands for a value, `{{name}}` for {name} itself; other braces are braces.
PLACEHOLDER = re.compile(rf"\{{\{{({NAME})\}}\}}|\{{({NAME})\}}")
# Names that stand for a value in every command, whatever [set] has.
BUILT_IN_NAMES = ("seed", "arm", "folder", "config", "python")
ENDPOINT_KEYS = ("margin", "primary", "smallest_effect")


Word = Annotated[str, Field(max_length=100_000)]
Words = Annotated[tuple[Word, ...], Field(strict=False, max_length=MOST_ENTRIES)]
# The group of a number, if it has no group within.
GROUP = re.compile(r"(?<!\\)\((?:\?P<value>|(?!\?))([^()]*)\)")
Value = bool | int | float | str
Control = (
    Literal["data", "initial weights", "source", "command", "configuration"]
    | Literal["software", "device", "seed", "steps"]
)


class MetricSource(Part):
    """The source of a number of a trial: its output, a file, or its report.

    The last of several values is the score; where they have steps, that of the last step.
    """

    stdout: Word = ""
    """A regular expression (Python's) of a line that is printed, its first group the number, or the
    group named `value`; a group named `step` makes a curve of it."""
    file: Word = ""
    """A file of JSON, JSON lines or CSV in `{folder}`; `key` says which number."""
    key: Word = ""
    """The name of the number there, with dots for tables in tables; by default the metric's."""
    step: Word = ""
    """The name of the step in the file. With it, the values make a curve."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.stdout and self.file:
            raise ValueError("stdout and file are two sources; set one of them")
        if self.stdout:
            try:
                groups = re.compile(self.stdout).groups
            except re.error as error:
                raise ValueError(f"stdout = '{self.stdout}' is not a pattern: {error}") from None
            if not groups:
                raise ValueError(r"put the number in parentheses, such as 'val_loss: (\S+)'")
            self._require_nan()
        return self

    def _require_nan(self) -> None:
        """Raise ValueError for a group that cannot match nan: it would keep an earlier number."""
        group = GROUP.search(self.stdout, max(self.stdout.find("(?P<value>"), 0))
        with contextlib.suppress(re.error):  # a bracket within a class
            if group and not re.fullmatch(group[1], "nan"):
                raise ValueError(
                    f"'({group[1]})' cannot read nan, which a diverged trial prints; write "
                    r"(\S+), which also reads nan"
                )


class ArmProgram(Part):
    """The keys of `[trainer]` that an arm may set."""

    command: Annotated[Words, Field(min_length=1)]
    """The program and its arguments, each a text of its own; no shell reads them. `{seed}`,
    `{arm}`, `{folder}` (of the trial, empty), `{config}`, `{python}` (that of paribus) and the
    keys of `[set]` stand for their values; `{{lr}}` is `{lr}` itself."""
    folder: Word = "."
    """Where the program is started: the working copy, relative to the study file."""
    env: Annotated[dict[str, Word], Field(max_length=MOST_ENTRIES)] = Field(default_factory=dict)
    """Environment variables, besides those that paribus was started with."""
    config: Word = ""
    """A template of a configuration file, with the same placeholders. `{config}` is the path of the
    filled-in file."""
    ref: Word = ""
    """A commit, branch or tag of the repository that `folder` is in: the program is run in a copy
    of it. Empty runs it in `folder` as it is."""


class Program(ArmProgram):
    """The table `[trainer]` of a study file."""

    timeout_minutes: Annotated[float, Field(gt=0)] | None = None
    """The longest that a trial may take; it is ended then. By default there is no limit."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """How often a trial that failed or took too long is started again, with the same seed."""
    failure: Literal["stop", "exclude"] = "stop"
    """What a failed trial means: the run stops; or it counts as an event, and is left out by
    name."""
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    """How many GPUs a trial is given by `CUDA_VISIBLE_DEVICES`, so that several trials share a
    machine; left out, it sees what paribus sees, and one runs at a time."""
    declares: Annotated[dict[Control, Words], Field(max_length=MOST_ENTRIES)] = Field(
        default_factory=dict
    )
    """By control (`data`, `initial weights`, ...) the keys by which an arm means to differ there:
    `{ data = ["set.batch_size"] }`."""
    train_loss: MetricSource | None = None
    """Where the training loss of each step is read, which spikes and divergence are seen in."""


class CommandMetric(MetricSource):
    """A number of a trial: its source, its meaning, and whether it is an endpoint."""

    better: Better
    """Which direction is an improvement: "lower", "higher" or "neither"."""
    label: Annotated[str, Field(max_length=LONGEST)] = ""
    """What readers are shown; by default its name."""
    unit: Annotated[str, Field(max_length=LONGEST)] = ""
    """Which direction of its values is better."""
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
        """Return the metric as it is declared to `paribus`."""
        label = self.label or readable(name)
        return Metric(
            name, label, self.unit, self.better, "evaluation", self.digits, scale=self.scale
        )


class Sections(Part):
    """The sections of a study that the trainer `command` reads."""

    program: Program
    metrics: Annotated[dict[str, CommandMetric], Field(min_length=1, max_length=MOST_ENTRIES)]
    set: Annotated[
        dict[Annotated[str, Field(pattern=KEY)], Value], Field(max_length=MOST_ENTRIES)
    ] = Field(default_factory=dict)


class CommandSetting(TrialSetting, Part):
    """The settings that an arm's trials run with."""

    program: ArmProgram
    set: dict[str, Value] = Field(default_factory=dict)

    def values(self, arm: str, seed: str, folder: str, config: str) -> dict[str, str]:
        """Return the values of placeholders, keyed by name."""
        values = (seed, arm, folder, config, sys.executable)
        own = {key: str(value) for key, value in self.set.items()}
        return own | dict(zip(BUILT_IN_NAMES, values, strict=True))

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the program and its arguments."""
        return [fill(text, values) for text in self.program.command]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` with its value, and `{{name}}` with `{name}`."""
    return PLACEHOLDER.sub(lambda match: values[match[2]] if match[2] else match[0][1:-1], text)


def require_filled(settings: Mapping[str, CommandSetting], templates: Mapping[str, str]) -> None:
    """Raise ParibusError for a placeholder without a value, or for an unused key in [set].

    Both arguments are keyed by arm; an arm's template is the text of its `config`.
    """
    keys = {key for setting in settings.values() for key in setting.set}
    used: set[str] = set()
    for arm, setting in settings.items():
        program = setting.program
        words = [*program.command, *program.env.values(), templates.get(arm, "")]
        known = {*setting.set, *BUILT_IN_NAMES} - (set() if program.config else {"config"})
        for match in PLACEHOLDER.finditer("\n".join(words)):
            if (name := match[2]) and name not in known:
                raise ParibusError(
                    f"arm '{arm}': {{{name}}} is unknown: {nearest(name, known)} (the text "
                    f"{{{name}}} itself is written {{{{{name}}}}})",
                    code="unknown",
                )
            used.add(name)
    for key in sorted(keys & set(BUILT_IN_NAMES)):
        raise ParibusError(f"set.{key} is a reserved name; rename it", code="conflict")
    for key in sorted(keys - used):
        raise ParibusError(
            f"set.{key} is not used, so it would change no trial; write {{{key}}} in the "
            "command, env or config"
        )


class CommandFormat(StudyFormat):
    """Study format of the trainer `command`."""

    model, setting_model = Sections, CommandSetting
    is_closed = False  # [set] has the keys that its study states
    free = (("program", "env"), ("program", "declares"))

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Convert a study file's table to the form of a loaded study. Raises ParibusError."""
        if isinstance(table.get("trainer"), dict):
            table = _from_file(table)
        try:
            endpoints = {endpoint["metric"]: endpoint for endpoint in table.get("endpoints", ())}
            for name, metric in table["metrics"].items():
                own = {key: metric[key] for key in ENDPOINT_KEYS if metric.get(key) is not None}
                default = {"metric": name, "primary": "margin" in own}
                endpoints[name] = default | endpoints.get(name, {}) | own
        except (AttributeError, KeyError, TypeError):  # the validation of the study refuses it
            return table
        return table | {"endpoints": list(endpoints.values())}

    def expand(self, overrides: Mapping[str, Any]) -> list[tuple[str, Any]]:
        """Return dotted overrides in order; a file's `trainer` is called `program` here."""
        return [(re.sub(r"^trainer\.", "program.", key), value) for key, value in overrides.items()]

    def word(self, problem: str) -> str:
        """Return a message in which `program` is called `trainer`, as in the study file."""
        return re.sub(r"\bprogram(?=[.:])", "trainer", problem)

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the dumped sections that arms override."""
        program = study.program.model_dump(include=set(ArmProgram.model_fields))
        return study.model_dump(include={"set"}) | {"program": program}

    def validate(self, study: Study) -> None:
        """Raise ParibusError for `tuning.iterations`, which only the engine supports."""
        if study.tuning is not None and study.tuning.iterations is not None:
            raise ParibusError(
                "tuning.iterations shortens trials of the trainer 'stacked'; a command sets its "
                "steps in [set]: remove tuning.iterations",
                code="unsupported",
            )

    def tuning_problem(self, key: str) -> str:
        """Return the reason why a key cannot be tuned, or "" if it can."""
        if key.startswith("set."):
            return ""
        return f"tuning has '{key}'; only keys of [set] of a command can be tuned"

    def facts(self, study: Study) -> StudyFacts:
        """Return the templates that the study names."""
        names = {study.setting(arm).program.config for arm in study.arms} - {""}
        return StudyFacts(texts=tuple((study.folder / name).resolve() for name in sorted(names)))


def _from_file(table: dict[str, Any]) -> dict[str, Any]:
    """Expand the short forms in a study file's table. Raises ParibusError."""
    for key, name in (("program", "[trainer]"), ("endpoints", "[metrics.NAME]")):
        if key in table:
            raise ParibusError(f"{key} of a command must be set only in {name}", code="conflict")
    program = {key: value for key, value in table["trainer"].items() if key != "kind"}
    table = table | {"trainer": COMMAND, "program": program}
    if isinstance(arms := table.get("arms"), dict):
        table["arms"] = {name: _arm(arm) for name, arm in arms.items()}
    if isinstance(tuning := table.get("tuning"), dict):
        tuned = {"grid": _dotted(tuning.get("grid"))}
        if isinstance(listed := tuning.get("combinations"), list):
            tuned["combinations"] = [_dotted(candidate) for candidate in listed]
        table["tuning"] = tuning | {key: value for key, value in tuned.items() if key in tuning}
    return table


def _arm(arm: Any) -> Any:
    """Convert an arm's short keys to dotted overrides: `ref` becomes "program.ref"."""
    if not isinstance(arm, dict) or not isinstance(arm.get("set", {}), dict):
        return arm
    short = [key for key in ArmProgram.model_fields if key in arm]
    rest = {key: value for key, value in arm.items() if key not in short}
    program = {f"program.{key}": arm[key] for key in short}
    if isinstance(arm.get("env"), dict):
        del program["program.env"]
        program |= {f"program.env.{name}": value for name, value in arm["env"].items()}
    return rest | {"set": _dotted(arm.get("set", {})) | program}


def _dotted(values: Any) -> Any:
    """Prefix keys with "set." unless they name a section: `lr` becomes "set.lr"."""
    if not isinstance(values, dict):
        return values
    tables = ("trainer.", "program.", "set.")
    return {k if str(k).startswith(tables) else f"set.{k}": value for k, value in values.items()}


FORMAT = CommandFormat()
