"""What a notebook shows of a study, results, an analysis and verdicts: a card, a figure, a table.

Styles hold within what is shown, and a notebook that drops them shows plain tables.
"""

from __future__ import annotations

import base64
import re
from functools import cache, singledispatch
from importlib.resources import files
from typing import Any

import vl_convert
from markupsafe import Markup

from paribus import numbers
from paribus.analysis import Analysis, analyse
from paribus.decision import STYLE_OF, Verdicts, decide
from paribus.report import tables
from paribus.report.figures import colours, forest
from paribus.report.model import build_report
from paribus.report.render import fill
from paribus.results import Results
from paribus.study import Study

WIDTH, ROOM = 480, 14  # pixels of the figure, and around it


@singledispatch
def html(shown: Any) -> str:
    """Return `shown` as HTML: a study, results, an analysis, or verdicts."""
    raise TypeError(f"{type(shown).__name__} is shown by nothing")


@html.register
def _(shown: Study) -> str:
    arms, seeds = len(shown.arms), len(shown.seeds)
    about = f"{numbers.plural(arms, 'arm')} at {numbers.plural(seeds, 'seed')}"
    primary = " and ".join(endpoint.metric for endpoint in shown.judged)
    return _filled(
        shown,
        title=shown.question or shown.title or shown.name,
        tables=[tables.arms(shown)],
        note=f"{about}; judged on {primary} by the rule {shown.decision.rule}.",
    )


@html.register
def _(shown: Results) -> str:
    return html(decide(analyse(shown))) if shown.finished else html(shown.study)


@html.register
def _(shown: Analysis) -> str:
    report = build_report(decide(shown), titles=True)
    return _filled(shown.study, report=report, tables=tables.primary(shown), **_picture(shown))


@html.register
def _(shown: Verdicts) -> str:
    report = build_report(shown, titles=True)
    return _filled(
        shown.analysis.study, report=report, note=report.missing, **_picture(shown.analysis)
    )


def _picture(analysis: Analysis) -> dict[str, str]:
    """Return the forest plot of the first primary endpoint; nothing where there is none."""
    figure = forest(analysis, analysis.study.primary)
    if figure is None:
        return {}
    # Room for labels that the reader's font makes wider than ours.
    drawn = vl_convert.vegalite_to_svg(figure.printed(WIDTH) | {"padding": ROOM})
    return {"picture": base64.b64encode(drawn.encode()).decode(), "alt": figure.text}


def _filled(study: Study, **values: Any) -> str:
    known = {"title": "", "report": None, "picture": "", "alt": "", "tables": [], "note": ""}
    called, palette = study.called, colours(study)
    return fill(
        "notebook.html",
        **known | values,
        style=_style(),
        styles=STYLE_OF,
        colours={called[arm]: palette[arm] for arm in study.arms},
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
