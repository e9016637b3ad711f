"""`report.html`: one self-contained file, computed from the records alone."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import vl_convert

from paribus import numbers
from paribus.analysis import Analysis
from paribus.decision import Verdicts
from paribus.digests import flatten
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.report import tables
from paribus.report.figures import Figure, colours, draw, forest_name
from paribus.report.model import build_report
from paribus.report.render import fill
from paribus.report.table_model import Table
from paribus.results import Results
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.untrusted_io import CODE_BYTES, is_regular, read_text

MOST_OPEN_ROWS = 12  # more rows than this are folded away, in a section that is open


@dataclass(frozen=True)
class Section:
    """A section of the page, with tables and figures in either order."""

    id: str
    title: str
    note: str
    tables: list[Table]
    figures: list[Figure]
    lines: Sequence[str] = ()
    figures_first: bool = False
    folded: bool = False


def write_report(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: list[Figure] | None = None
) -> Path:
    """Write `report.html` into the results folder and return its path. Needs no network."""
    path = results.path / "report.html"
    write_bytes(path, render(results, analysis, verdicts, drawn).encode())
    return path


def render(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: list[Figure] | None = None
) -> str:
    """Return the page as HTML; everything from a study file is escaped.

    Args:
        drawn: the figures, if they have been drawn already.
    """
    drawn = draw(results, analysis) if drawn is None else drawn
    study, called = results.study, results.study.called
    palette, by_name = colours(study), {figure.name: figure for figure in drawn}
    return fill(
        "page.html",
        study=study,
        results=results,
        report=build_report(verdicts, titles=True),
        plural=numbers.plural,
        colours={called[arm]: palette[arm] for arm in study.arms},
        forests=[by_name.get(forest_name(study, endpoint)) for endpoint in study.judged],
        summaries=[tables.drop_shared_reference(table) for table in tables.primary(analysis)],
        sections=_sections(results, analysis, verdicts, drawn),
        specification=flatten(study.model_dump(mode="json", exclude_defaults=True)),
        environment=_environment(results),
        root=results.root,
        tokens=study.arm_facts(study.baseline).tokens,
        open_rows=MOST_OPEN_ROWS,
        # Inside a <script> element "</" would end it, whatever the quotes say.
        figure_data=_script_json([_packed(figure) for figure in drawn]),
        javascript=javascript(),
    )


def _sections(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: list[Figure]
) -> list[Section]:
    """Return the sections after the verdict, without empty ones."""
    study = results.study
    opening = {forest_name(study, endpoint) for endpoint in study.judged}

    def section(id_: str, *shown: Table, note: str = "", title: str = "", **more: Any) -> Section:
        figures = [
            figure for figure in drawn if id_ == figure.section and figure.name not in opening
        ]
        filled = [tables.drop_shared_reference(table) for table in shown if table.rows]
        return Section(id_, title or id_.capitalize(), note, filled, figures, **more)

    few = len(study.seeds) < DESCRIPTIVE_BELOW
    small = "Fewer than five seeds are described, not tested." if few else ""
    by_task = tables.task_contrast_table(analysis)
    if not by_task.rows:
        by_task = tables.accuracy_table(study, results.tasks.to_pylist())
    along, trials = tables.along_table(analysis), tables.trials(results, analysis)
    decision, secondary = tables.decision(analysis, verdicts), tables.secondary(analysis)
    rule, excluded = study.decision.rule, tables.left_out(analysis)
    n_trials = numbers.plural(results.n_trials, "trial")
    sections = [
        section("tuning", tables.tuning_table(analysis), figures_first=True),
        section("looks", tables.looks_table(analysis)),
        section("along", along, title="Along training", figures_first=True),
        section("seeds", note=small, title="Every seed"),
        section("controls", tables.controls(analysis), title="All else equal", folded=True),
        section("endpoints", secondary, lines=excluded, title="Secondary endpoints", folded=True),
        section("stability", tables.stability(analysis), folded=True),
        section("diagnostics", folded=True),
        section("evaluation", by_task, tables.costs(analysis), folded=True),
        section("decision", decision, note=rule, title="The decision rule", folded=True),
        section("arms", tables.arms(study), folded=True),
        section("trials", trials, note=n_trials, title="Every trial", folded=True),
    ]
    return [part for part in sections if part.note or part.figures or part.tables]


def _environment(results: Results) -> dict[str, Any]:
    """Return the first trial's record of software and machine; empty without trials."""
    first = next(iter(results.finished), None)
    if first is None or not is_regular(first.path / "environment.json"):
        return {}
    return flatten(first.read_json("environment.json"))


def _packed(figure: Figure) -> dict[str, Any]:
    """Return a figure for the page's script, with its rows as columns."""
    keys = list(dict.fromkeys(key for row in figure.rows for key in row))
    return {
        "name": figure.name,
        "definition": figure.definition | {"description": figure.text},
        "columns": {key: [row.get(key) for row in figure.rows] for key in keys},
        "log": figure.log,
        "panel": figure.panel,
        "stretch": figure.stretch,
    }


def _script_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one bundle that ships with vl-convert.

    Bundling takes seconds, so the bundle is cached.
    """
    path = cache_folder() / "scripts" / f"vega-{version('vl-convert-python')}.js"
    with contextlib.suppress(ParibusError):
        return read_text(path, CODE_BYTES)
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(ParibusError):  # a cache that cannot be written is no reason to stop
        write_bytes(path, text.encode())
    return text
