"""HTML report of a study (`report.html`): one self-contained file rendered from the records."""

from __future__ import annotations

import contextlib
import json
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
from paribus.results import Results
from paribus.untrusted_io import is_regular, read_text


def write_report(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: list[Figure] | None = None
) -> Path:
    """Write `report.html` to the results folder and return its path."""
    path = results.path / "report.html"
    write_bytes(path, render(results, analysis, verdicts, drawn).encode())
    return path


def render(
    results: Results, analysis: Analysis, verdicts: Verdicts, drawn: list[Figure] | None = None
) -> str:
    """Render the report page as HTML, escaping all text from study files.

    Args:
        drawn: figures of the study, if already created.
    """
    drawn = draw(results, analysis) if drawn is None else drawn
    study, called = results.study, results.study.called
    palette, forests = colours(study), [forest_name(study, each) for each in study.judged]
    return fill(
        "page.html",
        study=study,
        results=results,
        report=build_report(verdicts),
        plural=numbers.plural,
        colours={called[arm]: palette[arm] for arm in study.arms},
        forests=forests,
        figures=drawn,
        tables=tables.all_tables(results, analysis, verdicts),
        left_out=tables.left_out(analysis),
        specification=flatten(study.model_dump(mode="json", exclude_defaults=True)),
        environment=_environment(results),
        root=results.root,
        tokens=study.arm_facts(study.baseline).tokens,
        # Inside a <script> element "</" would end it, whatever the quotes say.
        figure_data=_script_json([_packed(figure) for figure in drawn]),
        javascript=javascript(),
    )


def _environment(results: Results) -> dict[str, Any]:
    """Return the recorded software and machine of the first trial, or {} if no trial exists."""
    for first in results.finished[:1]:
        for name in ("environment.json", "machine.json"):
            if is_regular(first.path / name):
                return flatten(first.read_json(name))
    return {}


def _packed(figure: Figure) -> dict[str, Any]:
    """Convert a figure to a dict for the page's script, with rows transposed to columns."""
    keys = list(dict.fromkeys(key for row in figure.rows for key in row))
    return {
        "name": figure.name,
        "definition": figure.definition | {"description": figure.text},
        "columns": {key: [row.get(key) for row in figure.rows] for key in keys},
        "log": figure.log,
        "panel": figure.panel,
    }


def _script_json(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c")


def javascript() -> str:
    """Bundle Vega, Vega-Lite and Vega-Embed as JavaScript with vl-convert.

    Bundling takes several seconds, so the result is cached.
    """
    path = cache_folder() / "scripts" / f"vega-{version('vl-convert-python')}.js"
    with contextlib.suppress(ParibusError):
        return read_text(path)
    bundle = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")
    text = bundle.replace("</script", "<\\/script")
    with contextlib.suppress(ParibusError):  # a cache that cannot be written is no reason to stop
        write_bytes(path, text.encode())
    return text
