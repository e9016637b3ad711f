"""What the command line prints, as rich renderables that fit 80 columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.analysis import Analysis, Contrast
from paribus.decision import TESTS, Verdict
from paribus.metric import Metric
from paribus.statistics import (
    Interval,
    PairedRates,
)

MARKS = {
    "held": "[green]✓[/]",
    "declared": "[yellow]~[/]",
    "not proven": "[yellow]?[/]",
    "broken": "[red]✗[/]",
}


def table_of(*columns: str, title: str = "", right: tuple[str, ...] = ()) -> Table:
    """An empty table with these columns, those in `right` set to the right; long words fold."""
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def summary(analysis: Analysis, verdicts: list[Verdict]) -> Iterator[RenderableType]:
    """A table for each primary endpoint: its test and what is decided; then counts."""
    study = analysis.study
    for endpoint in study.judged:
        mine = [verdict for verdict in verdicts if verdict.metric == endpoint.metric]
        yield _summary(analysis, analysis.metrics[endpoint.metric], mine)
    states = Counter(control.state for control in analysis.controls)
    trials = len(analysis.events)
    counts = ", ".join(f"{n} {state}" for state, n in states.items()) or "none to compare yet"
    yield f"{trials} of {analysis.n_trials} trials; controls: {counts}"


def _summary(analysis: Analysis, metric: Metric, verdicts: list[Verdict]) -> Table:
    """A row for each contrast of one endpoint."""
    level = numbers.level(analysis.study.inference.alpha)
    table = table_of(
        "arm",
        "against",
        f"delta \\[{level} CI]",
        "p",
        "Holm p",
        "verdict",
        title=escape(metric.title),
        right=("p", "Holm p"),
    )
    for verdict in verdicts:
        contrast = analysis.contrast(verdict.arm, metric.name)
        table.add_row(
            escape(verdict.arm),
            escape(verdict.reference),
            _delta(analysis, verdict.arm, metric.name),
            numbers.p_or_blank(contrast.p),
            numbers.p_or_blank(contrast.tested_p),
            f"{verdict.outcome} (row {verdict.row})",
        )
    return table


def comparison(analysis: Analysis) -> Iterator[RenderableType]:
    """Arm x metric with deltas, then the controls, then what was left out."""
    study = analysis.study
    table = table_of(
        "",
        "mean (SD)",
        "n",
        f"delta to its baseline \\[{numbers.level(study.inference.alpha)} CI]",
        right=("n",),
    )
    absent = analysis.unmeasured
    for endpoint in study.endpoints:
        metric = analysis.metrics[endpoint.metric]
        if endpoint.metric in absent:
            continue
        table.add_row(f"[bold]{escape(metric.label)}[/]", f"[dim]{escape(metric.unit)}[/]")
        for arm in study.arms:
            summary = analysis.summary(arm, metric.name)
            table.add_row(
                f"  {escape(arm)}",
                numbers.mean_sd(summary.mean, summary.sd, metric.digits),
                str(summary.n),
                _delta(analysis, arm, metric.name),
            )
    yield table
    if absent:
        named = ", ".join(escape(analysis.metrics[metric].label) for metric in absent)
        yield f"[dim]not measured in this study: {named}[/]"
    yield from _claims(analysis)

    controls = table_of("control", "arm", "", "", title="all else equal?")
    for control in analysis.controls:
        controls.add_row(
            control.name, escape(control.arm), MARKS[control.state], escape(control.detail)
        )
    if analysis.controls:
        yield controls
    for line in left_out_lines(analysis):
        yield f"[yellow]left out:[/] {escape(line)}"


def left_out_lines(analysis: Analysis) -> list[str]:
    """One line per seed and reason; the same reason is not said again for every metric."""
    lines = [
        f"seed {out.seed} of {out.arm} against {out.reference}: {out.why}"
        for out in analysis.left_out
    ]
    return list(dict.fromkeys(lines))


def _delta(analysis: Analysis, arm: str, metric: str) -> str:
    if analysis.study.reference(arm) is None:
        return ""
    contrast = analysis.contrast(arm, metric)
    says = contrast.decided
    if says is None:
        return f"[dim]{contrast.why_not}[/]"
    interval = says.interval
    return numbers.delta(says.mean, interval.low, interval.high, contrast.declared.change_digits)


def _claims(analysis: Analysis) -> Iterator[RenderableType]:
    claims = analysis.study.claims
    if claims is None:
        return
    table = table_of("", "claimed", "measured", title="claimed and measured")
    for claim in claims.values:
        metric = analysis.metrics[claim.metric]
        table.add_row(f"[bold]{escape(metric.label)}[/]")
        for arm in claim.arms:
            summary = analysis.summary(arm, claim.metric)
            table.add_row(
                f"  {escape(arm)}",
                numbers.mean_sd(claim.mean, claim.sd, metric.digits),
                numbers.mean_sd(summary.mean, summary.sd, metric.digits),
            )
    yield table
    for check in analysis.claim_checks:
        yield escape(check)
    yield f"[dim]claimed by {escape(claims.source)}[/]"


def contrasts(analysis: Analysis) -> Iterator[RenderableType]:
    """Every contrast: primary endpoints in full, the others in a line."""
    study = analysis.study
    for arm, _ in study.contrasts:
        primaries = [analysis.contrast(arm, endpoint.metric) for endpoint in study.judged]
        for primary in primaries:
            yield _in_full(primary)
        if all(primary.paired is None for primary in primaries):
            continue
        others = table_of(
            "also",
            f"delta \\[{numbers.level(study.inference.alpha)} CI]",
            "simultaneous",
            "Holm p",
            "d_z",
            right=("Holm p", "d_z"),
        )
        for endpoint in study.endpoints:
            contrast = analysis.contrast(arm, endpoint.metric)
            says, paired = contrast.decided, contrast.paired
            if endpoint.primary or says is None or paired is None:
                continue
            others.add_row(
                escape(analysis.metrics[endpoint.metric].label),
                _delta(analysis, arm, endpoint.metric),
                _span(says.simultaneous_interval, analysis.metrics[endpoint.metric].change_digits),
                numbers.p_or_blank(contrast.tested_p),
                numbers.signed(paired.d_z, 2),
            )
        yield others
    if analysis.family is not None:
        adjusted = ", ".join(numbers.p_value(p) for p in analysis.family.p_values)
        yield f"sensitivity: maximum-statistic sign-flip p over the family: {adjusted}"
    yield from _stability(analysis)
    for line in left_out_lines(analysis):
        yield f"[yellow]left out:[/] {escape(line)}"
    yield "[dim]everything else, every pair included, is in analysis.json[/]"


def _in_full(contrast: Contrast) -> RenderableType:
    label = escape(contrast.declared.label)
    title = f"{escape(contrast.arm)} against {escape(contrast.reference)}: {label}"
    if contrast.paired is None:
        return f"[bold]{title}[/]: {escape(contrast.why_not)}"
    table = table_of("", "", title=title)
    table.show_header = False
    for name, value in _details(contrast):
        table.add_row(name, value)
    return table


def _span(interval: Interval | None, places: int) -> str:
    if interval is None:
        return numbers.NONE
    return numbers.span(interval.low, interval.high, places)


def _tests(contrast: Contrast) -> Iterator[tuple[str, str]]:
    """Every p of a contrast that is tested, the one that decides first."""
    paired, p = contrast.paired, numbers.p_value
    assert paired is not None
    yield "p; Holm p over the family", f"{p(contrast.p)}; {p(contrast.tested_p)}"
    for check in contrast.checks:
        disagrees = " (disagrees)" if check.disagrees else ""
        yield f"beside it: {check.test}", f"{p(check.p_value)}; {p(check.holm_p)}{disagrees}"
    yield "sign-flip p (its floor)", f"{p(paired.sign_flip_p)} ({p(paired.sign_flip_floor)})"


def _details(contrast: Contrast) -> list[tuple[str, str]]:
    paired, says, metric = contrast.paired, contrast.decided, contrast.declared
    digits = metric.change_digits
    assert paired is not None and says is not None
    level = f"{says.interval.level:.0%}"

    def span(interval: Interval | None, places: int = digits) -> str:
        return _span(interval, places)

    p = numbers.p_value
    rows = [
        ("decided by", TESTS[says.test]),
        *([("items", contrast.items_about)] if contrast.items_about else ()),
        ("seed pairs", f"{says.n}" + (" (descriptive only)" if says.descriptive_only else "")),
        ("mean (SD) of differences", numbers.mean_sd(says.mean, paired.sd, digits)),
        (f"{level} interval", span(says.interval)),
        (f"{level} of all {says.family} together", span(says.simultaneous_interval)),
        (
            "percentile, BCa (descriptive)",
            f"{span(paired.percentile_interval_descriptive)}; "
            f"{span(paired.bca_interval_descriptive)}",
        ),
        *(_tests(contrast) if contrast.tested else ()),
        ("d_z", f"{numbers.signed(paired.d_z, 2)}, {span(paired.d_z_interval, 2)}"),
        ("Hedges g_z", f"{numbers.signed(paired.g_z, 2)}, {span(paired.g_z_interval, 2)}"),
        ("correlation between arms", numbers.signed(paired.correlation, 2)),
        ("detectable at the power", numbers.fixed(says.detectable, digits)),
    ]
    if paired.margin is not None:
        inside = "inside" if says.equivalent else "not inside"
        tost = f", TOST p {p(says.equivalence_p)}; Holm {p(contrast.equivalence_holm_p)}"
        rows.append(
            (
                f"{says.equivalence_interval.level:.0%} interval {inside} +-{paired.margin:g}",
                span(says.equivalence_interval) + (tost if contrast.tested else ""),
            )
        )
    if metric.ratio:
        between = numbers.ratio_interval(says.interval.low, says.interval.high, 4)
        ratio = f"{numbers.ratio(says.mean, 4)} {between}"
        called = metric.ratio.removeprefix("a ")
        rows.insert(2, (f"{called}, {level} interval", escape(ratio)))
    if contrast.capped is not None:
        capped = contrast.capped
        rows.append(
            (
                "diverged trials capped",
                f"{numbers.signed(capped.mean, digits)}, {span(capped.decided.interval)}, "
                f"n = {capped.n}",
            )
        )
    return rows


def _stability(analysis: Analysis) -> Iterator[RenderableType]:
    table = table_of(
        "events", "diverged", "spiked", "either", "Holm p", title="stability (McNemar)"
    )
    for s in analysis.stabilities:

        def count(rates: PairedRates) -> str:
            baseline, treatment = (
                rates.both + rates.only_baseline,
                rates.both + rates.only_treatment,
            )
            return f"{baseline} -> {treatment} of {rates.n}"

        p = numbers.p_value(s.holm_p)
        row = (count(s.diverged), count(s.spiked), count(s.any_event), p)
        table.add_row(f"{escape(s.reference)} -> {escape(s.arm)}", *row)
    if analysis.stabilities:
        yield table
