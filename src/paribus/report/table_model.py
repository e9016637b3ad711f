"""Tables of text, shown in the terminal, on the report page and in the PDF."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from paribus.numbers import NONE

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

GAP = 2  # characters between columns of the terminal
# Signs of a cell's state, at its beginning, and their colours in the terminal.
MARKS = {"✓": "green", "~": "yellow", "?": "yellow", "✗": "red"}
NAMES = ("arm", "against")  # columns of names of arms
SAYS_NOTHING = ("", NONE, "+0.0")  # columns with only such cells are dropped

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Table of strings.

    Attributes:
        name: unique name within a report.
        caption: description for the page and the PDF.
        head: column labels with units. The columns "arm" and "against" contain arm titles; cells
            of "state" begin with a symbol such as ✓.
        title: heading for the terminal.
    """

    name: str
    caption: str
    head: Row
    rows: Sequence[Row]
    title: str = ""

    @cached_property
    def text(self) -> frozenset[str]:
        """Labels of columns that contain text, which is left-aligned and may wrap."""
        begun = {(label, row[i][:1]) for row in self.rows for i, label in enumerate(self.head)}
        named = {label for label in self.head if label in NAMES}
        return frozenset(
            named | {label for label, sign in begun if sign.isalpha() or sign in MARKS}
        )

    def only(self, *labels: str) -> Table:
        """Select columns by label, in the given order, ignoring unknown labels."""
        at = [self.head.index(label) for label in labels if label in self.head]
        return replace(
            self,
            head=tuple(self.head[i] for i in at),
            rows=tuple(tuple(row[i] for i in at) for row in self.rows),
        )

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Render the table as columns if it fits the terminal, otherwise as one list per row."""
        from rich.box import SIMPLE_HEAD
        from rich.measure import Measurement
        from rich.padding import Padding
        from rich.table import Table as Grid
        from rich.text import Text

        if not self.rows:
            return
        if self.title:
            yield Text(self.title, style="bold")
        words = self.text
        grid = Grid(
            box=SIMPLE_HEAD,
            show_edge=False,
            show_header=any(label.strip() for label in self.head),
            header_style="",
            padding=(0, GAP - 1, 0, 0),
            pad_edge=False,
        )
        for label in self.head:
            if label in words:
                grid.add_column(Text(label), overflow="fold")
            else:
                grid.add_column(Text(label), justify="right", width=_width(self, label))
        for row in self.rows:
            grid.add_row(*map(_cell, row))
        if Measurement.get(console, options, grid).minimum <= options.max_width - 2:
            yield Padding(grid, (0, 0, 1, 2), expand=False)
            return
        for row in self.rows:
            grid = Grid.grid(padding=(0, GAP, 0, 0))
            grid.add_column(max_width=40, overflow="fold")
            grid.add_column(overflow="fold")
            for label, cell in zip(self.head, row, strict=True):
                if cell:
                    grid.add_row(Text(label), _cell(cell))
            yield Padding(grid, (0, 0, 1, 2), expand=False)


def table_of(name: str, caption: str, rows: Sequence[Mapping[str, str]], title: str = "") -> Table:
    """Build a table from rows that map column labels to cells.

    Columns that are empty or zero in every row are dropped. Missing cells become "".
    """
    labels = dict.fromkeys(label for row in rows for label in row)
    head = tuple(
        label for label in labels if any(row.get(label, "") not in SAYS_NOTHING for row in rows)
    )
    cells = [tuple(row.get(label, "") for label in head) for row in rows]
    return Table(name, caption, head, cells, title)


def _width(table: Table, label: str) -> int:
    """Return a column's minimum width in characters: its widest number or label word."""
    from rich.cells import cell_len

    at = table.head.index(label)
    return max(map(cell_len, [*label.split(), *(row[at] for row in table.rows)]), default=0)


def _cell(text: str):
    from rich.text import Text

    return Text(text, style=MARKS.get(text[:1], "") if text[1:2] in (" ", "") else "")
