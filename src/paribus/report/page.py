"""`report.html`: one self-contained file, computed from the records alone."""

from __future__ import annotations

import contextlib
import hashlib
import json
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jinja2
import vl_convert

from paribus import numbers
from paribus.analysis import Analysis
from paribus.decision import STYLE_OF, Verdict, judge, shared_caveats, titled
from paribus.digests import flatten
from paribus.errors import ParibusError
from paribus.files import cache_folder, write_bytes
from paribus.report import tables
from paribus.report.card import card, chips
from paribus.report.figures import Figure, colours, draw, forest_name, pairs_name
from paribus.report.section_tables import (
    along_table,
    data_tables,
    note,
    sampling_method,
    task_contrast_table,
    task_table,
    tuning_in_words,
    tuning_tables,
)
from paribus.report.table_model import Table
from paribus.report.tables import summed_up_in_words, trial_tables
from paribus.report.words import missing_in_words
from paribus.results import Results
from paribus.statistics import DESCRIPTIVE_BELOW
from paribus.untrusted_io import CODE_BYTES, is_regular, read_text

MOST_OPEN_SEEDS = 12  # more checkboxes than this are folded away
MOST_OPEN_ROWS = 12  # more rows than this are folded away, in a section that is open
AGAINST = "against"  # the column of references


@dataclass(frozen=True)
class Section:
    """A part of the page: tables first, then figures; or the other way round."""

    id: str
    title: str
    note: str = ""
    tables: list[Table] = field(default_factory=list)
    figures: list[Figure] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    figures_first: bool = False
    folded: bool = False

    @property
    def contents(self) -> str:
        """Tables and figures, counted: what a reader may expect who has not opened it."""
        counts = ((len(self.figures), "figure"), (sum(bool(t.rows) for t in self.tables), "table"))
        return ", ".join(numbers.plural(n, word) for n, word in counts if n)


