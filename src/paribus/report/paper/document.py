"""What a paper consists of: plain data that the typst template sets, and that a test can read.

Words of a study file are strings all the way: the template never reads them as markup.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Any

from paribus.report.table_model import Table

LONG_WORD = 22  # characters; longer ones may be broken after what joins their parts
LONG_PART = 15  # characters; longer parts of such a word may be broken anywhere
BREAK = "\u200b"  # a place to break a line that shows nothing
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")  # the template sets it on one line, to be copied
LISTING_COLUMNS, LISTING_COST = 3, 12  # of keys and values; characters that each takes besides
SHORT_HEAD = 10  # a heading that is not broken
LEAST_CELL, MOST_CELL = 3, 30  # characters that a column of a table is made for
MOST_NARROW = 20  # of words, in a table of one column of the paper: names break, intervals do not
WIDE_ROW = 180  # characters of a row across the page: few columns may be wider than that


@dataclass(frozen=True)
class Cite:
    """A work of references.bib."""

    key: str


@dataclass(frozen=True)
class Ref:
    """A figure or a table of this paper, by name."""

    name: str


Run = str | Cite | Ref


@dataclass(frozen=True)
class Paragraph:
    """A paragraph: words, with citations and references between them."""

    runs: tuple[Run, ...]

    @property
    def text(self) -> str:
        """Its words alone."""
        return "".join(run for run in self.runs if isinstance(run, str))

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        return {"kind": "text", "runs": [_run(run) for run in self.runs]}


@dataclass(frozen=True)
class Picture:
    """A figure, by the name of its file."""

    name: str
    caption: str
    wide: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        caption = typeset(self.caption)
        return {"kind": "figure", "name": self.name, "caption": caption, "wide": self.wide}


@dataclass(frozen=True)
class Grid:
    """A table. In a paper of two columns a wide one takes both.

    With `groups`, a row that has a first cell alone is the heading of those below.
    """

    table: Table
    groups: bool = False

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        table = self.table
        return {
            "kind": "table",
            "name": table.name,
            "caption": typeset(table.caption),
            "head": [typeset(name) for name in table.head],
            "left": [name in table.text for name in table.head],
            "widths": _widths(table, groups=self.groups),
            "rows": [[typeset(cell) for cell in row] for row in table.rows],
            "wide": table.wide,
            "groups": self.groups,
        }


@dataclass(frozen=True)
class Listing:
    """Keys with their values, set small in columns."""

    items: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it: columns of about the same length."""
        lengths = [LISTING_COST + len(key) + len(value) for key, value in self.items]
        columns: list[list[list[str]]] = [[] for _ in range(LISTING_COLUMNS)]
        before, share = 0, sum(lengths) / LISTING_COLUMNS
        for (key, value), length in zip(self.items, lengths, strict=True):
            place = min(int((before + length / 2) / share), LISTING_COLUMNS - 1)
            columns[place].append([typeset(key), typeset(value)])
            before += length
        return {"kind": "listing", "columns": [column for column in columns if column]}


@dataclass(frozen=True)
class Items:
    """A short list, numbered."""

    lines: tuple[Paragraph, ...]

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        return {"kind": "items", "lines": [line.to_dict()["runs"] for line in self.lines]}


Block = Paragraph | Picture | Grid | Listing | Items


@dataclass(frozen=True)
class Part:
    """A section, or with `level` 2 a section of the one before it."""

    title: str
    blocks: list[Block] = field(default_factory=list)
    level: int = 1

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        blocks = [block.to_dict() for block in self.blocks]
        return {"title": typeset(self.title), "level": self.level, "blocks": blocks}

    def named(self, prefix: str) -> Part:
        """The same where the names of its figures and tables begin with `prefix`."""
        return replace(self, blocks=[_named(block, prefix) for block in self.blocks])


@dataclass(frozen=True)
class Document:
    """A whole paper; `about` is the line under its title and its authors, and may be empty."""

    title: str
    about: str
    abstract: list[Paragraph]
    parts: list[Part]
    appendix: list[Part]
    authors: tuple[str, ...] = ()

    @property
    def pictures(self) -> list[Picture]:
        """All figures."""
        blocks = [block for part in (*self.parts, *self.appendix) for block in part.blocks]
        return [block for block in blocks if isinstance(block, Picture)]

    @property
    def paragraphs(self) -> list[Paragraph]:
        """All prose, in order."""
        found = list(self.abstract)
        for block in (block for part in (*self.parts, *self.appendix) for block in part.blocks):
            found += block.lines if isinstance(block, Items) else ()
            found += [block] if isinstance(block, Paragraph) else ()
        return found

    def to_dict(self) -> dict[str, Any]:
        """As the typst template reads it."""
        return {
            "title": typeset(self.title),
            "about": typeset(self.about),
            "authors": [typeset(author) for author in self.authors],
            "abstract": [paragraph.to_dict() for paragraph in self.abstract],
            "parts": [part.to_dict() for part in self.parts],
            "appendix": [part.to_dict() for part in self.appendix],
        }


def say(*runs: Run) -> Paragraph:
    """A paragraph of these runs."""
    return Paragraph(runs)


def typeset(text: str) -> str:
    """True minus signs, and places where very long words may break.

    What stands around a digest may be broken; in the digest a break would be copied with it.
    """
    around = [_typeset(part) for part in DIGEST.split(text)]
    digests = [*DIGEST.findall(text), ""]
    return "".join(map("".join, zip(around, digests, strict=True)))


def _typeset(text: str) -> str:
    text = re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)
    return re.sub(rf"\S{{{LONG_WORD},}}", lambda word: _breakable(word[0]), text)


def _breakable(word: str) -> str:
    """Between its parts; typst itself breaks after a hyphen."""
    parts = re.split(r"(?<=[-_./:=])(?=[^-_./:=])", word)
    pieces = [
        part[i : i + 8] if len(part) > LONG_PART else part
        for part in parts
        for i in range(0, len(part) if len(part) > LONG_PART else 1, 8)
    ]
    return BREAK.join(pieces)


def _run(run: Run) -> dict[str, str]:
    if isinstance(run, Cite):
        return {"cite": run.key}
    if isinstance(run, Ref):
        return {"ref": run.name}
    return {"text": typeset(run)}


def _named(block: Block, prefix: str) -> Block:
    if isinstance(block, Picture):
        return replace(block, name=prefix + block.name)
    if isinstance(block, Grid):
        return replace(block, table=replace(block.table, name=prefix + block.table.name))
    if isinstance(block, Paragraph):
        runs = (Ref(prefix + run.name) if isinstance(run, Ref) else run for run in block.runs)
        return Paragraph(tuple(runs))
    return block


def _widths(table: Table, *, groups: bool) -> list[int]:
    """Relative widths of columns: of words what they can do with, of numbers all that they need."""
    widths, most = [], max(MOST_CELL, WIDE_ROW // len(table.head)) if table.wide else MOST_NARROW
    for i, name in enumerate(table.head):
        cells = [row[i] for row in table.rows if not groups or any(row[1:])]
        word = len(name) if len(name) <= SHORT_HEAD else max(map(len, name.split()))
        longest = max(map(len, cells), default=0)
        if name in table.text:
            longest = min(longest, most)
        # Headings are bold, and there is a gap between columns.
        widths.append(max(LEAST_CELL, min(word + 3, MOST_CELL), longest) + 1)
    return widths
