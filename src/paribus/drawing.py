"""Specifications of report figures, declared by trainers, probes and measures.

Custom probes and measures declare figures in the same way. Trials record the specifications, so
the page and the PDF can be rendered without running custom code.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
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
    """Specification of a figure that plots columns recorded by trials.

    Attributes:
        column: name of the recorded column, in which the placeholder PART matches the part (such as
            a layer). The name of the probe or measure is omitted. Parts of a measure are columns,
            too: PART alone matches all of them, "position {}" those beginning with "position".
        how: kind of plot. `trend` plots one column over training; `panels` plots one panel per
            part; `profile` plots all parts, such as layers, at the end of training; `spread` plots
            the mean and the quantiles q05, q25, q75 and q95 of each part at the end. For measures,
            `curve` plots parts against the number in their names, such as a position; `parts`
            plots them side by side; `against` plots them against the same parts of another measure.
        title: short heading.
        axis: title of the value axis, with the unit.
        section: section of the page.
        across: title of the horizontal axis, such as "layer" or the other measure's title.
        parts: recorded parts in order; for a measure, the parts to plot (empty for all).
        against: column of the other measure, including the measure's name.
        log: whether the horizontal axis is logarithmic.
        note: sentence that explains the figure.
        in_text: whether to include the figure in `report.pdf`. The page includes all figures.
    """

    column: Words
    how: How
    title: Words
    axis: Line
    section: Section = "diagnostics"
    across: Line = ""
    parts: Annotated[tuple[Line, ...], Field(strict=False)] = ()
    against: Line = ""
    log: bool = False
    note: Annotated[str, Field(max_length=500), AfterValidator(one_line)] = ""
    in_text: bool = False

    def __post_init__(self) -> None:
        if self.column.count(PART) != (self.how != "trend"):
            raise ValueError(
                f"column {self.column!r:.80} must contain {PART} once, or not at all if how = "
                "'trend'"
            )
        if self.against.count(PART) != (self.how == "against"):
            raise ValueError(
                f"against = {self.against!r:.80} must contain {PART} once if how = 'against', and "
                "not at all otherwise"
            )

    @property
    def columns(self) -> dict[str, str]:
        """Mapping from each plotted column to its part."""
        if self.how == "trend":
            return {self.column: ""}
        return {self.column.replace(PART, part): part for part in self.parts}

    def prefixed(self, name: str) -> Drawing:
        """Return a copy whose column is prefixed with `name`, the name of the probe or measure."""
        return replace(self, column=f"{name}/{self.column}")

    def part_of(self, column: str) -> str | None:
        """Return the part in a column's name, or None if the figure does not include the column."""
        before, after = self.column.split(PART, 1)
        part = column[len(before) : len(column) - len(after)]
        if not part or before + part + after != column:
            return None
        return part if part in self.parts or not self.parts else None

    def recorded(self, columns: Iterable[str]) -> Drawing | None:
        """Return a copy restricted to the parts in `columns`, or None if no part matches."""
        if self.how == "trend":
            return self if self.column in columns else None
        parts = tuple(part for column in columns if (part := self.part_of(column)) is not None)
        # Of a held-out measure there are as many parts as positions, and they are not listed.
        listed = self if self.how in HELD_OUT else replace(self, parts=parts)
        return listed if parts else None


def together(drawings: Iterable[Drawing]) -> list[Drawing]:
    """Merge drawings of several trials that differ only in their parts.

    A merged drawing contains the union of the parts, starting with the longest list.
    """
    keyed = [(replace(drawing, parts=()), drawing.parts) for drawing in drawings]
    merged: dict[Drawing, dict[str, None]] = {drawing: {} for drawing, _ in keyed}
    for drawing, parts in sorted(keyed, key=lambda pair: len(pair[1]), reverse=True):
        merged[drawing] |= dict.fromkeys(parts)
    return [replace(drawing, parts=tuple(parts)) for drawing, parts in merged.items()]


def drawings_from_records(records: list[dict[str, Any]], where: str) -> list[Drawing]:
    """Create drawings from dicts of drawings in trial.json. Raises ParibusError if invalid."""
    try:
        return [Drawing(**record) for record in records]
    except ValidationError as error:
        raise ParibusError(f"invalid figure in {where}: {explain(error)}") from None
