"""The paper as a document: every sentence from the analysis, none that claims more than it.

The paper of one study is that of several with one of them: what studies share is said once, and
what differs stands in a table, in each study's section and in its appendix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paribus.report.paper import appendix_parts
from paribus.report.paper.caveats import often_said
from paribus.report.paper.closing import limits, reproducibility
from paribus.report.paper.document import Block, Document, Grid, Paragraph, Part, Picture, Ref, say
from paribus.report.paper.finding_by_setting import finding_by_setting
from paribus.report.paper.findings import analysis_part, results
from paribus.report.paper.hypotheses import hypotheses
from paribus.report.paper.introduction import abstract, introduction, title_of, titles_of
from paribus.report.paper.judged import answer_of
from paribus.report.paper.larger_scale import larger_scale
from paribus.report.paper.material import Material
from paribus.report.paper.mechanism import mechanism, prefix_of
from paribus.report.paper.method import method
from paribus.report.paper.overview import OVERVIEW, overview
from paribus.report.paper.own_words import OwnWords
from paribus.report.paper.rates_and_sizes import rate_sensitivity, size_trends
from paribus.report.paper.recommendations import recommendation
from paribus.report.paper.related import related
from paribus.report.paper.study_section import (
    Detail,
    chosen_figures,
    details,
    n_comparing,
    study_section,
)
from paribus.report.paper.tuning_part import tuning_part
from paribus.report.tables import Table

# Sections that the authors may add paragraphs to, besides the studies.
SECTIONS = (
    *("Abstract", "Introduction", "Related work", "Method", "Results", "Analysis", "Mechanism"),
    *("Limits", "Recommendation", "Recommendations", "What larger scale would have to show"),
    "Reproducibility",
)
MOST_OF_MECHANISM = 1  # figures
MOST_NAMED = 4  # studies that are named under the title


def compose(
    *studies: Material, own: OwnWords | None = None, detail: Detail | None = None
) -> Document:
    """The whole paper on these studies, in their order; their names differ."""
    own = own or OwnWords()
    titles = titles_of(studies)
    way, of_studies = method(studies)
    parts = [introduction(studies, titles), related(studies), way]
    parts += _found(studies, titles, detail or details(n_comparing(studies))[0])
    parts += [
        limits(studies),
        recommendation(studies),
        *filter(None, [larger_scale(studies)]),
        reproducibility(studies, list(own.paragraphs)),
    ]
    if len(studies) == 1:
        appendix = appendix_parts.of_one(studies[0])
    else:
        appendix = appendix_parts.of_several(studies, titles, of_studies)
    first = own.paragraphs.get("Abstract", [])
    places = {titles[one.name]: one.full_name for one in studies}
    return Document(
        title=own.title or title_of(studies),
        about=_about(studies),
        abstract=[*first, abstract(studies, sum(len(one.text.split()) for one in first))],
        parts=[_with(part, own.paragraphs, places) for part in parts],
        appendix=appendix,
        authors=own.authors,
    )


def _about(studies: Sequence[Material]) -> str:
    if len(studies) == 1:
        study = studies[0].study
        return f"A paribus study: “{study.name}”, digest {study.digest[:12]}"
    if len(studies) > MOST_NAMED:
        return ""  # they are named in the table of designs
    return f"{len(studies)} paribus studies: {', '.join(one.name for one in studies)}"


def _found(studies: Sequence[Material], titles: Mapping[str, str], detail: Detail) -> list[Part]:
    """What came out: of one study at length, of several a section each."""
    if len(studies) == 1:
        only = studies[0]
        return [*tuning_part(only), results(only), analysis_part(only)]
    across = (hypotheses(studies), rate_sensitivity(studies), size_trends(studies))
    found = [_answers(studies), *filter(None, across)]
    figures, left = chosen_figures(studies, detail.figures), often_said(studies)
    for i, one in enumerate(studies):
        section = study_section(one, titles[one.name], detail, figures[one.name], left)
        found.append(section.named(prefix_of(i, len(studies))))
    why = mechanism(studies, min(detail.figures, MOST_OF_MECHANISM))
    return [*found, why] if why else found


def _answers(studies: Sequence[Material]) -> Part:
    """The answers side by side."""
    rows = tuple((one.name, _answer(one)) for one in studies)
    head = ("study", "answer")
    caption = (
        "What every study found on the endpoints that it judges. Studies stand side by side and "
        "are not pooled."
    )
    table = Table("answers", caption, head, rows, frozenset(head), wide=True)
    figure = overview(studies)
    opening = ("What every study found is in ", Ref("answers"))
    follows = "A section on each study follows."
    by_setting = [say(line) for line in finding_by_setting(studies)]
    if figure is None:
        return Part("Results", [say(*opening, f". {follows}"), Grid(table), *by_setting])
    drawn = (", and every contrast on the endpoint that all of them judge in ", Ref(OVERVIEW), ". ")
    picture = Picture(OVERVIEW, figure.caption, figure.wide)
    told = [say(*opening, *drawn, follows), Grid(table), picture, *by_setting]
    return Part("Results", told)


def _answer(material: Material) -> str:
    said = answer_of(material, ())
    return f"{said[:1].upper()}{said[1:]}." if said else "Nothing is compared."


def _with(part: Part, own: Mapping[str, list[Paragraph]], places: Mapping[str, str]) -> Part:
    """With the authors' paragraphs at its end, which are the section's or the study's."""
    name = places.get(part.title, "") if part.level > 1 else ""
    more: list[Block] = [*own.get(name or part.title, [])]
    return Part(part.title, [*part.blocks, *more], part.level) if more else part
