"""One table for all readers: it is built once, and the terminal (below), the page
(templates/parts.html) and the PDF show its cells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console, ConsoleOptions, RenderableType

WORDS = frozenset({"arm", "against"})
LONGEST_WORD = 24  # characters that a column of words keeps together in the terminal
GAPS = (3, 2)  # characters between columns of the terminal: fewer where nothing folds then
# Signs of a cell's state, at its beginning, and their colours in the terminal.
MARKS = {"✓": "green", "~": "yellow", "?": "yellow", "✗": "red"}

Row = tuple[str, ...]


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        name: of its file.
        caption: what it shows, on the page and in the PDF.
        head: a label with its unit for each column; those called "arm" or "against" hold names of
            arms, and "state" holds a mark.
        text: columns of words, which are set to the left; numbers are set to the right.
        wide: whether a column of the PDF is too narrow for it.
        title: stands above it in the terminal.
        grouped: the first column names a group of rows, in the first of them.
    """

    name: str
    caption: str
    head: Row
    rows: Sequence[Row]
    text: frozenset[str] = WORDS
    wide: bool = False
    title: str = ""
    grouped: bool = False

    def only(self, *labels: str, title: str | None = None) -> Table:
        """Return the table of these columns, of which some may not be there, in this order."""
        at = [self.head.index(label) for label in labels if label in self.head]
        return replace(
            self,
            head=tuple(self.head[i] for i in at),
            rows=tuple(tuple(row[i] for i in at) for row in self.rows),
            title=self.title if title is None else title,
        )

    def __rich_console__(
        self, console: Console, options: ConsoleOptions
    ) -> Iterator[RenderableType]:
        """Yield what fits the terminal: columns where there is room, else a list for each row."""
        from rich.text import Text

        if not self.rows:
            return
        if self.title:
            yield Text(self.title, style="bold")
        kept = [label for i, label in enumerate(self.head) if any(row[i] for row in self.rows)]
        table = self.only(*kept)
        layout = _layout(table, options.max_width - 3)
        yield from _lists(table) if layout is None else _columns(table, *layout)
        yield ""


def _layout(table: Table, room: int) -> tuple[list[int], int] | None:
    """Return the width of each column, words folded where they must be, and the gap between
    columns, in characters; None where they do not fit."""
    from rich.cells import cell_len

    labels = table.head[int(table.grouped) :]  # names of groups are lines of their own
    heads = [max(map(cell_len, label.split()), default=0) for label in labels]
    widths, least = [], []
    for i, head in zip(_range(table), heads, strict=True):
        indent = 2 if table.grouped and i == 1 else 0
        lines = [line for row in table.rows for line in row[i].split("\n")]
        widths.append(max(head, indent + max(map(cell_len, lines))))
        longest = max(cell_len(word) for line in lines for word in line.split(" "))
        least.append(max(head, indent + min(longest, LONGEST_WORD)))
    between = len(widths) - 1
    gap = next((gap for gap in GAPS if sum(widths) + gap * between <= room), GAPS[-1])
    room -= gap * between
    words = [i for i, label in enumerate(labels) if label in table.text]
    while sum(widths) > room:
        wide = [i for i in words if widths[i] > least[i]]
        if not wide:
            return None
        widths[max(wide, key=widths.__getitem__)] -= 1
    for i, label in enumerate(labels):  # in one line, where there is room for it
        if 0 < cell_len(label) - widths[i] <= room - sum(widths):
            widths[i] = cell_len(label)
    return widths, gap


def _range(table: Table) -> range:
    return range(int(table.grouped), len(table.head))


def _columns(table: Table, widths: list[int], gap: int) -> Iterator[RenderableType]:
    """Yield the head, and the rows of each group below its name."""
    from rich.table import Table as Grid
    from rich.text import Text

    def grid() -> Grid:
        made = Grid.grid(padding=(0, gap, 0, 0))
        for i, width in zip(_range(table), widths, strict=True):
            side = "left" if table.head[i] in table.text else "right"
            made.add_column(width=width, justify=side, overflow="fold", vertical="top")
        return made

    head = grid()
    for column in head.columns:
        column.vertical = "bottom"
    head.add_row(*(Text(table.head[i]) for i in _range(table)))
    if any(label.strip() for label in table.head):
        yield _indented(head)
        yield Text(f" {'─' * (sum(widths) + gap * (len(widths) - 1) + 2)}")
    body = grid()
    for row in table.rows:
        if table.grouped and row[0]:
            if body.row_count:
                yield _indented(body)
            body = grid()
            yield Text(f"  {row[0]}", style="bold")
        cells = [_cell(row[i]) for i in _range(table)]
        if table.grouped:
            cells[0].pad_left(2)
        body.add_row(*cells)
    yield _indented(body)


def _lists(table: Table) -> Iterator[RenderableType]:
    """Yield the columns of each row below each other, blank ones left out."""
    from rich.table import Table as Grid
    from rich.text import Text

    for number, row in enumerate(table.rows):
        if number:
            yield ""
        body = Grid.grid(padding=(0, GAPS[0], 0, 0))
        body.add_column(max_width=40, overflow="fold")
        body.add_column(overflow="fold")
        for label, cell in zip(table.head, row, strict=True):
            if cell:
                body.add_row(Text(label), _cell(cell))
        yield _indented(body)


def _cell(text: str):
    from rich.text import Text

    return Text(text, style=MARKS.get(text[:1], "") if text[1:2] in (" ", "") else "")


def _indented(part: RenderableType) -> RenderableType:
    from rich.padding import Padding

    return Padding(part, (0, 0, 0, 2), expand=False)
