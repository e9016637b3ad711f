"""`report.html`: one self-contained file, computed from the records alone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import altair as alt
import jinja2
import vl_convert

from paribus import numbers
from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.report import figures
from paribus.results import Results
from paribus.results.files import write_bytes
from paribus.study import METRICS
from paribus.study.canonical import flatten


@dataclass(frozen=True)
class Figure:
    """A figure on the page: where it goes, what it shows in words, and its Vega-Lite definition."""

    name: str
    caption: str
    chart: alt.TopLevelMixin

    @property
    def definition(self) -> dict[str, Any]:
        return self.chart.to_dict()


def write_report(results: Results, analysis: Analysis, verdicts: list[Verdict]) -> Path:
    """Write `report.html` into the results folder; returns its path. Needs no network."""
    path = results.path / "report.html"
    write_bytes(path, render(results, analysis, verdicts).encode())
    return path


def render(results: Results, analysis: Analysis, verdicts: list[Verdict]) -> str:
    """The page as text. Whatever comes from a study file is escaped."""
    drawn = _figures(results, analysis)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("paribus.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.globals.update(numbers=numbers, METRICS=METRICS)
    return environment.get_template("page.html").render(
        study=results.study,
        results=results,
        analysis=analysis,
        verdicts=verdicts,
        colours=figures.colours(results.study),
        figures=drawn,
        # Inside a <script> element "</" would end it, whatever the quotes say.
        definitions=_script_json({figure.name: figure.definition for figure in drawn}),
        javascript=_javascript(),
        specification=flatten(results.study.model_dump(mode="json")),
        environment=_environment(results),
    )


def _figures(results: Results, analysis: Analysis) -> list[Figure]:
    primary = METRICS[results.study.primary.metric]
    drawn = []
    if any(contrast.seeds for contrast in analysis.contrasts):
        drawn.append(
            Figure(
                "pairs",
                f"{primary.label.capitalize()}: every seed is a line from its baseline to its arm.",
                figures.seed_pairs(analysis, primary.name),
            )
        )
    curves = (
        ("train_loss", "training loss (nats/token)", "Training loss at every step"),
        ("grad_norm", "total gradient norm", "Total gradient norm before clipping"),
        ("embedding_norm/all/mean", "mean L2 norm", "Mean L2 norm at the first block's input"),
    )
    drawn += [
        Figure(
            column.replace("/", "-"),
            f"{caption}: thin lines are seeds, thick lines their mean. A click on the legend "
            "singles out an arm.",
            figures.step_curves(results, column, label=label),
        )
        for column, label, caption in curves
    ]
    return drawn


def _environment(results: Results) -> dict[str, Any]:
    return flatten(results.finished[0].read_json("environment.json")) if results.finished else {}


def _script_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


@cache
def _javascript() -> str:
    """Vega, Vega-Lite and Vega-Embed in one bundle that ships with vl-convert."""
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace(
        "</script", "<\\/script"
    )
