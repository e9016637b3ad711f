"""Study sections of the trainer `command`: `program`, `metrics` and `set`.

Study files use shorthand: `[trainer]` is a table, an arm may have a `ref`, and a metric may have
a margin. A loaded study has `trainer = "command"`, the section `program`, endpoints, and arms as
dotted overrides.
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
from paribus.study.base import Part, TrialSetting
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
Words = Annotated[tuple[Word, ...], Field(strict=False)]
# The group of a number, if it has no group within.
GROUP = re.compile(r"(?<!\\)\((?:\?P<value>|(?!\?))([^()]*)\)")
Value = bool | int | float | str
Control = (
    Literal["data", "initial weights", "source", "command", "configuration"]
    | Literal["software", "device", "seed", "steps"]
)


class MetricSource(Part):
    """Source of a metric's values: the program's output, a file, or the program's report.

    The score is the value at the last step, or the last value if values have no steps.
    """

    stdout: Word = ""
    """Python regular expression that matches a line of output. The number is the group `value`, or
    else the first group. With a group `step`, the values form a curve."""
    file: Word = ""
    """Name of a JSON, JSON Lines or CSV file in `{folder}`, from which `key` is read."""
    key: Word = ""
    """Key of the number in the file or report, dotted if nested; by default the metric's name."""
    step: Word = ""
    """Key of the step in the file. With this key, the values form a curve."""

    @model_validator(mode="after")
    def _is_complete(self) -> Self:
        if self.stdout and self.file:
            raise ValueError("stdout and file are both set; remove one of them")
        if self.stdout:
            try:
                groups = re.compile(self.stdout).groups
            except re.error as error:
                raise ValueError(f"stdout = '{self.stdout}' is not a regex: {error}") from None
            if not groups:
                raise ValueError(r"stdout needs a group for the number, as in 'val_loss: (\S+)'")
            self._require_nan()
        return self

    def _require_nan(self) -> None:
        """Raise ValueError if the group does not match nan, which would hide a divergence."""
        group = GROUP.search(self.stdout, max(self.stdout.find("(?P<value>"), 0))
        with contextlib.suppress(re.error):  # a bracket within a class
            if group and not re.fullmatch(group[1], "nan"):
                raise ValueError(
                    f"'({group[1]})' does not match nan, which a diverged trial prints; use "
                    r"(\S+), which matches nan"
                )


class ArmProgram(Part):
    """Keys of `[trainer]` that an arm may override."""

    command: Annotated[Words, Field(min_length=1)]
    """Program and arguments, as separate strings that are not parsed by a shell. The placeholders
    `{seed}`, `{arm}`, `{folder}` (the trial's output folder), `{config}`, `{python}` (the current
    interpreter) and the keys of `[set]` are replaced; `{{lr}}` is a literal `{lr}`."""
    folder: Word = "."
    """Working directory of the program, relative to the study file."""
    env: dict[str, Word] = Field(default_factory=dict)
    """Environment variables, in addition to those of the paribus process."""
    config: Word = ""
    """Template of a configuration file, with the same placeholders; `{config}` is the path of the
    rendered file."""
    ref: Word = ""
    """Commit, branch or tag of the repository that contains `folder`; the program runs in a clone
    at this commit. If empty, the program runs in `folder`."""


class Program(ArmProgram):
    """The `[trainer]` table of a study file."""

    timeout_minutes: Annotated[float, Field(gt=0)] | None = None
    """Time limit of a trial, after which it is terminated; None means no limit."""
    retries: Annotated[int, Field(ge=0, le=100)] = 0
    """Maximum number of times that a failed or timed-out trial is restarted with the same seed."""
    failure: Literal["stop", "exclude"] = "stop"
    """Effect of a failed trial: stop the run, or count the failure and exclude the trial from the
    comparison."""
    gpus: Annotated[int, Field(ge=0, le=1024)] | None = None
    """Number of GPUs per trial, assigned through `CUDA_VISIBLE_DEVICES` so that trials can share a
    machine. If None, trials run one at a time and see all GPUs that paribus sees."""
    declares: dict[Control, Words] = Field(default_factory=dict)
    """Keys that intentionally change a control (`data`, `initial weights`, ...), such as
    `{ data = ["set.batch_size"] }`."""
    train_loss: MetricSource | None = None
    """Source of the training loss at each step, used to detect loss spikes and divergence."""


class CommandMetric(MetricSource):
    """Metric of a trial, with its source, its meaning, and its role as an endpoint."""

    better: Better
    """Direction of improvement: "lower", "higher" or "neither"."""
    label: Annotated[str, Field(max_length=LONGEST)] = ""
    """Display name; by default derived from the metric's name."""
    unit: Annotated[str, Field(max_length=LONGEST)] = ""
    """Unit of the values, such as "nats/token"."""
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    """Number of decimal places shown."""
    scale: Scale = "linear"
    """Use "log" if changes are ratios and the margin is relative."""
    margin: Annotated[float, Field(gt=0)] | None = None
    """Equivalence margin; differences within +- margin are too small to matter."""
    primary: bool | None = None
    """Whether the metric is a primary endpoint; by default, metrics with a margin are."""
    smallest_effect: Annotated[float, Field(gt=0)] | None = None
    """Smallest difference worth detecting."""

    def declared(self, name: str) -> Metric:
        """Convert the section to a `Metric` called `name`."""
        label = self.label or readable(name)
        return Metric(
            name, label, self.unit, self.better, "evaluation", self.digits, scale=self.scale
        )


