"""`report.html`: one self-contained file, computed from the records alone."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jinja2

from paribus import numbers
from paribus.analysis import Analysis
from paribus.decision import OUTCOMES, Verdict, judge, shared_caveats
from paribus.digests import flatten
from paribus.files import write_bytes
from paribus.report import tables
from paribus.report.along_told import along_table, note
from paribus.report.data_tables import data_tables
from paribus.report.figures import Figure, colours, draw, names
from paribus.report.looks_and_stages import looks_table, sampling_method, sampling_table
from paribus.report.scripts import prepare
from paribus.report.tables import Table
from paribus.report.task_accuracy import task_contrast_table, task_table
from paribus.report.trial_tables import summed_up_in_words, trial_tables
from paribus.report.tuning_told import tuning_in_words, tuning_tables
from paribus.report.words import headlines, missing_in_words
from paribus.results import Results
from paribus.results.store import secure

MOST_OPEN_SEEDS = 12  # more checkboxes than this are folded away


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


def write_report(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> Path:
    """Write `report.html` into the results folder; returns its path. Needs no network."""
    secure(results.path)
    path = results.path / "report.html"
    write_bytes(path, render(results, analysis, verdicts, drawn).encode())
    return path


def render(
    results: Results,
    analysis: Analysis,
    verdicts: list[Verdict],
    drawn: list[Figure] | None = None,
) -> str:
    """The page as text. Whatever comes from a study file is escaped.

    `drawn` are the figures, where they have been drawn already.
    """
    drawn = draw(results, analysis) if drawn is None else drawn
    study, called = results.study, names(results.study)
    palette = colours(study)
    return page(
        "page.html",
        drawn,
        study=study,
        results=results,
        verdicts=verdicts,
        headlines=headlines(analysis, verdicts),
        shared=shared_caveats(verdicts),
        hypotheses=[one.sentence for one in judge(study, verdicts)],
        missing=missing_in_words(analysis),
        plural=numbers.plural,
        names=called,
        colours={called[arm]: palette[arm] for arm in study.arms},
        lead=next((figure for figure in drawn if figure.name == "forest"), None),
        summaries=tables.primary(analysis),
        decision=tables.decision(analysis, verdicts),
        several=len(study.judged) > 1,
        styles={name: outcome.style for name, outcome in OUTCOMES.items()},
        sections=_sections(results, analysis, drawn),
        arms=tables.arms(study),
        trials=trial_tables(results, analysis),
        summed_up=summed_up_in_words(results),
        specification=flatten(study.model_dump(mode="json")),
        environment=_environment(results),
        root=results.root,
        open_seeds=len(study.seeds) <= MOST_OPEN_SEEDS,
    )


def page(template: str, drawn: list[Figure], **values: Any) -> str:
    """A template with figures, the scripts that show them, and `values`."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paribus.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template(template).render(
        **values,
        # Inside a <script> element "</" would end it, whatever the quotes say.
        figure_data=_script_json([_packed(figure) for figure in drawn]),
        javascript=prepare().result(),
    )


def _sections(results: Results, analysis: Analysis, drawn: list[Figure]) -> list[Section]:
    """What stands between the verdict and the trials; parts with nothing to say are left out."""

    def of(section: str) -> list[Figure]:
        return [figure for figure in drawn if figure.section == section and figure.name != "forest"]

    controls = "" if analysis.controls else "No arm has a seed in common with its baseline yet."
    small = (
        "With fewer than five seeds, differences are described and not tested."
        if len(results.study.seeds) < 5
        else ""
    )
    claims = [table] if (table := tables.claims(analysis)) else []
    tasks = [task_contrast_table(analysis), task_table(results)]
    evaluated = [*filter(None, tasks), tables.costs(analysis)]
    sampled = [table for table in (sampling_table(analysis), looks_table(analysis)) if table]
    tuning = tuning_tables(analysis)
    way = [table] if (table := along_table(analysis)) else []
    sections = [
        Section(
            "tuning",
            "Tuning",
            " ".join(tuning_in_words(analysis)[:1]),
            tuning,
            of("tuning"),
            figures_first=True,
        ),
        Section("sampling", "Looks and stages", sampling_method(analysis), sampled),
        Section("controls", "All else equal", controls, [tables.controls(analysis)]),
        Section(
            "endpoints",
            "Endpoints",
            small,
            [tables.endpoints(analysis), *claims],
            of("endpoints"),
            tables.left_out(analysis),
        ),
        Section("along", "Along training", note(analysis.study) if way else "", way, of("along")),
        Section(
            "stability",
            "Stability",
            "",
            [tables.stability(analysis)],
            of("stability"),
        ),
        Section("diagnostics", "Diagnostics", "", [], of("diagnostics")),
        Section("evaluation", "Evaluation", "", evaluated, of("evaluation")),
        Section("data", "Data", "", data_tables(results)),
    ]
    return [s for s in sections if s.note or s.figures or any(t.rows for t in s.tables)]


def _environment(results: Results) -> dict[str, Any]:
    return flatten(results.finished[0].read_json("environment.json")) if results.finished else {}


def _packed(figure: Figure) -> dict[str, Any]:
    """A figure for the page's script: its rows by column, words as indices into a list."""
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
    }


def _script_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
