"""What is told of a study, in its report and in supplements: tables, figures, facts, few sentences.

Facts are read from the records (`paribus.report.words.trainer_facts`); nothing is concluded here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import altair as alt

from paribus import numbers
from paribus.analysis import Analysis, Contrast, analyse, unregistered_contrasts
from paribus.decision import Verdict, decide, rule_of, titled
from paribus.metric import Metric
from paribus.numbers import plural
from paribus.report import tables
from paribus.report.figures import Figure, draw
from paribus.report.figures.contrasts import SHAPES, ends_of, forest_name
from paribus.report.figures.style import TEXT, rounded
from paribus.report.figures.tuning_curves import SHARED, curve_name
from paribus.report.section_tables import (
    along_table,
    data_tables,
    sampling_method,
    task_contrast_table,
    task_table,
    tasks_in_words,
    tuning_in_words,
    tuning_table,
    tuning_tables,
)
from paribus.report.table_model import Table
from paribus.report.tables import looks_table, sampling_table
from paribus.report.words import (
    STATES,
    at_the_same_seed,
    headlines,
    listed,
    margin_in_words,
    missing_in_words,
    state_of,
    trainer_facts,
)
from paribus.results import Results
from paribus.study import LEARNING_RATE, Study

MOST_SEEDS = 12  # are named one by one
MOST_ROWS = 40  # of a table in a report; CSV files have all
MOST_CAVEATS = 8
CURVES = "loss-curves"
LABELS = 230  # pixels for names of arms beside the panels of changes
FINDING_COLOURS = ("#D55E00", "#009E73", "#7a7a7a", "#7a7a7a")  # in the order of STATES


@dataclass(frozen=True, eq=False)
class Material:
    """The records of a study, what was inferred and decided, and its figures.

    Attributes:
        drawn: the figures, where they have been drawn already.
    """

    results: Results
    analysis: Analysis
    verdicts: list[Verdict]
    drawn: list[Figure] | None = None

    @classmethod
    def of(cls, results: Results) -> Material:
        """Analyse and judge a study; figures are drawn when one is asked for."""
        analysis = analyse(results)
        return cls(results.judged, analysis, decide(analysis))

    @property
    def study(self) -> Study:
        """The study, as the results folder has it."""
        return self.results.study

    @cached_property
    def compare(self) -> Callable[..., Contrast]:
        """Compare two arms as no contrast of the study does (`unregistered_contrasts`)."""
        return unregistered_contrasts(self.results)

    @cached_property
    def called(self) -> dict[str, str]:
        """The name of every arm for readers."""
        return self.study.called

    @cached_property
    def figures(self) -> dict[str, Figure]:
        """Every figure by name."""
        drawn = draw(self.results, self.analysis) if self.drawn is None else self.drawn
        return {figure.name: figure for figure in drawn}

    @cached_property
    def tables(self) -> dict[str, Table]:
        """Every table by name."""
        analysis, results = self.analysis, self.results
        optional = (
            along_table(analysis),
            sampling_table(analysis),
            looks_table(analysis),
            task_contrast_table(analysis),
            task_table(results),
        )
        found = [
            *tuning_tables(analysis),
            *tables.primary(analysis),
            tables.endpoints(analysis),
            tables.stability(analysis),
            tables.costs(analysis),
            tables.arms(self.study),
            tables.controls(analysis),
            tables.trials(results, analysis),
            tables.contrasts(analysis),
            *data_tables(results),
            *(table for table in optional if table is not None),
        ]
        return {table.name: table for table in found}

    @cached_property
    def parameters(self) -> dict[str, int]:
        """Parameters by arm, as finished trials recorded them."""
        trials = self.results.trials.items()
        return {arm: trial["parameters"] for (arm, _), trial in trials if "parameters" in trial}

    @cached_property
    def facts(self) -> list[Fact]:
        """The table of facts."""
        return _facts(self)


# Words of a fact, and the work in references.bib that describes what they name.
WORKS = {
    "Pre-LayerNorm form": "Xiong2020",
    " LayerNorm": "LayerNorm",
    " RMSNorm": "RMSNorm",
    "AdamW": "Loshchilov2019",
    "loss scale": "Micikevicius2018",
    "at the same seed, by": "Agarwal2021",
}


@dataclass(frozen=True)
class Fact:
    """One row of the table of facts."""

    name: str
    text: str

    @property
    def cites(self) -> list[str]:
        """Keys of the works on the methods that it names."""
        return [key for words, key in WORKS.items() if words in self.text]


Block = str | Table | list[str] | list[Figure] | list[Fact]


@dataclass(frozen=True)
class Section:
    """A part of a report: paragraphs, lists of lines, tables, figures, facts."""

    title: str
    blocks: list[Block]


def sections(material: Material) -> list[Section]:
    """Return the sections of the report of one study."""
    analysis, study, drawn = material.analysis, material.study, material.figures
    forests = [forest_name(study, endpoint) for endpoint in study.judged]
    wanted = [*forests, CURVES, "contrast-along-training"]
    results = [*tables.primary(analysis), _shown(drawn, wanted), sampling_table(analysis)]
    tuning: list[Block | None] = [tuning_table(analysis)]
    if study.tuning:
        tuning += [
            tuning_in_words(analysis)[1:],
            _shown(drawn, [*map(curve_name, study.tuning.keys), SHARED]),
        ]
    declared = [one for one in drawn.values() if one.in_text and one.name not in wanted]
    parts = [
        ("Question", [study.question]),
        ("Answer", _answer(material)),
        ("Arms", [tables.arms(study)]),
        ("Results", results),
        ("Tuning", tuning),
        ("All endpoints", [tables.endpoints(analysis)]),
        ("Stability and cost", [tables.stability(analysis), tables.costs(analysis)]),
        ("Diagnostics", [declared]),
        ("Controls", _controls(analysis)),
        ("Facts", [material.facts]),
    ]
    told = [
        Section(title, [_short(block) for block in blocks if _says(block)])
        for title, blocks in parts
    ]
    return [section for section in told if section.blocks]


def _says(block: Block | None) -> bool:
    return bool(block.rows if isinstance(block, Table) else block)


def _short(block: Any) -> Block:
    """Cut a table after MOST_ROWS rows, and say where the others are."""
    if not isinstance(block, Table) or len(block.rows) <= MOST_ROWS:
        return block
    more = f" The first {MOST_ROWS} of {len(block.rows):,} rows; all are in {block.name}.csv."
    return replace(block, rows=block.rows[:MOST_ROWS], caption=block.caption + more)


def _shown(drawn: dict[str, Figure], wanted: Sequence[str]) -> list[Figure]:
    return [drawn[name] for name in wanted if name in drawn]


def _answer(material: Material) -> list[Block]:
    analysis, verdicts = material.analysis, material.verdicts
    lines = [*headlines(analysis, verdicts), analysis.text, missing_in_words(analysis)]
    if analysis.unregistered:
        lines.append(f"The registration does not hold: {analysis.unregistered}.")
    told = [line for one in titled(analysis, verdicts) for line in one.caveats]
    caveats = [line for line in dict.fromkeys(told) if line not in lines]
    if len(caveats) > MOST_CAVEATS:
        more = f"{len(caveats) - MOST_CAVEATS} further caveats are in verdict.json."
        caveats = [*caveats[:MOST_CAVEATS], more]
    return [*filter(None, lines), caveats, tables.left_out(analysis)[:MOST_CAVEATS]]


def _controls(analysis: Analysis) -> list[Block]:
    """Count the contrasts in which each control has a state; evidence where it did not hold."""
    if not analysis.controls:
        return ["No arm has a finished seed in common with its reference yet."]
    counts: dict[str, Counter[str]] = {}
    for one in analysis.controls:
        counts.setdefault(one.name, Counter())[one.state] += 1
    alike: dict[str, list[str]] = {}
    for name, states in counts.items():
        told = (f"{state} in {n} of {states.total()}" for state, n in sorted(states.items()))
        alike.setdefault(", ".join(told), []).append(name)
    lines = [f"{states} contrasts: {listed(of)}." for states, of in alike.items()]
    called = analysis.study.called
    rest = [one for one in analysis.controls if one.state in ("not proven", "broken")]
    shown = list(dict.fromkeys(f"{one.name}, {called[one.arm]}: {one.detail}." for one in rest))
    opening = (
        "Held: equal in every seed, by digest. Declared: differs because the arm says so. A "
        "contrast with a broken control is not analysed."
    )
    return [opening, [*lines, *shown[:MOST_CAVEATS]]]


# What is said of the registered test.
DECIDES = {
    "paired_t": "the paired t test",
    "welch_t": "Welch's t test of runs that are no pairs",
}


def _facts(material: Material) -> list[Fact]:
    study, analysis, results = material.study, material.analysis, material.results
    rule, stated = study.stability, trainer_facts(results)
    seeds = plural(len(study.seeds), "seed")
    if len(study.seeds) <= MOST_SEEDS:
        seeds += f" ({', '.join(map(str, study.seeds))})"
    told = {
        **stated,
        "Tasks": tasks_in_words(results),
        "Seeds": f"{seeds}{' at most' if study.plan else ''}, the same for every arm; "
        f"{plural(analysis.n_trials, 'trial')} in all.",
        "Tuning": " ".join(tuning_in_words(analysis)[:1]),
        "Looks and stages": sampling_method(analysis),
        "Registration": _registration(analysis),
        "Endpoints": _endpoints(material),
        "Inference": _inference(analysis),
        "Instability": f"Diverged: a loss is not finite, or the mean of the last "
        f"{rule.smoothing_steps} losses is above the first. Spike: {rule.spike_steps} steps in a "
        f"row lie more than {rule.mad_multiplier:g} median absolute deviations above the median of "
        f"the {rule.median_steps} steps before. The baseline is unstable where more than "
        f"{rule.unstable_above:g} of its trials had an event.",
        "Decision rule": _decision(analysis),
        "Study digest": study.digest,
        "Root digest": f"{results.root} (paribus verify computes it again)",
    }
    return [Fact(name, text) for name, text in told.items() if text]


def _registration(analysis: Analysis) -> str:
    """Say if it holds, and which seeds came later."""
    if analysis.unregistered:
        return f"The registration does not hold: {analysis.unregistered}."
    text = "Study, endpoints, margins, families and thresholds: before the first run."
    if analysis.late_seeds:
        late = ", ".join(map(str, analysis.late_seeds))
        text += f" Seeds were added after results had been seen ({late}); no error rate holds."
    return text


def _endpoints(material: Material) -> str:
    analysis, study, told = material.analysis, material.study, []
    for endpoint in study.judged:
        contrast = next((c for c in analysis.contrasts if c.metric == endpoint.metric), None)
        declared, worth = analysis.metrics[endpoint.metric], endpoint.smallest_effect
        margin = margin_in_words(study, contrast) if contrast else f"±{endpoint.margin:g}"
        told.append(
            f"{declared.label} with a margin of {margin}"
            + (
                f" and a smallest effect worth detecting of {declared.stated_text(worth)}"
                if worth
                else ""
            )
        )
    others = [analysis.metrics[e.metric].label for e in study.endpoints if not e.primary]
    secondary = f" Secondary: {listed(others)}." if others else ""
    return f"Primary: {listed(told)}.{secondary}"


def _targets(analysis: Analysis) -> str:
    """Return what claims on each endpoint are about, besides new seeds; empty for nothing else."""
    about: dict[str, list[str]] = {}
    for one in analysis.contrasts:
        labels = about.setdefault(one.target, []) if one.target else []
        if one.declared.label not in labels:
            labels.append(one.declared.label)
    told = "".join(f"; those on {listed(of)} also about {target}" for target, of in about.items())
    crossed = any(one.items for one in analysis.contrasts)
    by = " With items that are samples, Student's t on a standard error of seeds and items decides."
    return f"Claims are about new seeds{told}.{by if crossed else ''} "


def _inference(analysis: Analysis) -> str:
    study, inference = analysis.study, analysis.study.inference
    return (
        f"Treatment minus reference{at_the_same_seed(study)}, by {DECIDES[inference.test]}; the "
        f"interval inverts the test. {_targets(analysis)}Holm's method holds the family of the "
        f"primary endpoint at {inference.alpha:g} ({plural(len(study.contrasts), 'contrast')}), "
        "that of the secondary ones by itself. A change is within the margin by two one-sided "
        f"tests: an interval of level {1 - 2 * inference.alpha:g}, adjusted alike. Fewer than "
        f"five {'pairs' if study.is_paired else 'runs of an arm'} are described and not tested; "
        f"rates of events are compared by {'McNemar' if study.is_paired else 'Fisher'}'s exact "
        "test. A diverged trial leaves the comparison of quality and counts as an event."
    )


def _decision(analysis: Analysis) -> str:
    """Return the registered rule, and when it adopts."""
    decision, rule = analysis.study.decision, rule_of(analysis)
    benefit = analysis.metrics[decision.benefit].label if decision.benefit else "nothing"
    limits = []
    if decision.calibration_budget is not None:
        limits.append(f"a calibration error raised by at most {decision.calibration_budget:g}")
    if decision.throughput_budget is not None:
        limits.append(f"a throughput lowered by at most {100 * decision.throughput_budget:g}%")
    adopts = rule.adopts.format(
        budgets=f", with {' and '.join(limits)}" if limits else "",
        calibration=decision.calibration_budget,
        throughput=decision.throughput_budget,
        benefit=benefit,
        least=f"{decision.least_benefit:g}",
    )
    return f"{rule.title[:1].upper()}{rule.title[1:]}. {adopts}"


def designs(studies: dict[str, Material]) -> Table:
    """Return a row for each study: sizes, budget, learning rate, seeds, arms, trials."""
    head = ("study", "parameters", "iterations", "tokens a trial", "learning rate", "seeds")
    rows = []
    for name, one in studies.items():
        study = one.study
        facts = [study.arm_facts(arm) for arm in study.arms]
        rates = {fact.learning_rate for fact in facts if fact.learning_rate is not None}
        rate = ", ".join(map(numbers.compact, sorted(rates)))
        if study.tuning and LEARNING_RATE in study.tuning.keys:
            rate = "tuned for each arm"
        rows.append(
            (
                name,
                _spanned(one.parameters.values()),
                _spanned(filter(None, (fact.steps for fact in facts))),
                _spanned(filter(None, (fact.tokens for fact in facts))),
                rate,
                ", ".join(map(str, study.plan.looks)) if study.plan else str(len(study.seeds)),
                str(len(study.arms)),
                f"{one.analysis.n_trials:,}",
            )
        )
    caption = (
        "The studies: parameters, iterations and training tokens of a trial, learning rate, seeds "
        "(with looks at the data after each number of them), arms, and trials of the verdict."
    )
    text = frozenset({"study", "learning rate"})
    return Table("designs", caption, (*head, "arms", "trials"), tuple(rows), text, wide=True)


def _spanned(values: Iterable[int]) -> str:
    """`8,656`, or `8,656 to 1,611,136`; empty without any."""
    known = sorted(set(values))
    return " to ".join(f"{value:,}" for value in dict.fromkeys([*known[:1], *known[-1:]]))


Compared = Iterable[tuple[str, Material, Contrast]]


def changes_table(compared: Compared, digits: Callable[[Metric], int]) -> Table:
    """Return a row for each of these contrasts, with the name of its study.

    `digits(metric)` is how many decimal places a change has.
    """
    rows, declared, level = [], None, ""
    for name, one, contrast in compared:
        says, places = contrast.decided, digits(contrast.declared)
        declared = declared or contrast.declared
        level = level or numbers.level(one.study.inference.alpha)
        cells = (contrast.why_not, "", "", "")
        if says is not None:
            cells = (
                contrast.declared.delta_text(
                    says.mean, says.interval.low, says.interval.high, places
                ),
                str(says.n),
                numbers.p_or_blank(contrast.tested_p),
                state_of(contrast, one.study.inference.alpha),
            )
        rows.append((name, one.called[contrast.arm], *cells))
    caption = (
        f"Change of {_with_unit(declared)}: the arm minus its reference at the same seed, with the "
        "interval of the test that decides. Each study is by its own registration and error rate; "
        "nothing is pooled."
    )
    head = ("study", "arm", f"change [{level}]", "seeds", "Holm p", "finding")
    text = frozenset({"study", "arm", "finding"})
    return Table("changes", caption, head, tuple(rows), text, wide=True)


def changes_figure(compared: Compared) -> Figure:
    """Return each of these contrasts with its interval and margin, study by study."""
    rows, declared = [], None
    for place, (name, one, contrast) in enumerate(compared):
        says, declared = contrast.decided, declared or contrast.declared
        if says is None:
            continue
        low, high = ends_of(says)
        row = {"study": name, "arm": one.called[contrast.arm], "place": place}
        row |= {"finding": state_of(contrast, one.study.inference.alpha)}
        ends = {"mean": says.mean, "low": low, "high": high}
        ends |= {"from": -(contrast.margin or 0), "to": contrast.margin or 0}
        rows.append(row | {key: rounded(declared.shown(end)) for key, end in ends.items()})
    caption = (
        f"Change of {_with_unit(declared)} in every study, with the intervals of the tests that "
        "decide. Bands are the margins; shapes and colours say what was found."
    )
    chart = _changes_chart(rows, f"change of {_with_unit(declared)}")
    shape = {"panel": 420, "room": LABELS + 20, "wide": True}
    return Figure("changes", "endpoints", "Every study", caption, chart, rows, **shape)


def _with_unit(metric: Metric | None) -> str:
    if metric is None:
        return "nothing"
    return f"{metric.label} ({metric.change_unit})" if metric.change_unit else metric.label


def _changes_chart(rows: list[dict[str, Any]], title: str) -> Any:
    there = [state for state in STATES if any(row["finding"] == state for row in rows)]
    legend = alt.Legend(values=there, orient="top", title=None, columns=len(there))
    colours = alt.Scale(domain=list(STATES), range=list(FINDING_COLOURS))
    colour = alt.Color("finding:N", scale=colours, legend=legend)
    shapes = alt.Scale(domain=list(STATES), range=list(SHAPES))
    shape = alt.Shape("finding:N", scale=shapes, legend=legend)
    labels = alt.Axis(labelLimit=LABELS, ticks=False, domain=False)
    arms = alt.Y("arm:N", title=None, sort=alt.EncodingSortField("place"), axis=labels)

    def across(column: str) -> alt.X:
        return alt.X(column, title=title, axis=alt.Axis(tickCount=6, labelOverlap="greedy"))

    base = alt.Chart().encode(y=arms)
    band = base.mark_bar(color=TEXT, opacity=0.1, height={"band": 1})
    zero = alt.Chart().mark_rule(color=TEXT, opacity=0.5).encode(x=alt.datum(0))
    lines = base.mark_rule(strokeWidth=1.6)
    means = base.mark_point(filled=True, size=42, opacity=1)
    layers = (
        band.encode(x=across("from:Q"), x2=alt.X2("to:Q")),
        zero,
        lines.encode(x=across("low:Q"), x2=alt.X2("high:Q"), color=colour),
        means.encode(x=across("mean:Q"), color=colour, shape=shape),
    )
    header = alt.Header(labelOrient="top", labelAnchor="start", labelLimit=420, labelPadding=3)
    panels = list(dict.fromkeys(row["study"] for row in rows))
    return (
        alt.layer(*layers)
        .properties(height={"step": 15})
        .facet(
            facet=alt.Facet("study:N", title=None, sort=panels, header=header),
            columns=1,
            data=alt.NamedData("changes"),
            bounds="flush",
            spacing={"row": 26, "column": LABELS + 20},
        )
        .resolve_scale(y="independent")
    )
