"""A study's own section in a paper of several: its question, design, figure, table and verdict."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from paribus import numbers
from paribus.decision import OUTCOMES, rule_of
from paribus.report import tables
from paribus.report.figures import Figure
from paribus.report.figures.contrasts import forest_name
from paribus.report.figures.tuning_curves import SHARED, curve_name
from paribus.report.paper.alike import skeleton
from paribus.report.paper.designs import design_in_words
from paribus.report.paper.document import Block, Grid, Part, Picture, Ref, say
from paribus.report.paper.judged import SHORT, STATES, Judged, answer, arms_in_words, judged
from paribus.report.paper.material import Material
from paribus.report.section_tables import tuning_in_words
from paribus.report.table_model import Table
from paribus.report.tables import change_of
from paribus.report.words import holm_in_words, listed

MOST_CAVEATS = 1  # that are told; the appendix has all
CURVES = "loss-curves"  # held-out loss along training


@dataclass(frozen=True)
class Detail:
    """How much of each study a paper of several shows, so that it keeps to its pages.

    Attributes:
        figures: of all studies together, the most telling ones of each first.
        depends: contrasts of a tuned study of which it is told what they depend on.
        tables: whether a study's table of contrasts stands in its section, or in the appendix.
        sections: whether the section itself stands in the text, or opens the study's appendix.
        mechanism: whether the section on the mechanism has figures.
    """

    figures: int
    depends: int
    tables: bool = True
    sections: bool = True
    mechanism: bool = True


MOST_FIGURES = 2  # of a study


def details(n_studies: int) -> list[Detail]:
    """From the most to the least, for so many studies that compare something; the first with which
    the text keeps to its pages is taken.

    Second figures go first, then what contrasts depend on, then the tables, whose changes stand in
    the figure of all studies and in the appendix too, then figures one by one, then the
    sections themselves, and at last the figures of the mechanism.
    """
    most = MOST_FIGURES * n_studies
    wanted = [Detail(most, 3), Detail(n_studies, 3), Detail(n_studies, 1), Detail(n_studies, 0)]
    wanted += [Detail(n, 0, tables=False) for n in range(n_studies, -1, -1)]
    least = Detail(n_studies, 1, tables=False, sections=False)
    return [*wanted, least, replace(least, mechanism=False)]


def n_comparing(studies: Sequence[Material]) -> int:
    """How many studies there are, but those of the baseline against itself."""
    return sum(one.errors is None for one in studies)


def chosen_figures(studies: Sequence[Material], most: int) -> dict[str, list[Figure]]:
    """By study its figures that are shown: the first of each before the second of any, and those
    of tuned studies before others, as they show a finding over a range of settings."""
    ranked = [
        (rank, not one.study.tuning, place, one.name, figure)
        for place, one in enumerate(studies)
        if one.errors is None
        for rank, figure in enumerate(main_figures(one)[:MOST_FIGURES])
    ]
    shown: dict[str, list[Figure]] = {one.name: [] for one in studies}
    for *_, name, figure in sorted(ranked, key=lambda one: one[:3])[:most]:
        shown[name].append(figure)
    return shown


def study_section(
    material: Material,
    title: str,
    detail: Detail,
    figures: Sequence[Figure] = (),
    left: Collection[str] = (),
) -> Part:
    """The section with these figures; names of figures and tables are the study's own.

    Caveats in `left` are left to the appendix. The question is in the introduction.
    """
    if material.errors is not None:
        return _of_nothing(material, title)
    found = judged(material)
    table = short_contrasts(material, found)
    tables_too = detail.tables and any(_is_compared(one) for one in found)
    where = ("Changes are in ", Ref(table.name), ".") if tables_too else ()
    blocks: list[Block] = [say(f"{_capital(design_in_words(material))} ", *where)]
    blocks += [Picture(figure.name, _caption(material, figure)) for figure in figures]
    if tables_too:
        blocks.append(Grid(table, groups=True))
    said = "" if tables_too else f"{_capital(answer(found, STATES))}."
    told = (said, _stability(material), _rows(material, found, left))
    blocks.append(say(" ".join(filter(None, told))))
    depends = _depends(material, detail.depends)
    if depends:
        blocks.append(say(depends))
    claims = tables.claims_by_arm(material.analysis)
    if claims is not None and detail.tables:
        blocks.append(say("Claims stand beside what was measured in ", Ref(claims.name), "."))
        blocks.append(Grid(claims))
    return Part(title, blocks, level=2)


def _caption(material: Material, figure: Figure) -> str:
    """Its first sentence, as the same kind of figure stands in several sections; and the references
    of contrasts where arms have several."""
    text = f"{material.name}: {_lowered(_first(figure.caption))}"
    by_reference: dict[str, list[str]] = {}
    for arm, reference in material.study.contrasts:
        by_reference.setdefault(material.called[reference], []).append(material.called[arm])
    if figure.name != forest_name(material.study, material.study.primary) or len(by_reference) < 2:
        return text
    told = (f"{reference} is that of {listed(arms)}" for reference, arms in by_reference.items())
    return f"{text} Of references {'; '.join(told)}."


def _is_compared(one: Judged) -> bool:
    """Whether it has a line in a table that says more than that it is described, or is not."""
    return one.contrast.decided is not None and one.state not in ("described", "invalid")


def _of_nothing(material: Material, title: str) -> Part:
    """The section of a study of the baseline against itself."""
    assert material.errors is not None
    table = material.errors.table(material.name)
    told = (
        "Arms are the baseline with other initial values from the same distributions, so that "
        "whatever is claimed of them is an error. How often that was so is in "
    )
    opening = say(f"{_capital(design_in_words(material))} {told}", Ref(table.name), ".")
    return Part(title, [opening, Grid(table)], level=2)


def main_figures(material: Material) -> list[Figure]:
    """The figures that show what a study found, the most telling one first; all contrasts of all
    studies stand in one figure already."""
    study = material.study
    wanted = [*map(curve_name, study.tuning.keys), SHARED] if study.tuning else [CURVES]
    if not any(_is_compared(one) for one in judged(material)):  # the others are in the overview
        wanted += [forest_name(study, study.primary), "train_loss"]
    return [material.drawn[name] for name in wanted if name in material.drawn]


def short_contrasts(material: Material, found: list[Judged]) -> Table:
    """Every contrast on the endpoints that are judged, as a column of the paper has room for."""
    study, rows = material.study, []
    level = numbers.level(study.inference.alpha)
    for metric in dict.fromkeys(one.metric for one in found):
        mine = [one for one in found if one.metric == metric]
        declared = mine[0].contrast.declared
        unit = f" ({declared.change_unit})" if declared.change_unit else ""
        rows.append((f"{declared.label}{unit}", "", "", ""))
        rows += [_contrast(one) for one in mine]
    return Table(
        "short-contrasts",
        f"{material.name}: changes against the reference at the same seed, with the {level} "
        "intervals of the test that decides.",
        ("arm", f"change [{level}]", "Holm\N{NO-BREAK SPACE}p", "finding"),
        tuple(rows),
        frozenset({"arm", "finding"}),
    )


def _contrast(one: Judged) -> tuple[str, ...]:
    contrast = one.contrast
    change = change_of(contrast) if contrast.decided else contrast.why_not
    arm = f"\N{EN SPACE}{one.called}"
    return arm, change, numbers.p_or_blank(contrast.tested_p), SHORT[one.state]


def _stability(material: Material) -> str:
    """What happened to training, in a sentence."""
    if not material.analysis.stabilities:
        return "Stability is open."
    alike: dict[str, list[str]] = {}
    for stability in material.analysis.stabilities:
        rates = stability.any_event
        base, own = rates.both + rates.only_baseline, rates.both + rates.only_treatment
        if base or own:
            said = (
                f"{own} of {rates.n} against {base} in the reference ({holm_in_words(stability)})"
            )
            alike.setdefault(said, []).append(material.called[stability.arm])
    if not alike:
        return "No trial of a pair diverged or had a spike."
    n = len(material.analysis.stabilities)
    told = [f"{said} with {_arms(arms, n)}" for said, arms in alike.items()]
    return f"Trials diverged or had a spike: {'; '.join(told)}."


def _arms(called: Sequence[str], n: int) -> str:
    """By name, or all of them."""
    return f"each of {n} arms" if len(called) == n > 1 else listed(list(called))


def _rows(material: Material, found: list[Judged], left: Collection[str]) -> str:
    """The rows that fired, what they stand for and what they advise; and what qualifies them."""
    table = rule_of(material.analysis).all_rows
    fired: dict[tuple[str, str, str], list[str]] = {}
    for metric in dict.fromkeys(one.metric for one in found):
        mine = [one for one in found if one.metric == metric]
        for row in dict.fromkeys(one.verdict.row for one in mine):
            of = [one for one in mine if one.verdict.row == row]
            needed = [n for one in of if (n := one.verdict.pairs_needed) is not None]
            more = f"; about {max(needed):,} seed pairs would tell" if needed else ""
            labels = fired.setdefault((row, arms_in_words(of, len(mine)), more), [])
            labels.append(mine[0].verdict.label)
    if not fired:
        return "Nothing is compared."
    told = [
        f"{OUTCOMES[table[row].outcome].several} with {arms} on {listed(labels)} "
        f"({table[row].reason}{more}; row {row} of the rule)"
        for (row, arms, more), labels in fired.items()
    ]
    caveats = [line for line in _caveats(found) if skeleton(line) not in left]
    text = f"By the registered rule the verdicts {'; '.join(told)}."
    text += "".join(f" {line}" for line in caveats[:MOST_CAVEATS])
    if len(caveats) > MOST_CAVEATS:
        text += f" {len(caveats) - MOST_CAVEATS} further caveats are in the appendix."
    return text


def _caveats(found: list[Judged]) -> list[str]:
    """What qualifies the verdicts; of lines that differ in their numbers alone the first."""
    told: dict[str, str] = {}
    for line in (line for one in found for line in one.verdict.caveats):
        told.setdefault(skeleton(line), line)
    return list(told.values())


def _depends(material: Material, most: int) -> str:
    """What a tuned study's contrasts depend on; empty of one that is not."""
    _, *found = tuning_in_words(material.analysis) or [""]  # the design says how it was tuned
    return " ".join(found[:most])


def _first(caption: str) -> str:
    """Its first sentence: the same kind of figure stands in several sections."""
    return re.split(r"(?<=\.) (?=[A-Z])", caption)[0]


def _lowered(text: str) -> str:
    return text[:1].lower() + text[1:]


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
