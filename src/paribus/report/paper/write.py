"""From a document to `paper.pdf`, and to the parts of it that other typesetters can use."""

from __future__ import annotations

import csv
import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import typst
import vl_convert

from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.digests import canonical_json
from paribus.files import write_bytes
from paribus.report import contrast_tables, tables
from paribus.report.along_told import along_table
from paribus.report.data_tables import data_tables
from paribus.report.figures import Figure, draw
from paribus.report.looks_and_stages import looks_table, sampling_table
from paribus.report.paper.glyphs import lacking, spelled
from paribus.report.paper.material import Material
from paribus.report.paper.prose import compose
from paribus.report.paper.typesetting import typeset_paper
from paribus.report.task_accuracy import task_contrast_table, task_table
from paribus.report.tuning_told import tuning_tables
from paribus.results import Results
from paribus.results.formats import csv_cell
from paribus.results.layout import secure
from paribus.study.allowed_text import drawable

COLUMN_PIXELS, PAGE_PIXELS = 380, 720
MOST_HEIGHT = 930  # pixels: a page without the caption; what is taller would be cut off
PLAIN = set(map(chr, range(0x250))) | set("–—‘’“”…−×±→≤≥βεΔ²·✓✗\u200b")  # noqa: RUF001
FIGURE_PAGE = b"""
#set page(width: auto, height: auto, margin: 0pt)
#set document(date: none)
#image(sys.inputs.file)
"""


def write_paper(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> Path:
    """Write `paper.pdf` and `paper/` into the results folder; returns the PDF's path.

    `paper/` has the text as data, the template that sets it, references, every table as CSV and
    every figure as SVG and PDF. Equal records give equal bytes: no date is written, and the fonts
    are typst's own, unless the study is in a script that they lack.
    """
    secure(results.path)
    drawn = draw(results, analysis) if drawn is None else drawn
    material = Material(results, analysis, verdicts, drawn)
    folder = results.path / "paper"
    document = compose(material).to_dict()
    strange = set(canonical_json(document)) - PLAIN
    missing = lacking(strange, system=False)
    system, nowhere = bool(missing), lacking(missing, system=True)
    with ThreadPoolExecutor() as pool:
        shares = pool.map(lambda figure: _write_figure(folder, figure, nowhere, system), drawn)
        document["shares"] = dict(zip((figure.name for figure in drawn), shares, strict=True))
    text = spelled(json.dumps(document, ensure_ascii=False, indent=1), nowhere)
    write_bytes(folder / "document.json", text.encode())
    _write_tables(folder, results, analysis)
    path = results.path / "paper.pdf"
    write_bytes(path, typeset_paper(folder, system=system).pdf)
    return path


def _write_figure(folder: Path, figure: Figure, nowhere: set[str], system: bool) -> float:
    """Write a figure as SVG and PDF; returns the share of the width it was given that it takes.

    One that would be taller than a page takes as much less of the width.
    """
    width = PAGE_PIXELS if figure.wide else COLUMN_PIXELS
    # The renderer ends the process at a character that XML forbids. Studies with one are refused,
    # but what a probe or a task calls its parts is drawn too.
    definition = json.dumps(drawable(figure.printed(width)), ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(spelled(definition, nowhere))
    path = folder / "figures" / f"{figure.name}.svg"
    write_bytes(path, svg.encode())
    page = typst.Compiler(
        FIGURE_PAGE,
        root=path.parent,
        sys_inputs={"file": path.name},
        ignore_system_fonts=not system,
    )
    write_bytes(path.with_suffix(".pdf"), _bytes(page.compile(format="pdf", timestamp=0)))
    taken = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg)
    if taken is None:
        return 1.0
    across, down = float(taken[1]), float(taken[2])
    return min(1.0, across / width, MOST_HEIGHT * across / (down * width))


def _bytes(compiled: bytes | list[bytes] | None) -> bytes:
    """A PDF is one file; other formats, which are not asked for, are a list of pages."""
    assert isinstance(compiled, bytes)
    return compiled


def _write_tables(folder: Path, results: Results, analysis: Analysis) -> None:
    optional = (
        along_table(analysis),
        sampling_table(analysis),
        looks_table(analysis),
        tables.claims(analysis),
        task_contrast_table(analysis),
        task_table(results),
    )
    found = [
        *tuning_tables(analysis),
        *tables.primary(analysis),
        tables.endpoints(analysis),
        tables.stability(analysis),
        tables.costs(analysis),
        tables.arms(results.study),
        tables.controls(analysis),
        tables.trials(results, analysis),
        contrast_tables.estimates(analysis),
        contrast_tables.tests(analysis),
        *data_tables(results),
        *(table for table in optional if table is not None),
    ]
    for table in found:
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows(
            [csv_cell(cell) for cell in row] for row in (table.head, *table.rows)
        )
        write_bytes(folder / "tables" / f"{table.name}.csv", sink.getvalue().encode())
