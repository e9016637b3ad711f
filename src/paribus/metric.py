"""Declarations of numbers: unit, direction, label, digits, and where each is read.

Measures, probes, the trainer and the task suite each declare their own. A trial records what it
measured so, and a registration records its endpoints: whoever reads results needs no code of
theirs.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, ConfigDict, Field, ValidationError
from pydantic.dataclasses import dataclass

from paribus import numbers
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
    """Return `text` if it is one printable line. Raises ValueError."""
    if not (text + "a").isprintable():
        raise ValueError(f"{text!r:.80} is not a line of text")
    return text


Line = Annotated[str, Field(max_length=LONGEST), AfterValidator(one_line)]
Words = Annotated[str, Field(min_length=1, max_length=LONGEST), AfterValidator(one_line)]


@dataclass(frozen=True, config=DECLARED)
class ItemSums:
    """A metric of held-out text as a ratio of sums over its items: scale x total / count.

    Items are documents, or windows. Where claims are about new ones, items are resampled, and the
    sums with them.

    Attributes:
        total, count: columns of a trial's blocks.parquet: of each block of items, what is added up,
            and over what it is divided.
        scale: from the unit of `total` over that of `count` to the metric's.
        step: the smallest change of a total: 1 of a number of hits; 0 if it is not whole.
    """

    total: Words
    count: Words
    scale: Annotated[int | float, Field(gt=0)] = 1.0
    step: Annotated[int | float, Field(ge=0)] = 0.0


Items = Literal["", "questions"] | ItemSums


@dataclass(frozen=True, config=DECLARED)
class Metric:
    """One number per trial.

    Attributes:
        name: what an endpoint calls it. A part of a measure is `measure/part`, a column of a probe
            `probe/part/statistic`; the probe's name alone is its first column. The accuracy on a
            task is `task_accuracy/task`.
        label: what readers are shown.
        unit: of its values; empty where they have none. Values in "share" are shown as per cent.
        better: which direction is an improvement, if any.
        record: where it is read: held-out scores at the end, parts of a held-out measure, single
            tasks, the last value of a column of what was recorded by step or by probes, what arms
            took turns for, or the held-out curve.
        digits: decimal places that are shown.
        column: what it is called there, where that is another name.
        scale: "log" where values are compared as ratios: a change is the logarithm of one, and a
            change that a study states (a margin, a benefit) is a share.
        items: what it is an average over, where inference may be about new ones: "questions" of
            tasks, or items of the held-out text, by the sums that it is a ratio of.
        uniform: what a uniform guess over V tokens scores, such as `log V`; empty where nobody
            says.
        of_tokens: whether it is about single tokens, so that arms with other tokenizers cannot be
            compared by it.
        of_pair: whether a trial's value is itself relative to the trial that it is compared with,
            as a ratio: then that one's is 1.
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
            raise ValueError("a mean over items is compared by differences, and not on a log scale")

    def compared(self, value: float) -> float:
        """Return a value as it is compared: its logarithm, where changes are ratios."""
        if self.scale == "linear":
            return value
        return math.log(value) if value > 0 else math.nan

    @property
    def key(self) -> str:
        """Its name where it is read."""
        return self.column or self.name

    def change(self, stated: float) -> float:
        """Return a change as it is compared: a stated share of +0.05 is log 1.05 on the log
        scale."""
        return stated if self.scale == "linear" else math.log1p(max(stated, LEAST_SHARE))

    @property
    def is_share(self) -> bool:
        """True if values are printed in per cent."""
        return self.unit == SHARE and self.scale == "linear"

    @property
    def change_unit(self) -> str:
        """The unit of a change, as it is shown."""
        if self.scale == "log":
            return "log ratio"
        return "percentage points" if self.unit == SHARE else self.unit

    @property
    def change_digits(self) -> int:
        """Decimal places of a change in its own unit."""
        return self.digits if self.scale == "linear" else RATIO_DIGITS

    @property
    def shown_digits(self) -> int:
        """Decimal places of a value as it is shown."""
        return max(self.digits - 2, 0) if self.is_share else self.digits

    @property
    def shown_change_digits(self) -> int:
        """Decimal places of a change as it is shown."""
        return self.shown_digits if self.is_share else self.change_digits

    def displayed(self, value: Any) -> Any:
        """Return a value or a change in the unit in which it is shown: shares as per cent."""
        return 100 * value if self.is_share and value is not None else value

    def value_text(self, value: float | None) -> str:
        """Return a value as text: `1.8730`, or `81.20` of a share."""
        return numbers.fixed(self.displayed(value), self.shown_digits)

    def mean_text(self, mean: float | None, sd: float | None) -> str:
        """Return a mean over seeds with its SD: `1.8730 (0.0174)`."""
        return numbers.mean_sd(self.displayed(mean), self.displayed(sd), self.shown_digits)

    def change_text(self, change: float | None) -> str:
        """Return a change: `+0.0123`, or `+1.23` of a share, in percentage points."""
        return numbers.signed(self.displayed(change), self.shown_change_digits)

    def size_text(self, size: float | None) -> str:
        """Return the size of a change, or its error: `0.0200`, or `2.00` of a share."""
        return numbers.fixed(self.displayed(size), self.shown_change_digits)

    def span_text(self, low: float, high: float) -> str:
        """Return an interval of changes: `[-0.0010, +0.0256]`."""
        return numbers.interval(self.displayed(low), self.displayed(high), self.shown_change_digits)

    def delta_text(self, mean: float, low: float, high: float, digits: int | None = None) -> str:
        """Return a change with its interval: `+0.0123 [-0.0010, +0.0256]`."""
        places = self.shown_change_digits if digits is None else digits
        shown = self.displayed
        return numbers.delta(shown(mean), shown(low), shown(high), places)

    def stated_text(self, stated: float) -> str:
        """Return a margin or another stated change as text: `0.02`, `2 percentage points`, or
        `5%` on a log scale."""
        if self.scale == "log":
            return f"{100 * stated:.3g}%"
        unit = f" {self.change_unit}" if self.is_share else ""
        return f"{self.displayed(stated):.3g}{unit}"

    @property
    def title(self) -> str:
        """`validation loss (nats/token)`, `accuracy (%)`."""
        unit = "%" if self.is_share else self.unit
        return self.label if unit in ("", "1") else f"{self.label} ({unit})"

    @property
    def change_title(self) -> str:
        """The title of a change: `validation loss (nats/token)`, `accuracy (percentage points)`."""
        return f"{self.label} ({self.change_unit})" if self.is_share else self.title

    @property
    def short_title(self) -> str:
        """`validation loss`, `accuracy (%)`: for the head of a narrow column."""
        return self.title if self.is_share else self.label

    @property
    def about(self) -> dict[str, Any]:
        """Its form in records, under its name."""
        return {key: value for key, value in asdict(self).items() if key != "name"}

    def part(self, name: str) -> Metric:
        """Return the metric of one part or column, `name` being its full name."""
        rest = name.partition("/")[2].replace("/", ", ")
        record: Where = "parts" if self.record == "evaluation" else self.record
        label = f"{self.label}: {rest}"
        if record == "tasks":
            return replace(self, name=name, label=label, column=name.partition("/")[2])
        return replace(self, name=name, label=label, record=record, column="", items="")

    @property
    def task(self) -> str | None:
        """The task that it is of; None where it is of none, or of all."""
        return self.column if self.record == "tasks" else None


