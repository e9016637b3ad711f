"""The paper's appendix: of one study all tables and figures, of several the tables of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paribus.analysis import Analysis
from paribus.decision import rule_of
from paribus.digests import flatten
from paribus.report import tables
from paribus.report.figures.contrasts import pairs_name
from paribus.report.paper.document import Block, Grid, Listing, Paragraph, Part, Picture, say
from paribus.report.paper.findings import in_the_text
from paribus.report.paper.material import Material
from paribus.report.paper.mechanism import prefix_of
from paribus.report.paper.tuning_part import in_the_tuning
from paribus.report.section_tables import (
    along_table,
    data_tables,
    sensitivity_table,
    shared_table,
    task_contrast_table,
    task_table,
    tuning_table,
)
from paribus.report.table_model import Table
from paribus.report.tables import looks_table, sampling_table, trial_tables
from paribus.study import Study

MOST_PAIRS = 6  # contrasts whose seeds are drawn; those of more would fill pages
FOUND = "What was found"
PROVEN = ("held", "declared")  # controls that need no more than to be counted


def of_one(material: Material) -> list[Part]:
    """Everything that the text has no room for."""
    analysis = material.analysis
    shown = in_the_text(material) | in_the_tuning(material)
    others: list[Block] = [
        Picture(figure.name, figure.caption, figure.wide)
        for figure in material.figures
        if figure.name not in shown
    ]
    estimates, tests = tables.estimates(analysis), tables.tests(analysis)
    return _whole(
        Part("The decision rule", [Grid(tables.decision(analysis, material.verdicts))]),
        Part("Tuning", _grids(shared_table(analysis))),
        Part("Every endpoint", [Grid(tables.endpoints(analysis))]),
        Part("Every contrast", [Grid(estimates), Grid(tests)]),
        Part("Tasks", _grids(task_contrast_table(analysis), task_table(material.results))),
        Part("Looks and stages", _grids(sampling_table(analysis), looks_table(analysis))),
        Part("Every seed", [Grid(one) for one in trial_tables(material.results, analysis)]),
        Part("Controls", [Grid(tables.controls(analysis))]),
        Part("Data", [Grid(table) for table in data_tables(material.results)]),
        Part("Further figures", others),
        Part("The study as run", as_run(material.study)),
    )


def of_several(
    studies: Sequence[Material],
    titles: Mapping[str, str],
    own: Mapping[str, Paragraph],
    sections: Sequence[Part],
) -> list[Part]:
    """A section for each study: what is its own of the method, its tables and the seeds' figures;
    and of `sections`, one on each study or none, what the text has no room for.

    All trials, tasks and diagnostics are on the study's own page, and would fill a book here.
    """
    found: list[Part] = []
    for i, material in enumerate(studies):
        first, *parts = _of_study(material, titles[material.name], own[material.name])
        found.append(first.named(prefix_of(i, len(studies))))
        found += [replace(sections[i], title=FOUND)] if sections else []
        found += [part.named(prefix_of(i, len(studies))) for part in parts]
    return found


def _of_study(material: Material, title: str, own: Paragraph) -> list[Part]:
    analysis = material.analysis
    pairs = [pairs_name(endpoint.metric) for endpoint in material.study.judged]
    few = len(material.study.contrasts) <= MOST_PAIRS
    drawn = [material.drawn[name] for name in pairs if few and name in material.drawn]
    figures = [Picture(one.name, one.caption, one.wide) for one in drawn]
    own_method: list[Block] = [own] if own.runs else []
    caveats = dict.fromkeys(line for verdict in material.verdicts for line in verdict.caveats)
    first = Part(f"{material.name}: {title}", [*own_method, Grid(tables.arms(material.study))])
    return [
        first,
        *_whole(
            Part("Verdicts", [Grid(verdict_table(material)), *_lines(list(caveats))]),
            Part(
                "Tuning",
                _grids(tuning_table(analysis), shared_table(analysis), sensitivity_table(analysis)),
            ),
            Part(
                "Endpoints and contrasts",
                [Grid(tables.endpoints(analysis)), *_on_primary(analysis)],
            ),
            Part("Claims", _lines(list(analysis.claim_checks))),
            Part("Looks and stages", _grids(sampling_table(analysis))),
            Part(
                "Stability, cost and controls",
                [
                    *_grids(tables.stability(analysis), tables.costs(analysis)),
                    *_grids(along_table(analysis)),
                    *_controls(material),
                ],
            ),
            Part("Seeds", list(figures)),
            Part("As run", as_run(material.study)),
            level=2,
        ),
    ]


def verdict_table(material: Material) -> Table:
    """The rows that fired, endpoint by endpoint, and for which arms."""
    rule = rule_of(material.analysis)
    fired: dict[tuple[str, str, str], list[str]] = {}
    for one in material.verdicts:
        arms = fired.setdefault((one.label, one.row, one.reason), [])
        arms.append(material.called[one.arm])
    rows = []
    for (label, row, reason), arms in fired.items():
        says = rule.all_rows[row]
        why = f"{reason[:1].upper()}{reason[1:]}."
        rows.append((label, row, says.outcome, "; ".join(arms), why))
    head = ("endpoint", "row", "verdict", "arms", "why")
    return Table(
        "verdicts",
        f"The verdicts by the registered rule, {rule.title}, with the rows that fired.",
        head,
        tuple(rows),
        frozenset(head),
        wide=True,
    )


def _on_primary(analysis: Analysis) -> list[Block]:
    """Every contrast on the primary endpoints in full; the page of the study has the others."""
    primary = replace(analysis, contrasts=tuple(c for c in analysis.contrasts if c.primary))
    found = (tables.estimates(primary), tables.tests(primary))
    return [
        Grid(replace(one, caption=one.caption.replace("Every contrast", "Primary endpoints", 1)))
        for one in found
    ]


def _controls(material: Material) -> list[Block]:
    """How many controls held, and those of which that is not so."""
    controls = material.analysis.controls
    counts = {state: sum(one.state == state for one in controls) for state in PROVEN}
    left = [one for one in controls if one.state not in PROVEN]
    text = (
        f"Of {len(controls)} controls {counts['held']} held in every seed, and "
        f"{counts['declared']} differ because the arm declares it."
    )
    if not left:
        return [say(text)]
    called = material.called
    rows = tuple(
        (one.name, called[one.arm], called[one.reference], one.state, one.detail) for one in left
    )
    head = ("control", "arm", "against", "state", "evidence")
    caption = "Controls that are not proven to have held, or are broken."
    return [say(text), Grid(Table("controls", caption, head, rows, frozenset(head), wide=True))]


def as_run(study: Study) -> list[Block]:
    """Every key that somebody set: the others say nothing that the digest does not."""
    stated = flatten(study.model_dump(mode="json", exclude_defaults=True))
    told = ((key, str(value)) for key, value in stated.items() if value not in (None, {}, []))
    note = "Keys that are not at their default; study.json has all of them."
    return [say(note), Listing(tuple(told))]


def _lines(lines: list[str]) -> list[Block]:
    return [say(" ".join(lines))] if lines else []


def _grids(*found: Table | None) -> list[Block]:
    return [Grid(table) for table in found if table is not None]


def _whole(*parts: Part, level: int = 1) -> list[Part]:
    """Without tables that have no rows, and without sections that then have nothing."""
    kept = []
    for part in parts:
        blocks = [b for b in part.blocks if not isinstance(b, Grid) or b.table.rows]
        if blocks:
            kept.append(Part(part.title, blocks, level))
    return kept
