"""Notebook displays of studies, results, analyses and verdicts: a card, a figure, a table.

Styles hold within what is shown, and a notebook that drops them shows plain tables.
"""

from __future__ import annotations

import base64
import re
from functools import cache
from importlib.resources import files
from typing import Any

import vl_convert
from markupsafe import Markup

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.decision import Verdicts, decide
from paribus.report import tables
from paribus.report.figures import colours, forest
from paribus.report.model import build_report
from paribus.report.render import fill
from paribus.results import Results
from paribus.study import Study

WIDTH, ROOM = 480, 14  # pixels of the figure, and around it


def html(shown: Study | Results | Analysis | Verdicts) -> str:
    """Return a study, results, an analysis, or verdicts as HTML."""
    if isinstance(shown, Results):
        shown = decide(analyse(shown)) if shown.finished else shown.study
    if isinstance(shown, Study):
        study, arms, seeds = shown, len(shown.arms), len(shown.seeds)
        size = f"{numbers.plural(arms, 'arm')} at {numbers.plural(seeds, 'seed')}"
        primary = " and ".join(endpoint.metric for endpoint in shown.judged)
        values: dict[str, Any] = {
            "title": shown.question or shown.title or shown.name,
            "tables": [tables.arms(shown)],
            "note": f"{size}; judged on {primary} by the rule {shown.decision.rule}.",
        }
    else:
        verdicts = decide(shown) if isinstance(shown, Analysis) else shown
        analysis, report = verdicts.analysis, build_report(verdicts, titles=True)
        study = analysis.study
        values = {"report": report, "note": report.missing}
        if isinstance(shown, Analysis):
            values["tables"] = tables.primary(analysis)
        if figure := forest(analysis, study.primary):
            # Room for labels that the reader's font makes wider than ours.
            drawn = vl_convert.vegalite_to_svg(figure.printed(WIDTH) | {"padding": ROOM})
            values["picture"] = base64.b64encode(drawn.encode()).decode()
            values["alt"] = figure.text
    palette = colours(study)
    known = {"title": "", "report": None, "picture": "", "alt": "", "tables": [], "note": ""}
    return fill(
        "notebook.html",
        **known | values,
        style=_style(),
        colours={called: palette[arm] for arm, called in study.called.items()},
    )


@cache
def _style() -> Markup:
    """Return the page's style sheet, to stand nested in a rule of its own.

    Sizes go by the letters around it, as a page that it stands in has a root of its own.
    """
    text = files("paribus.report").joinpath("templates/page.css").read_text("utf-8")
    text = (
        text.replace(":root", "&")
        .replace("body {", "& {")
        .replace("font: 16px/1.5", "font: 15px/1.5")
    )
    return Markup(re.sub(r"(?<=\d)rem\b", "em", text))