def write_report(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> Path:
    """Write `report.html` into the results folder; returns its path. Needs no network."""
    path = results.path / "report.html"
    write_bytes(path, render(results, analysis, verdicts, drawn).encode())
    return path


def render(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> str:
    """Return the page as text. Whatever comes from a study file is escaped.

    `drawn` are the figures, where they have been drawn already.
    """
    drawn = draw(results, analysis) if drawn is None else drawn
    verdicts = titled(analysis, verdicts)
    study, called = results.study, results.study.called
    palette = colours(study)
    forests = {figure.name: figure for figure in drawn}
    return page(
        "page.html",
        drawn,
        study=study,
        results=results,
        verdicts=verdicts,
        card=card(analysis, verdicts),
        shared=shared_caveats(verdicts),
        hypotheses=[one.sentence for one in judge(study, verdicts)],
        missing=missing_in_words(analysis),
        plural=numbers.plural,
        names=called,
        colours={called[arm]: palette[arm] for arm in study.arms},
        chips=chips(analysis),
        forests=[forests.get(forest_name(study, endpoint)) for endpoint in study.judged],
        summaries=[_lean(t) for t in tables.primary(analysis)],
        decision=tables.decision(analysis, verdicts),
        several=len(study.judged) > 1,
        styles=STYLE_OF,
        sections=_sections(results, analysis, drawn),
        arms=tables.arms(study),
        trials=trial_tables(results, analysis),
        summed_up=summed_up_in_words(results),
        specification=flatten(study.model_dump(mode="json")),
        environment=_environment(results),
        root=results.root,
        tokens=results.study.arm_facts(results.study.baseline).tokens,
        open_rows=MOST_OPEN_ROWS,
        open_seeds=len(study.seeds) <= MOST_OPEN_SEEDS,
    )


def page(template: str, drawn: list[Figure], **values: Any) -> str:
    """Return a template with figures, the scripts that show them, and `values`."""
    return filled(
        template,
        **values,
        # Inside a <script> element "</" would end it, whatever the quotes say.
        figure_data=_script_json([_packed(figure) for figure in drawn]),
        javascript=prepare().result(),
    )


def filled(template: str, **values: Any) -> str:
    """Return a template with `values`, which are escaped."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paribus.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(**values)


def _sections(results: Results, analysis: Analysis, drawn: list[Figure]) -> list[Section]:
    """Return what stands between verdict and trials; parts with nothing to say are left out.

    Tuning, curves and seeds are what a reader asks for next. All else is folded.
    """
    seeds = {pairs_name(endpoint.metric) for endpoint in results.study.judged}
    opening = {forest_name(results.study, endpoint) for endpoint in results.study.judged}

    def section(
        id_: str, *shown: Table | None, note: str = "", title: str = "", **more: Any
    ) -> Section:
        figures = [
            figure
            for figure in drawn
            if id_ == ("seeds" if figure.name in seeds else figure.section)
            and figure.name not in opening
        ]
        there = [_lean(table) for table in shown if table is not None]
        return Section(id_, title or id_.capitalize(), note, there, figures, **more)

    no_controls = "" if analysis.controls else "No arm has a seed in common with its baseline yet."
    few = len(results.study.seeds) < DESCRIPTIVE_BELOW
    small = "With fewer than five seeds, differences are described and not tested." if few else ""
    looks = (tables.sampling_table(analysis), tables.looks_table(analysis))
    evaluated = (task_contrast_table(analysis), task_table(results), tables.costs(analysis))
    tuned, way = " ".join(tuning_in_words(analysis)[:1]), along_table(analysis)
    under_way = note(analysis.study) if way else ""
    sections = [
        section("tuning", *tuning_tables(analysis), note=tuned, figures_first=True),
        section("sampling", *looks, note=sampling_method(analysis), title="Looks and stages"),
        section("along", way, note=under_way, title="Along training", figures_first=True),
        section("seeds", note=small, title="Every seed"),
        section(
            "controls",
            tables.controls(analysis),
            note=no_controls or tables.controls_in_words(analysis),
            title="All else equal",
            folded=True,
        ),
        section(
            "endpoints",
            tables.endpoints(analysis),
            lines=tables.left_out(analysis),
            title="Every endpoint",
            folded=True,
        ),
        section("stability", tables.stability(analysis), folded=True),
        section("diagnostics", folded=True),
        section("evaluation", *evaluated, folded=True),
        section("data", *data_tables(results), folded=True),
    ]
    return [s for s in sections if s.note or s.figures or any(t.rows for t in s.tables)]


def _lean(table: Table) -> Table:
    """Return a table without the reference of each row, where all have the same one."""
    if AGAINST not in table.head:
        return table
    at = table.head.index(AGAINST)
    said = {row[at] for row in table.rows} - {""}
    if len(said) != 1:
        return table
    kept = table.only(*(label for label in table.head if label != AGAINST))
    return replace(kept, caption=f"{table.caption} Compared with {said.pop()}.")


def _environment(results: Results) -> dict[str, Any]:
    """Return what the first trial recorded of software and machine; empty where nothing was."""
    first = next(iter(results.finished), None)
    if first is None or not is_regular(first.path / "environment.json"):
        return {}
    return flatten(first.read_json("environment.json"))


def _packed(figure: Figure) -> dict[str, Any]:
    """Return a figure for the script: its rows by column, words as indices into a list."""
    keys = list(dict.fromkeys(key for row in figure.rows for key in row))
    columns = {key: [row.get(key) for row in figure.rows] for key in keys}
    packed: dict[str, Any] = {}
    for key, values in columns.items():
        if any(isinstance(value, str) for value in values):
            words = list(dict.fromkeys(values))
            places = {word: i for i, word in enumerate(words)}
            packed[key] = {"words": words, "at": [places[value] for value in values]}
        else:
            packed[key] = values
    return {
        "name": figure.name,
        "definition": figure.definition | {"description": figure.caption},
        "columns": packed,
        "log": figure.log,
        "panel": figure.panel,
        "room": figure.room,
        "stretch": figure.stretch,
    }


def _script_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def prepare() -> Future[str]:
    """Begin in the background what needs no records: bundling the scripts takes seconds."""
    return ThreadPoolExecutor(1).submit(javascript)


def javascript() -> str:
    """Return Vega, Vega-Lite and Vega-Embed in one bundle that ships with vl-convert.

    It is kept in the cache, under the version of vl-convert and its own digest: one that was cut or
    changed is made again.
    """
    folder, of = cache_folder() / "scripts", f"vega-{version('vl-convert-python')}"
    for path in folder.glob(f"{of}-*.js"):
        with contextlib.suppress(ParibusError):
            text = read_text(path, CODE_BYTES)
            if path.stem == f"{of}-{_digest(text)}":
                return text
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(ParibusError):  # a cache that cannot be written is no reason to stop
        write_bytes(folder / f"{of}-{_digest(text)}.js", text.encode())
    return text


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