class Sections(Part):
    """Study sections that the trainer `command` reads."""

    program: Program
    metrics: Annotated[dict[str, CommandMetric], Field(min_length=1)]
    set: dict[Annotated[str, Field(pattern=KEY)], Value] = Field(default_factory=dict)


class CommandSetting(TrialSetting, Part):
    """Resolved settings of an arm's trials."""

    program: ArmProgram
    set: dict[str, Value] = Field(default_factory=dict)

    def values(self, arm: str, seed: str, folder: str, config: str) -> dict[str, str]:
        """Return the placeholder values, keyed by name."""
        values = (seed, arm, folder, config, sys.executable)
        own = {key: str(value) for key, value in self.set.items()}
        return own | dict(zip(BUILT_IN_NAMES, values, strict=True))

    def argv(self, values: Mapping[str, str]) -> list[str]:
        """Return the command line, with placeholders replaced by `values`."""
        return [fill(text, values) for text in self.program.command]


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` with its value, and `{{name}}` with `{name}`."""
    return PLACEHOLDER.sub(lambda match: values[match[2]] if match[2] else match[0][1:-1], text)


def require_filled(settings: Mapping[str, CommandSetting], templates: Mapping[str, str]) -> None:
    """Raise ParibusError for an unknown placeholder, or for an unused key in [set].

    Both arguments are keyed by arm. An arm's template is the text of its `config` file.
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
                    f"arm '{arm}' uses the unknown placeholder {{{name}}}; {nearest(name, known)} "
                    f"(write {{{{{name}}}}} for a literal {{{name}}})",
                    code="unknown",
                )
            used.add(name)
    for key in sorted(keys & set(BUILT_IN_NAMES)):
        raise ParibusError(f"set.{key} is a built-in placeholder; rename it", code="conflict")
    for key in sorted(keys - used):
        raise ParibusError(
            f"set.{key} has no effect, because no placeholder uses it; write {{{key}}} in the "
            "command, env or config"
        )


class CommandFormat(StudyFormat):
    """Study format of the trainer `command`."""

    model, setting_model = Sections, CommandSetting
    is_closed = False  # [set] has the keys that its study states
    free = (("program", "env"), ("program", "declares"))

    def as_study(self, table: dict[str, Any]) -> dict[str, Any]:
        """Convert the table of a study file to that of a loaded study."""
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
        """Return dotted overrides in order, with the prefix `trainer.` renamed to `program.`."""
        return [(re.sub(r"^trainer\.", "program.", key), value) for key, value in overrides.items()]

    def word(self, problem: str) -> str:
        """Replace internal keys in an error message with those of the study file."""
        problem = re.sub(r"\b(arms\.[^. ]+\.)set\.(?:program\.|(?=set\.))", r"\1", problem)
        return re.sub(r"\bprogram(?=[.:])", "trainer", problem)

    def suggested(self, table: Mapping[str, Any]) -> list[str]:
        """Return the short keys of arms, and the keys of [set]."""
        shared = table["set"] if isinstance(table.get("set"), dict) else {}
        return [*(f"arms.{k}" for k in ArmProgram.model_fields), *(f"set.{k}" for k in shared)]

    def shared(self, study: Study) -> dict[str, Any]:
        """Return the sections that arms may override, as plain dicts."""
        program = study.program.model_dump(include=set(ArmProgram.model_fields))
        return study.model_dump(include={"set"}) | {"program": program}

    def validate(self, study: Study) -> None:
        """Raise ParibusError for `tuning.iterations`, which only the engine supports."""
        if study.tuning is not None and study.tuning.iterations is not None:
            raise ParibusError(
                "tuning.iterations requires the trainer 'stacked'; remove it, and set the number "
                "of steps in [set]",
                code="unsupported",
            )

    def tuning_problem(self, key: str) -> str:
        """Return the reason why a key cannot be tuned, or "" if it can."""
        if key.startswith("set."):
            return ""
        return f"tuning cannot vary '{key}'; choose a key in [set]"

    def facts(self, study: Study) -> StudyFacts:
        """Return the paths of the study's configuration templates."""
        names = {study.setting(arm).program.config for arm in study.arms} - {""}
        return StudyFacts(texts=tuple((study.folder / name).resolve() for name in sorted(names)))


def _from_file(table: dict[str, Any]) -> dict[str, Any]:
    """Expand the shorthand of a study table, or raise ParibusError for a disallowed section."""
    for key, name in (("program", "[trainer]"), ("endpoints", "[metrics.NAME]")):
        if key in table:
            raise ParibusError(f"a command study cannot have [{key}]; use {name}", code="conflict")
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
    """Convert an arm's shorthand keys to dotted overrides: `ref` becomes "program.ref"."""
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
