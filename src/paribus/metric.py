"""Metadata of metrics: unit, direction, label, number of digits, and location in the records.

Measures, probes, trainers and the task suite declare their metrics. The declarations are stored in
trials and registrations, so results can be read without running custom code.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from functools import cache, cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass

from paribus import numbers
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.explain import explain

Better = Literal["lower", "higher", "neither"]
Where = Literal["evaluation", "parts", "tasks", "steps", "probes", "turns", "curve"]
Scale = Literal["linear", "log"]

LEAST_SHARE = -0.999_999  # nothing can lose all that it is
RATIO_DIGITS = 4  # of the logarithm of a ratio
OF_TRIALS = ("arm", "seed", "diverged")  # columns beside the scores of each
DIVIDED = ("evaluation", "tasks", "probes")  # what has parts

LONGEST = 200  # of a name or a label, in characters
DECLARED = ConfigDict(strict=True, extra="forbid", allow_inf_nan=False, defer_build=True)

QUESTIONS = "questions"  # items of tasks
SHARE = "share"  # the unit of what is shown as per cent


def one_line(text: str) -> str:
    """Validate that `text` is one line of printable characters, and return it unchanged."""
    if not (text + "a").isprintable():
        raise ValueError(f"{text!r:.80} must be one line of printable characters")
    return text


Line = Annotated[str, Field(max_length=LONGEST), AfterValidator(one_line)]
Words = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(one_line)]


@dataclass(frozen=True, config=DECLARED)
class ItemSums:
    """Definition of a held-out metric as a ratio of sums over items: scale x total / count.

    Items are documents or windows. Inference about new items resamples items together with their
    sums.

    Attributes:
        total, count: columns of a trial's blocks.parquet with the numerator and the denominator of
            each block of items.
        scale: factor that converts total / count to the metric's unit.
        step: smallest possible change of a total, such as 1 for a count; 0 if continuous.
    """

    total: Words
    count: Words
    scale: Annotated[int | float, Field(gt=0)] = 1.0
    step: Annotated[int | float, Field(ge=0)] = 0.0


Items = Literal["", "questions"] | ItemSums


@dataclass(frozen=True, config=DECLARED)
class Metric:
    """Metadata of a metric, which has one value per trial.

    Attributes:
        name: name in study files. A part of a measure is `measure/part`, a column of a probe
            `probe/part/statistic`; the probe's name alone is its first column. The accuracy on a
            task is `task_accuracy/task`.
        label: display name.
        unit: unit of the values, or "" if dimensionless. Values in "share" are shown in percent.
        better: direction of improvement, or "neither".
        record: where values are stored: final held-out scores ("evaluation"), parts of a held-out
            measure, single tasks, the last value of a column recorded per step or by probes,
            timings made in alternation, or the held-out loss curve.
        digits: number of decimal places shown.
        column: name of the metric in the record, if it differs from `name`.
        scale: "log" to compare values as ratios. A change is then the logarithm of a ratio, and
            margins and benefits in a study file are relative (0.05 for 5%).
        items: what the metric averages over, if inference about new items is possible: "questions"
            of tasks, or `ItemSums` for items of held-out text.
        uniform: score of a uniform guess over V tokens, such as `log V`, or "" if unknown.
        of_tokens: whether the metric is measured per token, so that it cannot compare arms with
            different tokenizers.
        of_pair: whether a trial's value is a ratio to the reference's trial at the same seed.
    """

    name: Words
    label: Words
    unit: Line
    better: Better
    record: Where
    digits: Annotated[int, Field(ge=0, le=12)] = 4
    column: Line = ""
    scale: Scale = "linear"
    items: Items = ""
    uniform: Literal["", "log V", "V", "1/V"] = ""
    of_tokens: bool = False
    of_pair: bool = False

    def __post_init__(self) -> None:
        if self.items and self.scale != "linear":
            raise ValueError("a metric with items must have scale 'linear', because it is a mean")

    def compared(self, value: float) -> float:
        """Convert a value to the scale of comparison: take its logarithm if `scale` is "log"."""
        if self.scale == "linear":
            return value
        return math.log(value) if value > 0 else math.nan

    @property
    def key(self) -> str:
        """Name of the metric in its record."""
        return self.column or self.name

    def change(self, stated: float) -> float:
        """Convert a change from a study file to the scale of comparison (log scale: log(1 + x))."""
        return stated if self.scale == "linear" else math.log1p(max(stated, LEAST_SHARE))

    @property
    def is_share(self) -> bool:
        """True if values are shares, which are shown in percent."""
        return self.unit == SHARE and self.scale == "linear"

    @property
    def change_unit(self) -> str:
        """Unit in which a change is shown."""
        if self.scale == "log":
            return "log ratio"
        return "percentage points" if self.unit == SHARE else self.unit

    @property
    def change_digits(self) -> int:
        """Number of decimal places for a displayed change."""
        return self.digits if self.scale == "linear" else RATIO_DIGITS

    @property
    def shown_digits(self) -> int:
        """Number of decimal places for a displayed value."""
        return max(self.digits - 2, 0) if self.is_share else self.digits

    @property
    def shown_change_digits(self) -> int:
        """Number of decimal places for a displayed change."""
        return self.shown_digits if self.is_share else self.change_digits

    def displayed(self, value: Any) -> Any:
        """Convert a value or change to the display unit: multiply shares by 100."""
        return 100 * value if self.is_share and value is not None else value

    def value_text(self, value: float | None) -> str:
        """Format a value: `1.8730`, or `81.20` for a share."""
        return numbers.fixed(self.displayed(value), self.shown_digits)

    def change_text(self, change: float | None) -> str:
        """Format a change: `+0.0123`, or `+1.23` (percentage points) for a share."""
        return numbers.signed(self.displayed(change), self.shown_change_digits)

    def size_text(self, size: float | None) -> str:
        """Format the magnitude or the error of a change: `0.0200`, or `2.00` for a share."""
        return numbers.fixed(self.displayed(size), self.shown_change_digits)

    def span_text(self, low: float, high: float) -> str:
        """Format an interval of changes: `[-0.0010, +0.0256]`."""
        return numbers.interval(self.displayed(low), self.displayed(high), self.shown_change_digits)

    def delta_text(self, mean: float, low: float, high: float, digits: int | None = None) -> str:
        """Format a change with its interval: `+0.0123 [-0.0010, +0.0256]`."""
        places = self.shown_change_digits if digits is None else digits
        shown = self.displayed
        return numbers.delta(shown(mean), shown(low), shown(high), places)

    def stated_text(self, stated: float) -> str:
        """Format a margin or benefit: `0.02`, `2 percentage points`, or `5%` on a log scale."""
        if self.scale == "log":
            return f"{100 * stated:.3g}%"
        unit = f" {self.change_unit}" if self.is_share else ""
        return f"{self.displayed(stated):.3g}{unit}"

    @property
    def title(self) -> str:
        """Label with the unit of values: `validation loss (nats/token)`, `accuracy (%)`."""
        unit = "%" if self.is_share else self.unit
        return self.label if unit in ("", "1") else f"{self.label} ({unit})"

    @property
    def change_title(self) -> str:
        """Label with the unit of changes, such as `accuracy (percentage points)`."""
        return f"{self.label} ({self.change_unit})" if self.is_share else self.title

    @property
    def short_title(self) -> str:
        """Title for a narrow column: `validation loss`, `accuracy (%)`."""
        return self.title if self.is_share else self.label

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """Metadata as a dict for records, without the metric's name."""
        return {key: value for key, value in asdict(self).items() if key != "name"}

    def part(self, name: str) -> Metric:
        """Return a copy for a part or column of this metric, with the given full name."""
        rest = name.partition("/")[2].replace("/", ", ")
        record: Where = "parts" if self.record == "evaluation" else self.record
        label = f"{self.label}: {rest}"
        if record == "tasks":
            return replace(self, name=name, label=label, column=name.partition("/")[2])
        return replace(self, name=name, label=label, record=record, column="", items="")

    @property
    def task(self) -> str | None:
        """Name of the task if the metric is the accuracy on a single task, else None."""
        return self.column if self.record == "tasks" else None