def readable(name: str) -> str:
    """Return a label made of a name."""
    return name.replace("_", " ")


def by_name(declared: Mapping[str, Iterable[Metric]]) -> dict[str, Metric]:
    """Return what is declared, by name; `declared` has it by who declares it."""
    by_name: dict[str, Metric] = {}
    owners: dict[str, str] = dict.fromkeys(OF_TRIALS, "every table of scores")
    for owner, metrics in declared.items():
        for metric in metrics:
            if metric.name in owners:
                raise ParibusError(
                    f"{owner}: the name '{metric.name}' is taken by {owners[metric.name]}; give it "
                    "another name"
                )
            by_name[metric.name], owners[metric.name] = metric, owner
    return by_name


def find(name: str, declared: Mapping[str, Metric]) -> Metric | None:
    """Return what `name` means among `declared`: one of them, or a part of one; None for
    neither."""
    if name in declared:
        return declared[name]
    head, _, part = name.partition("/")
    family = declared.get(head)
    if family is None or not part or family.record not in DIVIDED:
        return None
    return family.part(name)


def from_records(records: Mapping[str, Any], where: str) -> dict[str, Metric]:
    """`Metric.about` by name, read back; of a key that it lacks, the default."""
    metrics = {}
    for name, record in records.items():
        try:
            items = record.get("items", "")
            ratio = {"items": ItemSums(**items)} if isinstance(items, dict) else {}
            metrics[name] = Metric(**{**record, **ratio, "name": name})
        except ValidationError as error:
            raise ParibusError(f"{where}: metric {name!r:.80}: {explain(error)}") from None
    return metrics
