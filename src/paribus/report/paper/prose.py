"""The paper as a document: every sentence from the analysis, none that claims more than it.

The paper of one study is that of several with one of them: what studies share is said once, and
what differs stands in a table, in each study's section and in its appendix.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from paribus.report.paper import appendix_parts
from paribus.report.paper.by_output_matrix import TURNED, by_output_matrix
from paribus.report.paper.caveats import often_said
from paribus.report.paper.closing import limits, reproducibility
from paribus.report.paper.document import Block, Document, Grid, Paragraph, Part, Picture, Ref, say
from paribus.report.paper.finding_by_setting import (
    BY_SETTING,
    finding_by_setting,
    setting_table,
)
from paribus.report.paper.findings import analysis_part, results
from paribus.report.paper.introduction import (
    MOST_QUESTIONS,
    abstract,
    introduction,
    title_of,
    titles_of,
)
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
from paribus.report.table_model import Table

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
    detail = detail or details(n_comparing(studies))[0]
    sections = _sections(studies, titles, detail) if len(studies) > 1 else []
    parts = [introduction(studies, titles), related(studies), way]
    parts += _found(studies, sections, detail)
    parts += [
        limits(studies),
        recommendation(studies),
        *filter(None, [larger_scale(studies)]),
        reproducibility(studies, list(own.paragraphs)),
    ]
    places = {titles[one.name]: one.full_name for one in studies}
    if len(studies) == 1:
        appendix = appendix_parts.of_one(studies[0])
    else:
        left = [] if detail.sections else [_with(one, own.paragraphs, places) for one in sections]
        appendix = appendix_parts.of_several(studies, titles, of_studies, left)
    first = own.paragraphs.get("Abstract", [])
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


def _sections(studies: Sequence[Material], titles: Mapping[str, str], detail: Detail) -> list[Part]:
    """A section on each study, in their order."""
    figures, left = chosen_figures(studies, detail.figures), often_said(studies)
    found = [
        study_section(one, titles[one.name], detail, figures[one.name], left) for one in studies
    ]
    if len({one.study.question for one in studies}) > MOST_QUESTIONS:  # the introduction has none
        asked = [[say(one.study.question)] if one.study.question else [] for one in studies]
        found = [
            Part(part.title, [*question, *part.blocks], part.level)
            for part, question in zip(found, asked, strict=True)
        ]
    return [part.named(prefix_of(i, len(studies))) for i, part in enumerate(found)]


def _found(studies: Sequence[Material], sections: Sequence[Part], detail: Detail) -> list[Part]:
    """What came out: of one study at length, of several a section each."""
    if len(studies) == 1:
        only = studies[0]
        return [*tuning_part(only), results(only), analysis_part(only)]
    across = (rate_sensitivity(studies), size_trends(studies))
    found = [_answers(studies, detail), *filter(None, across)]
    found += sections if detail.sections else []
    why = mechanism(studies, min(detail.figures, MOST_OF_MECHANISM) if detail.mechanism else 0)
    return [*found, why] if why else found


def _answers(studies: Sequence[Material], detail: Detail) -> Part:
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
    if not detail.sections:
        follows = "A section on each study opens its appendix."
    by_setting: list[Block] = [say(line) for line in finding_by_setting(studies)]
    if settings := setting_table(studies):
        by_setting.append(say("What was found of each treatment is in ", Ref(BY_SETTING), "."))
        by_setting.append(Grid(settings, groups=True))
    if turned := by_output_matrix(studies):
        drawn_too = "Changes along training budget and output matrix are drawn in "
        by_setting += [
            say(drawn_too, Ref(TURNED), "."),
            Picture(TURNED, turned.caption, turned.wide),
        ]
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
