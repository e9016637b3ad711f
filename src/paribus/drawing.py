"""What is recorded while training says how it is drawn; the report draws it so.

The trainer and every probe declare their drawings beside their numbers, the user's own too. A trial
records them with the parts that its model has, so that a page is drawn without any of that code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, get_args

from paribus.errors import ParibusError
from paribus.metric import LONGEST

How = Literal["trend", "panels", "profile", "spread"]
Section = Literal["stability", "diagnostics"]

PART = "{}"  # of a column: stands for every part
MOST_DRAWINGS = 500  # of a trial
MOST_PARTS = 20_000  # of a drawing


@dataclass(frozen=True)
class Drawing:
    """A figure of columns that a trial records.

    Attributes:
        column: as it is recorded; PART in the place of the part where there are several. A probe
            declares its own without the name of the probe.
        how: `trend`, one column over training; `panels`, the same with a panel for each part;
            `profile`, all parts at the end of training, such as depths; `spread`, the mean and
            the quantiles q05, q25, q75 and q95 of each part at the end.
        title: a few words, for a heading.
        axis: of the values, with their unit.
        section: of the page.
        across: what the parts of a profile are, for its axis.
        parts: those that were recorded, in their order.
    """

    column: str
    how: How
    title: str
    axis: str
    section: Section = "diagnostics"
    across: str = ""
    parts: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        texts = (self.column, self.title, self.axis, self.across, *self.parts)
        for text in texts:
            if not isinstance(text, str) or len(text) > LONGEST or not (text + "a").isprintable():
                raise ValueError(f"{text!r:.80} is no line of at most {LONGEST} characters")
        if not self.column or not self.title:
            raise ValueError("a drawing has a column and a title")
        for name, known in (("how", How), ("section", Section)):
            if getattr(self, name) not in get_args(known):
                raise ValueError(
                    f"{name} is {getattr(self, name)!r:.80}; known: {', '.join(get_args(known))}"
                )
        if self.column.count(PART) != (self.how != "trend"):
            raise ValueError(f"column {self.column!r:.80}: a trend has no {PART}, others have one")
        if len(self.parts) > MOST_PARTS:
            raise ValueError(f"{len(self.parts)} parts are more than {MOST_PARTS}")

    @property
    def columns(self) -> dict[str, str]:
        """The part of every column that it reads, by the column's name."""
        if self.how == "trend":
            return {self.column: ""}
        return {self.column.replace(PART, part): part for part in self.parts}

    @property
    def about(self) -> dict[str, Any]:
        """What records hold of it."""
        return asdict(self) | {"parts": list(self.parts)}

    def of(self, probe: str) -> Drawing:
        """The same with the full name of the column of a probe."""
        return replace(self, column=f"{probe}/{self.column}")

    def recorded(self, columns: Iterable[str]) -> Drawing | None:
        """The same with the parts that are among `columns`; None where there is nothing to draw."""
        if self.how == "trend":
            return self if self.column in columns else None
        before, after = self.column.split(PART, 1)
        parts = tuple(
            column[len(before) : len(column) - len(after)]
            for column in columns
            if column.startswith(before) and column.endswith(after)
        )
        return replace(self, parts=parts) if parts else None


def together(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Those of several trials, each once, with the parts of all: those of the longest first."""
    found: dict[Drawing, list[tuple[str, ...]]] = {}
    for drawing in drawings:
        found.setdefault(replace(drawing, parts=()), []).append(drawing.parts)
    return [
        replace(drawing, parts=tuple(dict.fromkeys(p for parts in _longest(of) for p in parts)))
        for drawing, of in found.items()
    ]


def _longest(parts: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    return sorted(dict.fromkeys(parts), key=len, reverse=True)


def drawings_from_records(records: Any, where: str) -> list[Drawing]:
    """`Drawing.about` of each, read back. Raises ParibusError where it is something else."""
    names = {field.name for field in fields(Drawing)}
    found = []
    try:
        if not isinstance(records, list) or len(records) > MOST_DRAWINGS:
            raise ValueError(f"no list of at most {MOST_DRAWINGS}")
        for about in records:
            if not isinstance(about, dict) or about.keys() != names:
                raise ValueError(f"each must have the keys {', '.join(sorted(names))}")
            if not isinstance(about["parts"], list):
                raise ValueError("parts are a list")
            values: dict[str, Any] = about | {"parts": tuple(about["parts"])}
            found.append(Drawing(**values))
    except (TypeError, ValueError) as error:
        raise ParibusError(f"{where}: drawings: {error}") from None
    return found
