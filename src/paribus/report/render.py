"""Rendering of the report templates as terminal text, Markdown and HTML."""

from __future__ import annotations

import re
import textwrap
from functools import cache
from typing import Any

import jinja2
from rich.markup import escape

from paribus.report.model import Block, Card, Row
from paribus.report.sentences import environment

WIDTH = 80  # columns of the card
LONG_LABEL = 34  # characters; longer names stand on a line of their own
MOST_ROWS = 6  # of all endpoints; with more, further endpoints are counts
# What Markdown or HTML would interpret in the names of arms and files.
MARKUP = re.compile(r"([\\`*_\[\]<>|#@~&$])")


@cache
def _environment(autoescape: bool) -> jinja2.Environment:
    filters = {"plain": _plain, "wrap": _wrap, "rich": escape, "lines": str.splitlines}
    environment(autoescape).filters |= filters
    return environment(autoescape)


def fill(template: str, **values: Any) -> str:
    """Render a template with the given values, which are escaped in HTML templates."""
    is_html = template.endswith(".html")
    return _environment(is_html).get_template(template).render(**values)


def card_text(report: Card, *, verbose: bool = False) -> str:
    """Render the card (the summary of a report) for an 80-column terminal, as rich markup."""
    n_rows = sum(len(block.rows) for block in report.blocks)
    word = max((len(row.word) for block in report.blocks for row in block.rows), default=0)
    lines = {row: _line(row, block, word) for block in report.blocks for row in block.rows}
    return fill(
        "card.txt",
        report=report,
        lines=lines,
        indent=word + 4,
        is_long=n_rows > MOST_ROWS,
        verbose=verbose,
    )


def _line(row: Row, block: Block, width: int) -> tuple[str, str, str]:
    """Split a row into text after the verdict label, a note on that line, and text below it."""
    labels = [len(r.label) for r in block.rows]
    widest = max((n for n in labels if n <= LONG_LABEL), default=0)
    label = row.label.ljust(widest)
    noted = [len(r.change) for r in block.rows if r.tests or r.note]
    change = row.change.ljust(max(noted, default=0)) if row.tests or row.note else row.change
    room = WIDTH - width - 4
    line = "  ".join(filter(str.strip, (label, change, row.tests))).rstrip()
    if len(line) > room:
        first = f"{label}  {row.change}"
        if len(first) <= room:
            return first, "", "; ".join(filter(None, (row.tests, row.note)))
        return label[:room].rstrip(), "", "  ".join(filter(None, (row.change, row.tests, row.note)))
    if row.note and len(line) + 2 + len(row.note) <= room:
        return line, row.note, ""
    return line, "", row.note


def card_markdown(report: Card) -> str:
    """Render the card (the summary of a report) as Markdown, such as for a pull request."""
    return re.sub(r"\n{3,}", "\n\n", fill("card.md", report=report)).strip() + "\n"


def _plain(text: object) -> str:
    return MARKUP.sub(r"\\\1", str(text).replace("\n", " "))


def _wrap(text: str, indent: int = 0) -> str:
    """Wrap text to the width of the card, and indent each line."""
    return textwrap.fill(
        text,
        WIDTH,
        initial_indent=" " * indent,
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
