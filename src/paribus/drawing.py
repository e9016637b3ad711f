"""Drawings that probes and measures declare beside their numbers; the report draws them so.

The trainer, every probe and every held-out measure declare their drawings beside their numbers, the
user's own too. A trial records them with the parts that its model has, so that page and PDF are
drawn without any of that code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, ValidationError
from pydantic.dataclasses import dataclass

from paribus.errors import ParibusError
from paribus.explain import explain
from paribus.metric import DECLARED, Line, Words, one_line

How = Literal["trend", "panels", "profile", "spread", "curve", "parts", "against"]
Section = Literal["stability", "diagnostics", "evaluation"]
HELD_OUT = ("curve", "parts", "against")  # what is drawn so is of measures

PART = "{}"  # of a column: stands for every part


@dataclass(frozen=True, config=DECLARED)
class Drawing:
    """A figure of columns that a trial records.

    Attributes:
        column: as it is recorded; PART in the place of the part where there are several. A probe or
            measure declares its own without its name. Parts of a measure are columns too: PART
            alone is any of them, "position {}" those that begin so.
        how: `trend`, one column over training; `panels`, the same with a panel for each part;
            `profile`, all parts at the end of training, such as depths; `spread`, the mean and
            the quantiles q05, q25, q75 and q95 of each part at the end. Of a measure: `curve`, by
            the number that a part is called after, such as a position; `parts`, beside each other;
            `against`, by the same part of another measure.
        title: a few words, for a heading.
        axis: of the values, with their unit.
        section: of the page.
        across: what the parts of a profile or a curve are, or the other measure, for its axis.
        parts: those that were recorded, in their order; of a measure those that are drawn, and
            none are all.
        against: the column of the other measure, with its name.
        log: whether the axis across is logarithmic.
        note: a sentence for readers of the figure.
        in_text: whether it stands in the report `report.pdf`; the page has all.
    """

    column: Words
    how: How
    title: Words
    axis: Line
    section: Section = "diagnostics"
    across: Line = ""
    parts: Annotated[tuple[Line, ...], Field(strict=False, max_length=20_000)] = ()
    against: Line = ""
    log: bool = False
    note: Annotated[str, Field(max_length=500), AfterValidator(one_line)] = ""
    in_text: bool = False

    def __post_init__(self) -> None:
        if self.column.count(PART) != (self.how != "trend"):
            raise ValueError(f"column {self.column!r:.80}: a trend has no {PART}, others have one")
        if self.against.count(PART) != (self.how == "against"):
            raise ValueError(f"against {self.against!r:.80}: 'against' has one {PART}, others none")

    @property
    def columns(self) -> dict[str, str]:
        """The part of every column that it reads, by the column's name."""
        if self.how == "trend":
            return {self.column: ""}
        return {self.column.replace(PART, part): part for part in self.parts}

    @property
    def about(self) -> dict[str, Any]:
        """Its form in records."""
        return asdict(self) | {"parts": list(self.parts)}

    def of(self, name: str) -> Drawing:
        """Return the drawing with the full name of the column of a probe or measure."""
        return replace(self, column=f"{name}/{self.column}")

    def part_of(self, column: str) -> str | None:
        """Return the part of a column that it draws; None of any other column."""
        before, after = self.column.split(PART, 1)
        part = column[len(before) : len(column) - len(after)]
        if not part or before + part + after != column:
            return None
        return part if part in self.parts or not self.parts else None

    def recorded(self, columns: Iterable[str]) -> Drawing | None:
        """Return the drawing with the parts among `columns`; None where there is nothing to
        draw."""
        if self.how == "trend":
            return self if self.column in columns else None
        parts = tuple(part for column in columns if (part := self.part_of(column)) is not None)
        # Of a held-out measure there are as many parts as positions, and they are not listed.
        listed = self if self.how in HELD_OUT else replace(self, parts=parts)
        return listed if parts else None


def together(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Return drawings of several trials, each once, with the parts of all: those of the longest
    first."""
    parts_of: dict[Drawing, dict[tuple[str, ...], None]] = {}
    for drawing in drawings:
        parts_of.setdefault(replace(drawing, parts=()), {})[drawing.parts] = None
    merged = []
    for drawing, lists in parts_of.items():
        longest_first = sorted(lists, key=len, reverse=True)
        parts = dict.fromkeys(part for parts in longest_first for part in parts)
        merged.append(replace(drawing, parts=tuple(parts)))
    return merged


def drawings_from_records(records: list[dict[str, Any]], where: str) -> list[Drawing]:
    """`Drawing.about` of each, read back. Raises ParibusError where it is something else."""
    try:
        return [Drawing(**record) for record in records]
    except ValidationError as error:
        raise ParibusError(f"{where}: drawings: {explain(error)}") from None
