"""`paper.pdf`: the report of one study, some four pages; it needs Typst and nothing else."""

from __future__ import annotations

import csv
import io
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.files import write_bytes
from paribus.report.figures import Figure
from paribus.report.paper.contents import Fact, Material, Section, sections
from paribus.report.paper.typesetting import (
    COLUMN_PIXELS,
    PAGE_PIXELS,
    Drawn,
    column_widths,
    needs_fonts,
    to_pdf,
    typeset,
    write_figures,
)
from paribus.report.tables import Table
from paribus.results import Results

TEMPLATE, BIBLIOGRAPHY = "report.typ", "references.bib"


def write_paper(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> Path:
    """Write `paper.pdf` and `paper/` into the results folder; returns the PDF's path.

    `paper/` has the text as data, the template that sets it, references, every table as CSV and
    every figure as SVG and PDF. Equal records give equal bytes: no date is written, and the fonts
    are Typst's own, unless the study is in a script that they lack.
    """
    folder, path = results.path / "paper", results.path / "paper.pdf"
    material = Material(results, analysis, verdicts, drawn)
    parts = sections(material)
    about = f"A paribus study: {results.study.name}, digest {results.study.digest[:12]}"
    fonts = needs_fonts(
        json.dumps([_document(parts, {}), about, results.study.title], ensure_ascii=False)
    )
    wanted = [
        (name, figure, PAGE_PIXELS if figure.wide else COLUMN_PIXELS)
        for name, figure in material.figures.items()
    ]
    sizes = write_figures(folder / "figures", wanted, fonts)
    document = {
        "title": typeset(results.study.title or results.study.name),
        "about": typeset(about),
        "sections": _document(parts, sizes),
    }
    text = json.dumps(document, ensure_ascii=False, indent=1)
    write_bytes(folder / "document.json", text.encode())
    for name in (TEMPLATE, BIBLIOGRAPHY):
        write_bytes(folder / name, files("paribus.report.paper").joinpath(name).read_bytes())
    for table in material.tables.values():
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows((table.head, *table.rows))
        write_bytes(folder / "tables" / f"{table.name}.csv", sink.getvalue().encode())
    write_bytes(path, to_pdf(folder / TEMPLATE, fonts, str(path)))
    return path


def _document(parts: list[Section], sizes: dict[str, Drawn]) -> list[dict[str, Any]]:
    """Return the sections as the template reads them."""
    return [
        {"title": part.title, "blocks": [_block(block, sizes) for block in part.blocks]}
        for part in parts
    ]


def _block(block: Any, sizes: dict[str, Drawn]) -> dict[str, Any]:
    if isinstance(block, str):
        return {"kind": "text", "text": typeset(block)}
    if isinstance(block, Table):
        return {
            "kind": "table",
            "caption": typeset(block.caption),
            "head": [typeset(name) for name in block.head],
            "left": [name in block.text for name in block.head],
            "widths": column_widths(block),
            "rows": [[typeset(cell) for cell in row] for row in block.rows],
        }
    if isinstance(block[0], Fact):
        rows = [[one.name, typeset(one.text), list(one.cites)] for one in block]
        return {"kind": "facts", "rows": rows}
    if isinstance(block[0], Figure):
        return {"kind": "figures", "files": [_picture(one, sizes.get(one.name)) for one in block]}
    return {"kind": "items", "lines": [typeset(line) for line in block]}


def _picture(figure: Figure, drawn: Drawn | None) -> dict[str, Any]:
    size = {"share": drawn.share, "height": drawn.height} if drawn else {}
    return {
        "name": figure.name,
        "caption": typeset(figure.caption),
        "wide": figure.wide,
        **size,
    }