def readable(name: str) -> str:
    """Convert an identifier to a label: `val_loss` becomes `val loss`."""
    return name.replace("_", " ")


def by_name(declared: Mapping[str, Iterable[Metric]]) -> dict[str, Metric]:
    """Collect metrics in a dict keyed by name. Raises ParibusError for duplicate names.

    `declared` maps each owner, such as a probe, to its metrics.
    """
    by_name: dict[str, Metric] = {}
    owners: dict[str, str] = dict.fromkeys(OF_TRIALS, "paribus itself")
    for owner, metrics in declared.items():
        for metric in metrics:
            if metric.name in owners:
                raise ParibusError(
                    f"{owner} declares '{metric.name}', which is already declared by "
                    f"{owners[metric.name]}; rename it"
                )
            by_name[metric.name], owners[metric.name] = metric, owner
    return by_name


def find(name: str, declared: Mapping[str, Metric]) -> Metric | None:
    """Look up a metric, or a part of one, by name; return None if it is unknown."""
    if name in declared:
        return declared[name]
    head, _, part = name.partition("/")
    family = declared.get(head)
    if family is None or not part or family.record not in DIVIDED:
        return None
    return family.part(name)


def from_records(records: Mapping[str, Any], where: str) -> dict[str, Metric]:
    """Create metrics from dicts written by `Metric.metadata`, filling in defaults."""
    metrics = {}
    for name, record in records.items():
        try:
            metrics[name] = _adapter().validate_json(canonical_json(record | {"name": name}))
        except ValidationError as error:
            raise ParibusError(f"metric {name!r:.80} in {where}: {explain(error)}") from None
    return metrics


@cache
def _adapter() -> TypeAdapter[Metric]:
    return TypeAdapter(Metric)
