"""PDF report of a study (`report.pdf`), typeset by Typst from `templates/report.typ`."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import typst
import vl_convert

from paribus.analysis import Analysis
from paribus.decision import Verdicts
from paribus.files import write_bytes
from paribus.report import tables
from paribus.report.figures import Figure
from paribus.report.model import Block, build_report
from paribus.report.table_model import Table
from paribus.results import Results

# In JSON: control characters, which are invalid in Vega expressions, and what is not a Char of
# https://www.w3.org/TR/xml/#charsets, for which the renderer would abort the process.
UNDRAWABLE = re.compile(
    r"(\\\\)|\\(?:[bfnrt]|u00[01].)|[\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
COLUMN_PIXELS, PAGE_PIXELS = 380, 720
MOST_ROWS = 40  # of a table
MOST_CAUTIONS = 8
TABLES = ("arms", "tuning", "primary", "contrasts", "secondary", "stability", "costs", "controls")
FIRST = ("forest", "tuning")  # figures that are always shown, by their start
BREAK = "\u200b"  # a place to break a line that shows nothing
LONG_WORD = 22  # characters; longer ones may be broken


def write_pdf(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: Sequence[Figure]
) -> Path:
    """Write `report.pdf` to the results folder and return its path.

    The output is deterministic: the same records produce the same bytes.
    """
    chosen = [f for f in drawn if f.name.startswith(FIRST) or f.in_text]
    path = results.path / "report.pdf"
    with tempfile.TemporaryDirectory(prefix="paribus-") as name:
        folder = Path(name)
        pictures = [write_figure(folder, figure) for figure in chosen]
        document = _document(results, analysis, verdicts, pictures)
        write_bytes(folder / "document.json", json.dumps(document).encode())
        template = files("paribus.report").joinpath("templates/report.typ").read_bytes()
        write_bytes(folder / "report.typ", template)
        compiler = typst.Compiler(folder / "report.typ", root=folder)
        pdf = compiler.compile(format="pdf", timestamp=0)
        assert isinstance(pdf, bytes)  # other formats give a list of pages
        write_bytes(path, pdf)
    return path


def _document(
    results: Results, analysis: Analysis, verdicts: Verdicts, pictures: Sequence[dict[str, Any]]
) -> dict[str, Any]:
    report, study = build_report(verdicts), results.study
    blocks = [
        {"title": breakable(block.heading), "rows": list(_rows(block))} for block in report.blocks
    ]
    every = tables.all_tables(results, analysis, verdicts)
    lines = (report.lead, report.overruled, report.reading, report.action, report.missing)
    return {
        "title": breakable(study.title or study.name),
        "about": f"Study {study.name}, digest {study.digest[:12]}, root {results.root}",
        "question": breakable(report.question),
        "blocks": blocks,
        "lines": [breakable(line) for line in lines if line],
        "cautions": [breakable(c.text) for c in report.cautions[:MOST_CAUTIONS]],
        "facts": "; ".join(report.facts),
        "tables": [_table(table) for table in every if table.name.startswith(TABLES)],
        "figures": list(pictures),
    }


def _rows(block: Block) -> Iterator[list[str]]:
    for reference, rows in block.groups:
        if reference and len(block.compared) > 1:
            yield ["", breakable(f"against {reference.label} (mean {reference.mean})"), "", "", ""]
        for row in rows:
            yield [breakable(t) for t in (row.word, row.label, row.change, row.tests, row.note)]


def _table(table: Table) -> dict[str, Any]:
    n, rows = len(table.rows), table.rows[:MOST_ROWS]
    return {
        "caption": breakable(table.caption + (f" The first of {n} rows." if n > MOST_ROWS else "")),
        "head": [breakable(label) for label in table.head],
        "is_text": [label in table.text for label in table.head],
        "rows": [[breakable(cell) for cell in row] for row in rows],
    }


def write_figure(folder: Path, figure: Figure) -> dict[str, Any]:
    """Write a figure as `NAME.svg`; return its name, caption and width class for the template."""
    definition = figure.printed(PAGE_PIXELS if figure.wide else COLUMN_PIXELS)
    text = json.dumps(definition, ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(UNDRAWABLE.sub(lambda match: match[1] or " ", text))
    write_bytes(folder / f"{figure.name}.svg", svg.encode())
    return {"name": figure.name, "caption": breakable(figure.text), "wide": figure.wide}


def minus(text: str) -> str:
    """Replace the hyphens of negative numbers with true minus signs."""
    return re.sub(r"(?<![\w-])-(?=\d)", "\N{MINUS SIGN}", text)


def breakable(text: str) -> str:
    """Replace hyphens before digits with minus signs, and add break points to very long words."""
    text = minus(text)
    place = re.compile(r"([-_./:=]|\w{8}(?=\w))")
    long = rf"\S{{{LONG_WORD},}}"
    return re.sub(long, lambda word: place.sub(rf"\1{BREAK}", word[0]), text)
