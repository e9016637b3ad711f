"""What the command line prints of rules, designs and verdicts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.analysis import Detectable, least_effect, sights
from paribus.cli.printed_tables import table_of
from paribus.decision import (
    OUTCOMES,
    TESTS,
    Calibration,
    Rule,
    Verdict,
    judge,
    out_of_reach,
    shared_caveats,
)
from paribus.metric import Metric
from paribus.statistics import DESCRIPTIVE_BELOW, power_error
from paribus.study import Study

STYLES = {"good": "green", "bad": "red", "plain": "cyan", "open": "yellow"}


def verdicts(study: Study, verdicts: list[Verdict]) -> Iterator[RenderableType]:
    """Yield each verdict in its words, under them what it depends on; at the end what all depend
    on, and what they say of the study's hypotheses. Several endpoints have a heading each."""
    shared = shared_caveats(verdicts)
    metrics = list(dict.fromkeys(verdict.metric for verdict in verdicts))
    for metric in metrics:
        mine = [verdict for verdict in verdicts if verdict.metric == metric]
        if len(metrics) > 1:
            yield f"\n[bold]on {escape(mine[0].label)}[/]"
        for verdict in mine:
            yield _verdict(verdict)
            yield from _list(line for line in verdict.caveats if line not in shared)
    if len(verdicts) > 1 and shared:
        yield "[dim]all of this:[/]"
    yield from _list(shared)
    for one in judge(study, verdicts):
        yield f"[bold]{escape(one.name)}[/]{escape(one.sentence.removeprefix(one.name))}"


def _list(lines: Iterable[str]) -> Iterator[RenderableType]:
    """A line for each, the text of long ones aligned."""
    for line in lines:
        row = Table.grid(padding=(0, 1))
        row.add_row(" -", escape(line))
        yield row


def _verdict(verdict: Verdict) -> str:
    style = STYLES[OUTCOMES[verdict.outcome].style]
    return (
        f"[bold {style}]{verdict.outcome}[/] [dim](row {verdict.row})[/] {escape(verdict.answer)}"
    )


def detectable(
    study: Study, rows: list[Detectable], metrics: Mapping[str, Metric]
) -> Iterator[RenderableType]:
    """What the design detects in SDs, what it cannot see, and with a pilot in the units."""
    n, inference = len(study.seeds), study.inference
    if n < 2:
        yield "One seed: nothing can be tested."
        return
    alpha = inference.alpha / study.family  # the first step of Holm
    least = least_effect(study, alpha)
    error = power_error(inference.test, inference.power)
    simulated = f", simulated to {100 * error:.1f} points" if error else ""
    pairs = f"{n} seed pairs{', looked at on the way,' if study.plan else ''}"
    yield (
        f"{pairs} detect {least:.2f} SDs of a difference at {inference.power:.0%} power "
        f"by the {TESTS[inference.test]} (alpha {inference.alpha:g} over "
        f"{_family(study)}{simulated})."
    )
    yield from design(study, metrics)
    if not rows:
        yield "[dim]--pilot DIR or --sd X says what that is in the endpoint's unit[/]"
        return
    for name in dict.fromkeys(row.metric for row in rows):
        yield from _in_units([row for row in rows if row.metric == name], metrics[name])


def _family(study: Study) -> str:
    contrasts = numbers.plural(max(len(study.contrasts), 1), "contrast")
    several = len(study.judged) > 1
    return f"{contrasts} x {len(study.judged)} primary endpoints" if several else contrasts


def _in_units(rows: list[Detectable], metric: Metric) -> Iterator[RenderableType]:
    digits = metric.change_digits
    columns = ("SD", "detects", "margin", "pairs for it")
    unit = f" ({metric.change_unit})" if metric.change_unit else ""
    table = table_of("contrast", *columns, title=escape(f"{metric.label}{unit}"), right=columns)
    for row in rows:
        table.add_row(
            escape(row.contrast),
            f"{numbers.fixed(row.sd, digits)} ({row.source})",
            numbers.fixed(row.effect, digits),
            numbers.fixed(row.margin, digits),
            str(row.pairs_for_margin),
        )
    yield table
    for row in rows:
        if row.exceeds_margin:
            yield (
                f"[yellow]warning:[/] {escape(row.contrast)}: the smallest detectable effect "
                f"exceeds the margin; {row.pairs_for_margin} seeds would resolve it"
            )
        if row.could_miss:
            yield (
                f"[yellow]warning:[/] {escape(row.contrast)}: the smallest detectable effect, "
                f"{numbers.fixed(row.effect, digits)}, exceeds the smallest effect worth "
                f"detecting, {row.smallest_effect:g}"
            )


