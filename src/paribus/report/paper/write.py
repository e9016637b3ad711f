"""From a document to `paper.pdf`, and to the parts of it that other typesetters can use."""

from __future__ import annotations

import csv
import io
import json
import re
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import typst
import vl_convert

from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.digests import canonical_json
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.report import tables
from paribus.report.figures import Figure, draw
from paribus.report.paper.by_output_matrix import TURNED, by_output_matrix
from paribus.report.paper.document import Document, Picture
from paribus.report.paper.glyphs import lacking, spelled
from paribus.report.paper.material import Material
from paribus.report.paper.mechanism import prefix_of
from paribus.report.paper.overview import OVERVIEW, overview
from paribus.report.paper.own_words import OwnWords, beside, read_own_words
from paribus.report.paper.prose import SECTIONS, compose
from paribus.report.paper.several import material_of
from paribus.report.paper.study_section import Detail, details, n_comparing
from paribus.report.paper.typesetting import Typeset, text_pages, typeset_paper
from paribus.report.section_tables import (
    along_table,
    data_tables,
    task_contrast_table,
    task_table,
    tuning_tables,
)
from paribus.report.tables import looks_table, sampling_table
from paribus.results import Results
from paribus.results.formats import csv_cell
from paribus.results.store import secure
from paribus.study.allowed_text import drawable

MOST_PAGES = 9  # of the text, before references and appendix, of a paper of several studies
COLUMN_PIXELS, PAGE_PIXELS = 380, 720
MOST_HEIGHT = 930  # pixels: a page without the caption; what is taller would be cut off
PLAIN = set(map(chr, range(0x250))) | set("–—‘’“”…−×±→≤≥βεΔ²·✓✗\u200b")  # noqa: RUF001
FIGURE_PAGE = b"""
#set page(width: auto, height: auto, margin: 0pt)
#set document(date: none)
#image(sys.inputs.file)
"""


@dataclass(frozen=True)
class Drawn:
    """The size of a figure: the share of the width it was given that it takes, and its height as a
    share of its own width."""

    share: float
    height: float


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
    folder, path = results.path / "paper", results.path / "paper.pdf"
    made = _made(folder, [Material(results, analysis, verdicts, drawn)], OwnWords())
    _write_tables(folder, results, analysis)
    write_bytes(path, made.pdf)
    return path


def write_papers(
    folders: Sequence[Path], path: Path, text: Path | None = None, parts: Path | None = None
) -> tuple[Typeset, list[Verdict]]:
    """Write one paper on the studies in these results folders to `path`, which ends in .pdf.

    Args: text: authors and own paragraphs (`own_words`), by default the file paper.md in the folder
        that all results folders lie in. parts: a folder for the text as data and for the figures.

    Returns what was set, and all verdicts. Nothing is written to the results folders. Raises
    ParibusError as `material_of` and `read_own_words` do.
    """
    if path.suffix != ".pdf" or path.is_dir():
        raise ParibusError(f"{path} must be the name of a file that ends in .pdf; choose another")
    text = text or beside(folders)
    studies = material_of(folders)
    # Words at an unknown place are told before anything is drawn.
    places = [*SECTIONS, *(one.full_name for one in studies)]
    own = read_own_words(text, places) if text else OwnWords()
    with tempfile.TemporaryDirectory() as scratch:
        made = _made(parts or Path(scratch), studies, own)
    write_bytes(path, made.pdf)
    return made, [verdict for one in studies for verdict in one.verdicts]


def _made(folder: Path, studies: Sequence[Material], own: OwnWords) -> Typeset:
    """Set a paper in `folder`: with as much of several studies as the text has pages for."""
    figures = {
        prefix_of(i, len(studies)) + figure.name: figure
        for i, one in enumerate(studies)
        for figure in one.figures
    }
    if len(studies) > 1:
        of_all = {OVERVIEW: overview(studies), TURNED: by_output_matrix(studies)}
        figures |= {name: figure for name, figure in of_all.items() if figure}
    drawn: dict[str, Drawn] = {}

    def written(detail: Detail) -> bool:
        document = compose(*studies, own=own, detail=detail)
        return _write_document(folder, document, figures, drawn)

    wanted = details(n_comparing(studies))
    last_of_all = len(wanted) - 1 if len(studies) > 1 else 0
    first, last = 0, last_of_all
    while first < last:  # the less is shown, the fewer pages: the first that keeps to them
        middle = (first + last) // 2
        if text_pages(folder, system=written(wanted[middle])) <= MOST_PAGES:
            last = middle
        else:
            first = middle + 1
    paper = typeset_paper(folder, system=written(wanted[first]))
    while not paper.is_whole and first < last_of_all:  # something runs over a margin
        first += 1
        paper = typeset_paper(folder, system=written(wanted[first]))
    return paper


def _write_document(
    folder: Path, document: Document, figures: dict[str, Figure], drawn: dict[str, Drawn]
) -> bool:
    """Write `document.json` and the figures that it shows, but those in `drawn`, which are there;
    returns whether fonts of this machine are needed."""
    data = document.to_dict()
    strange = set(canonical_json(data)) - PLAIN
    missing = lacking(strange, system=False)
    system, nowhere = bool(missing), lacking(missing, system=True)
    with ThreadPoolExecutor() as pool:
        new = [one for one in document.pictures if one.name not in drawn]
        made = pool.map(
            lambda one: _write_figure(folder, figures[one.name], nowhere, one, system=system), new
        )
        drawn |= zip((one.name for one in new), made, strict=True)
    data["shares"] = {name: one.share for name, one in drawn.items()}
    data["heights"] = {name: one.height for name, one in drawn.items()}
    text = spelled(json.dumps(data, ensure_ascii=False, indent=1), nowhere)
    write_bytes(folder / "document.json", text.encode())
    return system


def _write_figure(
    folder: Path, figure: Figure, nowhere: set[str], picture: Picture, *, system: bool
) -> Drawn:
    """Write a figure as SVG and PDF. One that would be taller than a page is made less wide."""
    width = PAGE_PIXELS if picture.wide else COLUMN_PIXELS
    # The renderer ends the process at a character that XML forbids. Studies with one are refused,
    # but what a probe or a task calls its parts is drawn too.
    definition = json.dumps(drawable(figure.printed(width)), ensure_ascii=False)
    svg = vl_convert.vegalite_to_svg(spelled(definition, nowhere))
    path = folder / "figures" / f"{picture.name}.svg"
    write_bytes(path, svg.encode())
    page = typst.Compiler(
        FIGURE_PAGE,
        root=path.parent,
        sys_inputs={"file": path.name},
        ignore_system_fonts=not system,
    )
    pdf = page.compile(format="pdf", timestamp=0)
    assert isinstance(pdf, bytes)  # other formats, which are not asked for, are a list of pages
    write_bytes(path.with_suffix(".pdf"), pdf)
    taken = re.search(r'<svg[^>]* width="([\d.]+)" height="([\d.]+)"', svg)
    if taken is None:
        raise ParibusError(f"the renderer gave {path} no size; draw the paper again")
    across, down = float(taken[1]), float(taken[2])
    share = min(1.0, across / width, MOST_HEIGHT * across / (down * width))
    return Drawn(share, down / across)


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
        tables.estimates(analysis),
        tables.tests(analysis),
        *data_tables(results),
        *(table for table in optional if table is not None),
    ]
    for table in found:
        sink = io.StringIO()
        csv.writer(sink, lineterminator="\n").writerows(
            [csv_cell(cell) for cell in row] for row in (table.head, *table.rows)
        )
        write_bytes(folder / "tables" / f"{table.name}.csv", sink.getvalue().encode())
