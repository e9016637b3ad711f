"""From the data of a document to a PDF: what the template cannot know is found by trying."""

from __future__ import annotations

import itertools
import json
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any, NamedTuple

import typst

from paribus.files import write_bytes

BESIDE = ("template.typ", "references.bib")
LAYOUT = "layout.json"
FLOATING = ("figure", "table")  # kinds of blocks
# What is tried, in this order: space between lines of the text, in ems; for each of them the size
# of the references, in points.
LEADINGS = (0.52, 0.5, 0.54, 0.48, 0.56)
REFERENCES = (8.5, 8.0, 7.5, 9.0)
FULL_ENOUGH = 0.7  # of the last page that has references
# How far another layout moves the end of the references, as a share of a page: so much for each
# page of text, and so much by their own size.
MOVES_A_PAGE, MOVES = 0.03, 0.1
LOWEST = 0.934  # where the bottom margin begins, as a share of the page


class Layout(NamedTuple):
    """What the template reads of `layout.json`."""

    leading: float
    references: float


@dataclass(frozen=True)
class Typeset:
    """A paper.

    Attributes:
        pdf: the file.
        text_pages: on how many pages stands what comes before the references.
        filled: how much of the last page that has references is filled, as a share.
        is_whole: whether all that floats ends above the bottom margin.
    """

    pdf: bytes
    text_pages: int
    filled: float
    is_whole: bool


def typeset_paper(folder: Path, *, system: bool) -> Typeset:
    """Set `document.json` of `folder`, whose figures are there, and leave there what sets it.

    Pages of the appendix have one column and begin anew after the references. So that these do not
    leave an empty page behind, the first layout is taken with which they fill their last one, of
    those that take no more pages than what the text was shortened for, and in which nothing runs
    over the margin, where there is such a one. Where none could, none is tried.
    """
    tried: list[tuple[bool, bool, float, int, Layout]] = []
    for leading, references in itertools.product(LEADINGS, REFERENCES):
        layout = Layout(leading, references)
        pages, filled, is_whole = _ends(folder, layout, system=system)
        is_short = not tried or pages <= tried[0][3]
        tried.append((is_whole, is_short, filled, pages, layout))
        moves = MOVES + MOVES_A_PAGE * pages
        is_out_of_reach = len(tried) == 1 and moves < filled < FULL_ENOUGH - moves
        if is_whole and is_short and (filled >= FULL_ENOUGH or is_out_of_reach):
            break
    is_whole, _, filled, pages, layout = max(tried, key=lambda one: one[:3])
    _write_layout(folder, layout)
    pdf = _compiler(folder, system=system).compile(format="pdf", timestamp=0)
    assert isinstance(pdf, bytes)  # other formats, which are not asked for, are a list of pages
    return Typeset(pdf, pages, filled, is_whole)


def text_pages(folder: Path, *, system: bool) -> int:
    """On how many pages `document.json` stands before its references, as it is tried first."""
    return _ends(folder, Layout(LEADINGS[0], REFERENCES[0]), system=system)[0]


def _ends(folder: Path, layout: Layout, *, system: bool) -> tuple[int, float, bool]:
    """(the page that the text ends on, how full the page is that the references end on, whether
    all that floats is there, and ends above the bottom margin)."""
    _write_layout(folder, layout)
    compiler = _compiler(folder, system=system)
    end = _asked(compiler, "references-end")
    column = (1 if end["right"] else 0) + end["y"]
    parts = json.loads((folder / "document.json").read_text(encoding="utf-8"))["parts"]
    floating = [one for part in parts for one in part["blocks"] if one["kind"] in FLOATING]
    floats = json.loads(compiler.query("<float-end>", field="value"))
    is_whole = len(floats) == len(floating) and all(end < LOWEST for end in floats)
    return _asked(compiler, "text-ends"), column / 2, is_whole


def _compiler(folder: Path, *, system: bool) -> typst.Compiler:
    return typst.Compiler(folder / "template.typ", root=folder, ignore_system_fonts=not system)


def _asked(compiler: typst.Compiler, label: str) -> Any:
    return json.loads(compiler.query(f"<{label}>", field="value", one=True))


def _write_layout(folder: Path, layout: Layout) -> None:
    for name in BESIDE:
        source = files("paribus.report.paper").joinpath(name).read_bytes()
        write_bytes(folder / name, source)
    write_bytes(folder / LAYOUT, json.dumps(layout._asdict()).encode())
