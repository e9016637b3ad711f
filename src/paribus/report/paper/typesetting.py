"""Typst and its figures: fonts that are everywhere, minus signs, long words, errors in one line."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import typst
import vl_convert

from paribus.errors import ParibusError, one_line
from paribus.files import write_bytes
from paribus.report.figures import Figure
from paribus.report.tables import Table
from paribus.study.allowed_text import drawable

COLUMN_PIXELS, PAGE_PIXELS = 380, 720
MOST_HEIGHT = 930  # pixels: a page without the caption; what is taller would be cut off
# What Typst's own fonts have; for all else those of the machine are asked.
PLAIN = set(map(chr, range(0x250))) | set("–—‘’“”…−×±→≤≥βεΔ²·✓✗\u200b")  # noqa: RUF001
FIGURE_PAGE = b"""
#set page(width: auto, height: auto, margin: 0pt)
#set document(date: none)
#image(sys.inputs.file)
"""
BREAK = "\u200b"  # a place to break a line that shows nothing
LONG_WORD = 22  # characters; longer ones may be broken after what joins their parts
LONG_PART = 15  # characters; longer parts of such a word may be broken anywhere
DIGEST = re.compile(r"\b[0-9a-f]{64}\b")  # set on one line, to be copied
SHORT_HEAD = 10  # a heading that is not broken
LEAST_CELL, MOST_CELL = 3, 30  # characters that a column of a table is made for
WIDE_ROW = 180  # characters of a row across the page: few columns may be wider than that


def needs_fonts(text: str) -> bool:
    """Tell if the fonts of this machine are needed beside Typst's own; a paper without is the same
    everywhere."""
    return bool(set(text) - PLAIN)


def to_pdf(source: Path, system: bool, called: str) -> bytes:
    """Compile a Typst file, whose folder has all that it names; equal files give equal bytes.

    Raises ParibusError with Typst's message, about what is `called` so.
    """
    compiler = typst.Compiler(source, root=source.parent, ignore_system_fonts=not system)
    try:
        pdf = compiler.compile(format="pdf", timestamp=0)
    except typst.TypstError as error:
        message = one_line(str(error))
        raise ParibusError(f"{called} could not be set: {message}") from None
    assert isinstance(pdf, bytes)  # other formats, which are not asked for, are a list of pages
    return pdf


@dataclass(frozen=True)
class Drawn:
    """The size of a figure: the share of the width it was given that it takes, and its height as a
    share of its own width."""

    share: float
    height: float


def write_figures(
    folder: Path, figures: Sequence[tuple[str, Figure, int]], system: bool
) -> dict[str, Drawn]:
    """Write figures, each with its file's name and width in pixels, in `folder`."""
    with ThreadPoolExecutor() as pool:
        made = pool.map(lambda one: write_figure(folder / one[0], one[1], one[2], system), figures)
        return dict(zip((one[0] for one in figures), made, strict=True))


def write_figure(path: Path, figure: Figure, width: int, system: bool) -> Drawn:
    """Write one, at `path` with .svg and .pdf; one taller than a page is made less wide."""
    # The renderer ends the process at a character that XML forbids. Studies with one are refused,
    # but what a probe or a task calls its parts is drawn too.
    definition = json.dumps(drawable(figure.printed(width)), ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(definition)
    image = path.with_name(f"{path.name}.svg")
    write_bytes(image, svg.encode())
    page = typst.Compiler(
        FIGURE_PAGE,
        root=image.parent,
        sys_inputs={"file": image.name},
        ignore_system_fonts=not system,
    )
    pdf = page.compile(format="pdf", timestamp=0)
    assert isinstance(pdf, bytes)
    write_bytes(path.with_name(f"{path.name}.pdf"), pdf)
    size = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg)
    if size is None:
        raise ParibusError(f"the renderer gave {image} no size; draw the paper again")
    across, down = float(size[1]), float(size[2])
    share = min(1.0, across / width, MOST_HEIGHT * across / (down * width))
    return Drawn(share, down / across)


def minus(text: str) -> str:
    """Return `text` with true minus signs before numbers."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def typeset(text: str) -> str:
    """Return `text` with true minus signs, and places where very long words may break.

    In a digest a break would be copied with it, so there is none.
    """
    around = [
        re.sub(rf"\S{{{LONG_WORD},}}", lambda word: _breakable(word[0]), minus(part))
        for part in DIGEST.split(text)
    ]
    digests = [*DIGEST.findall(text), ""]
    return "".join(map("".join, zip(around, digests, strict=True)))


def _breakable(word: str) -> str:
    """Between its parts; Typst itself breaks after a hyphen."""
    parts = re.split(r"(?<=[-_./:=])(?=[^-_./:=])", word)
    pieces = [
        part[i : i + 8] if len(part) > LONG_PART else part
        for part in parts
        for i in range(0, len(part) if len(part) > LONG_PART else 1, 8)
    ]
    return BREAK.join(pieces)


def column_widths(table: Table) -> list[int]:
    """Return relative widths: of words what they can do with, of numbers all that they need."""
    widths, most = [], max(MOST_CELL, WIDE_ROW // len(table.head))
    for i, name in enumerate(table.head):
        word = len(name) if len(name) <= SHORT_HEAD else max(map(len, name.split()))
        longest = max((len(row[i]) for row in table.rows), default=0)
        if name in table.text:
            longest = min(longest, most)
        # Headings are bold, and there is a gap between columns; of words it has to be seen, as the
        # letters of names are wider than digits, and the column after them may begin at its edge.
        gap = 3 if name in table.text else 1
        widths.append(max(LEAST_CELL, min(word + 3, MOST_CELL), longest) + gap)
    return widths