def design(
    study: Study, metrics: Mapping[str, Metric], *, warnings: bool = False
) -> Iterator[RenderableType]:
    """Rows of the decision table and effects that the design cannot reach, and why.

    Args: warnings: these alone, and not what is seen at which spread.
    """
    for out in out_of_reach(study):
        noun = "row" if len(out.rows) == 1 else "rows"
        yield (
            f"[yellow]warning:[/] {escape(out.why)}. Out of reach: {noun} {', '.join(out.rows)}; "
            "`paribus decide --rows` prints the table."
        )
    unseen: dict[str, list[str]] = {}
    for sight in sights(study, metrics):
        metric = metrics.get(sight.metric)
        label = escape(metric.label if metric else sight.metric)
        effect = f"an effect of {sight.smallest_effect:g}" + (
            f" {escape(metric.change_unit)}" if metric and metric.change_unit else ""
        )
        if sight.why_not:
            unseen.setdefault(sight.why_not, []).append(f"{label}: {effect}")
        elif sight.sd is not None and not warnings:
            yield (
                f"{label}: {effect} is seen where paired differences have an SD of at most "
                f"{sight.sd:.2g}."
            )
    for why, effects in unseen.items():
        yield f"[yellow]warning:[/] {'; '.join(effects)} cannot be seen: {why}."


def decision_rows(rule: Rule, fired: list[Verdict]) -> Table:
    """A decision table: its rows in the order in which they are tried."""
    several = len({verdict.metric for verdict in fired}) > 1

    def arms(row: str) -> str:
        mine = [v.arm + (f" ({v.label})" if several else "") for v in fired if v.row == row]
        return ", ".join(mine)

    columns = ("row", "when (no row before it)", "verdict")
    title = escape(f"{rule.title} (decision.rule = {rule.name})")
    table = table_of(*columns, *(["fired for"] if fired else []), title=title)
    for row in rule.all_rows.values():
        says = f"{row.outcome}: {row.reason}" if row.reason else row.outcome
        cells = (row.id, escape(row.when), escape(says))
        table.add_row(*cells, *([escape(arms(row.id))] if fired else []))
    return table


def calibration(calibration: Calibration) -> Iterator[RenderableType]:
    """What was measured of the whole pipeline, and on how many trials' worth of replicates."""
    columns = ("nominal", "measured", "95% interval")
    c = calibration
    title = (
        f"A/A: {numbers.plural(c.replicates, 'replicate')} of "
        f"{numbers.plural(c.contrasts, 'contrast')} x {numbers.plural(c.pairs, 'seed pair')}"
    )
    table = table_of("how often", *columns, title=title, right=columns)
    for rate in c.rates:
        low, high = rate.interval.low, rate.interval.high
        table.add_row(
            rate.name, f"{rate.nominal:.1%}", f"{rate.rate:.1%}", f"{low:.1%} to {high:.1%}"
        )
    yield table
    yield (
        f"Measured: the whole pipeline (analysis, Holm, verdict) on {escape(c.label)} by "
        f"the {TESTS[c.test]}; rates are means over {c.analyses} analyses of the same trials, "
        f"regrouped by seed; intervals are those of the {c.replicates} replicates that share no "
        "trial."
    )
    if c.looks:
        looks = ", ".join(map(str, c.looks))
        yield (
            f"Every replicate went through the looks at {looks} seeds, of trials that were all "
            f"there; a contrast took {c.mean_seeds:.1f} seeds on average."
        )
    if c.pairs < DESCRIPTIVE_BELOW:
        yield "With so few pairs no verdict claims an effect; the tests are counted all the same."
    if c.skipped:
        were = "was" if c.skipped == 1 else "were"
        yield f"{numbers.plural(c.skipped, 'replicate')} {were} left out: a trial is not finished."
