"""What the command line prints, as rich renderables that fit 80 columns."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator

from rich import box
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from paribus import numbers
from paribus.analysis import Analysis, Calibration, Contrast, Detectable
from paribus.decision import Verdict
from paribus.execution import Estimate
from paribus.results import Results
from paribus.results.checkpoints import begun_stacks
from paribus.statistics import Interval, PairedRates, mcnemar, minimum_detectable_effect
from paribus.study import METRICS, Study, is_open
from paribus.study.canonical import flatten

MARKS = {"held": "[green]✓[/]", "declared": "[yellow]~[/]", "broken": "[red]✗[/]"}


def table_of(*columns: str, title: str = "", right: tuple[str, ...] = ()) -> Table:
    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left", title_style="bold")
    for column in columns:
        table.add_column(column, justify="right" if column in right else "left", overflow="fold")
    return table


def shipped(studies: dict[str, Study]) -> Table:
    table = table_of("study", "what it asks", "trials")
    for name, study in studies.items():
        question = study.question or study.title
        table.add_row(name, escape(question), f"{len(study.arms)} x {len(study.seeds)}")
    return table


def cost(study: Study, estimated: Estimate) -> Table:
    """Tokens, operations, time and memory."""
    tokens = sum(estimated.tokens[arm] for arm, _ in study.trials)
    flops = sum(estimated.flops[arm] for arm, _ in study.trials)
    how = "measured just now" if estimated.measured else "at least: too large to try out here"
    table = table_of("", "", title=f"{len(study.trials)} trials", right=("",))
    table.show_header = False
    table.add_row("tokens per trial", f"{estimated.tokens[study.baseline]:,}")
    table.add_row("tokens in all", f"{tokens:,}")
    table.add_row("FLOPs per trial", f"{estimated.flops[study.baseline]:.3g}")
    table.add_row("FLOPs in all", f"{flops:.3g}")
    table.add_row(f"one step ({how})", f"{estimated.step_seconds * 1e3:,.0f} ms")
    table.add_row(*_precision(study, estimated))
    where = f"{estimated.workers} workers on {estimated.device}"
    table.add_row(f"expected time, {where}", numbers.duration(estimated.seconds))
    table.add_row("memory of a worker", f"{estimated.memory_bytes / 2**20:,.0f} MiB")
    return table


def _precision(study: Study, estimated: Estimate) -> tuple[str, str]:
    """What it would be trained with, and whether the device can do that well."""
    label = "precision (auto: kept once registered)" if is_open(study) else "precision"
    return label, estimated.precision + (" (emulated: slow)" if estimated.emulated else "")


def study(study: Study, estimated: Estimate) -> Iterator[RenderableType]:
    yield f"[bold]{escape(study.title or study.name)}[/]"
    if study.question:
        yield escape(study.question)
    arms = table_of(
        "arm",
        "against",
        "differs in",
        "parameters",
        "TFLOP",
        title="arms",
        right=("parameters", "TFLOP"),
    )
    for arm in study.arms:
        differences = [f"{k}\n  {a} -> {b}" for k, (a, b) in study.differences(arm).items()]
        arms.add_row(
            escape(arm),
            escape(study.reference(arm) or ""),
            escape("\n".join(differences)) or "(nothing)",
            f"{estimated.parameters[arm]:,}",
            f"{estimated.flops[arm] / 1e12:,.2f}",
        )
    yield arms

    yield cost(study, estimated)
    spec = table_of("key", "value", title="as resolved")
    for key, value in flatten(study.model_dump(exclude={"arms", "claims"})).items():
        spec.add_row(key, escape(str(value)))
    yield spec


def status(results: Results) -> Iterator[RenderableType]:
    table = table_of("trial", "state", "steps", "training", right=("steps", "training"))
    finished = {(folder.arm, folder.seed) for folder in results.finished}
    stacks = begun_stacks(results.path).items()
    begun = {trial: steps for stack, steps in stacks for trial in stack}
    for folder in [*results.finished, *results.unfinished]:
        if (folder.arm, folder.seed) in finished:
            trial = results.trials[folder.arm, folder.seed]
            diverged = trial["diverged_at"] is not None
            state = "[red]diverged[/]" if diverged else "[green]finished[/]"
            seconds = results.timing[folder.arm, folder.seed]["training_seconds"]
            row = (state, str(trial["iterations"]), numbers.duration(seconds))
        else:
            steps = begun.get((folder.arm, folder.seed))
            row = ("waiting" if steps is None else "started", str(steps or 0), "")
        table.add_row(escape(folder.label), *row)
    yield table
    yield f"{len(results.finished)} of {len(results.study.trials)} trials are finished"


def summary(analysis: Analysis, verdicts: list[Verdict]) -> Iterator[RenderableType]:
    """A row for each contrast: the primary endpoint, its test and what is decided; then counts."""
    study = analysis.study
    metric = METRICS[study.primary.metric]
    level = numbers.level(study.inference.alpha)
    title = f"{metric.label}{f', {metric.unit}' if metric.unit else ''}"
    table = table_of(
        "arm",
        "against",
        f"delta \\[{level} CI]",
        "Holm p",
        "verdict",
        title=title,
        right=("Holm p",),
    )
    for verdict in verdicts:
        contrast = analysis.contrast(verdict.arm, metric.name)
        # What is only described has no test.
        tested = contrast.paired is not None and not contrast.paired.descriptive_only
        table.add_row(
            escape(verdict.arm),
            escape(verdict.reference),
            _delta(analysis, verdict.arm, metric.name),
            numbers.p_value(contrast.holm_p) if tested else "",
            f"{verdict.outcome} (row {verdict.row})",
        )
    yield table
    states = Counter(control.state for control in analysis.controls)
    trials = len(study.trials) - len(analysis.missing)
    counts = ", ".join(f"{n} {state}" for state, n in states.items()) or "none to compare yet"
    yield f"{trials} of {len(study.trials)} trials; controls: {counts}"


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
        metric = METRICS[endpoint.metric]
        if endpoint.metric in absent:
            continue
        table.add_row(f"[bold]{metric.label}[/]", f"[dim]{metric.unit}[/]")
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
        named = ", ".join(METRICS[metric].label for metric in absent)
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
    if contrast.paired is None:
        return f"[dim]{contrast.why_not}[/]"
    interval = contrast.paired.t_interval
    return numbers.delta(contrast.paired.mean, interval.low, interval.high, METRICS[metric].digits)


def _claims(analysis: Analysis) -> Iterator[RenderableType]:
    claims = analysis.study.claims
    if claims is None:
        return
    table = table_of("", "claimed", "measured", title="claimed and measured")
    for claim in claims.values:
        metric = METRICS[claim.metric]
        table.add_row(f"[bold]{metric.label}[/]")
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
    """Every contrast: the primary endpoint in full, the others in a line."""
    study = analysis.study
    for arm, reference in study.contrasts:
        primary = analysis.contrast(arm, study.primary.metric)
        metric = METRICS[primary.metric]
        title = f"{escape(arm)} against {escape(reference)}: {metric.label}"
        if primary.paired is None:
            yield f"[bold]{title}[/]: {escape(primary.why_not)}"
            continue
        table = table_of("", "", title=title)
        table.show_header = False
        for name, value in _details(primary):
            table.add_row(name, value)
        yield table
        others = table_of(
            "also",
            f"delta \\[{numbers.level(study.inference.alpha)} CI]",
            "gate p",
            "d_z",
            right=("gate p", "d_z"),
        )
        for endpoint in study.endpoints:
            contrast = analysis.contrast(arm, endpoint.metric)
            if endpoint.primary or contrast.paired is None:
                continue
            paired, label = contrast.paired, METRICS[endpoint.metric].label
            p, d_z = numbers.p_value(paired.gate_p), numbers.signed(paired.d_z, 2)
            others.add_row(label, _delta(analysis, arm, endpoint.metric), p, d_z)
            if contrast.items is not None:
                items, digits = contrast.items, METRICS[endpoint.metric].digits
                low, high = items.interval.low, items.interval.high
                span = numbers.delta(items.mean, low, high, digits)
                others.add_row(f"  for {items.target}", span, numbers.p_value(items.p_value), "")
        yield others
    if analysis.family is not None:
        adjusted = ", ".join(numbers.p_value(p) for p in analysis.family.p_values)
        yield f"sensitivity: maximum-statistic sign-flip p over the family: {adjusted}"
    yield from _stability(analysis)
    yield from _sensitivities(analysis)
    for line in left_out_lines(analysis):
        yield f"[yellow]left out:[/] {escape(line)}"
    yield "[dim]everything else, every pair included, is in analysis.json[/]"


def _details(contrast: Contrast) -> list[tuple[str, str]]:
    paired, metric = contrast.paired, METRICS[contrast.metric]
    digits = metric.digits
    assert paired is not None
    level = f"{paired.t_interval.level:.0%}"

    def span(interval: Interval | None, places: int = digits) -> str:
        if interval is None:
            return numbers.NONE
        if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
            return "unbounded"
        return f"{numbers.signed(interval.low, places)} to {numbers.signed(interval.high, places)}"

    p = numbers.p_value
    rows = [
        ("seed pairs", f"{paired.n}" + (" (descriptive only)" if paired.descriptive_only else "")),
        ("mean (SD) of differences", numbers.mean_sd(paired.mean, paired.sd, digits)),
        (f"{level} t interval", span(paired.t_interval)),
        (f"{level} studentized interval", span(paired.studentized_interval)),
        (
            "percentile, BCa (descriptive)",
            f"{span(paired.percentile_interval_descriptive)}; "
            f"{span(paired.bca_interval_descriptive)}",
        ),
        (
            "gate p (t, bootstrap)",
            f"{p(paired.gate_p)} ({p(paired.t_p)}, {p(paired.studentized_p)})",
        ),
        ("Holm p over the family", p(contrast.holm_p)),
        ("sign-flip p (its floor)", f"{p(paired.sign_flip_p)} ({p(paired.sign_flip_floor)})"),
        ("d_z", f"{numbers.signed(paired.d_z, 2)}, {span(paired.d_z_interval, 2)}"),
        ("Hedges g_z", f"{numbers.signed(paired.g_z, 2)}, {span(paired.g_z_interval, 2)}"),
        ("correlation between arms", numbers.signed(paired.correlation, 2)),
        ("detectable at the power", numbers.fixed(contrast.detectable, digits)),
    ]
    if paired.margin is not None:
        inside = "inside" if paired.equivalent else "not inside"
        rows.append(
            (
                f"{paired.t_equivalence_interval.level:.0%} interval {inside} +-{paired.margin:g}",
                f"{span(paired.t_equivalence_interval)}, TOST p {p(paired.tost_p)}",
            )
        )
    if metric.unit == "nats/token":
        ratios = [math.exp(x) for x in (paired.mean, paired.t_interval.low, paired.t_interval.high)]
        mean, low, high = (f"{ratio:.4f}" for ratio in ratios)
        rows.insert(2, (f"perplexity ratio, {level} t interval", f"{mean}, {low} to {high}"))
    if contrast.capped is not None:
        capped = contrast.capped
        rows.append(
            (
                "diverged trials capped",
                f"{numbers.signed(capped.mean, digits)}, {span(capped.t_interval)}, n = {capped.n}",
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


def _sensitivities(analysis: Analysis) -> Iterator[RenderableType]:
    columns = ("mean", f"delta \\[{numbers.level(analysis.study.inference.alpha)} CI]", "gate p")
    table = table_of("sweep", *columns, title="learning-rate sensitivity, nats/token")
    for sensitivity in analysis.sensitivities:
        values = [value for value in sensitivity.values.values() if math.isfinite(value)]
        mean = numbers.fixed(sum(values) / len(values) if values else None, 4)
        row = ["", ""]
        if sensitivity.paired is not None:
            paired, interval = sensitivity.paired, sensitivity.paired.t_interval
            row = [
                numbers.delta(paired.mean, interval.low, interval.high, 4),
                numbers.p_value(paired.gate_p),
            ]
        table.add_row(escape(sensitivity.sweep), mean, *row)
    if analysis.sensitivities:
        yield table


OUTCOME_STYLES = {"INVALID": "red", "ADOPT": "green", "IMPROVES": "green", "BASELINE": "cyan"}


def verdicts(verdicts: list[Verdict]) -> Iterator[RenderableType]:
    for verdict in verdicts:
        style = OUTCOME_STYLES.get(verdict.outcome, "yellow")
        speaks = f", {verdict.hypothesis}" if verdict.hypothesis else ""
        yield (
            f"[bold {style}]{verdict.outcome}[/] [dim](row {verdict.row}{speaks})[/] "
            f"{escape(verdict.sentence)}"
        )


def detectable(study: Study, rows: list[Detectable]) -> Iterator[RenderableType]:
    n, inference, family = len(study.seeds), study.inference, max(len(study.contrasts), 1)
    if n < 2:
        yield "One seed: nothing can be tested."
        return
    alpha = inference.alpha / family  # the first step of Holm
    least = minimum_detectable_effect(n, power=inference.power, alpha=alpha)
    yield (
        f"{n} seed pairs detect {least:.2f} SDs of a difference at {inference.power:.0%} power "
        f"(alpha {inference.alpha:g} over {family} contrasts)."
    )
    if mcnemar(0, n) > alpha:
        yield (
            f"{n} seed pairs cannot show that an arm cures or causes instability: the least "
            f"possible p is {mcnemar(0, n):.3g}, so rows 2 and 9 to 12 are out of reach."
        )
    if not rows:
        yield "[dim]--pilot DIR or --sd X says what that is in the endpoint's unit[/]"
        return
    metric = METRICS[study.primary.metric]
    columns = ("SD", "detects", "margin", "pairs for it")
    table = table_of("contrast", *columns, title=f"{metric.label}, {metric.unit}", right=columns)
    for row in rows:
        table.add_row(
            escape(row.contrast),
            f"{numbers.fixed(row.sd, metric.digits)} ({row.source})",
            numbers.fixed(row.effect, metric.digits),
            numbers.fixed(row.margin, metric.digits),
            str(row.pairs_for_margin),
        )
    yield table
    for row in rows:
        if row.exceeds_margin:
            yield (
                f"[yellow]warning:[/] {escape(row.contrast)}: the smallest detectable effect "
                f"exceeds the margin; {row.pairs_for_margin} seeds would resolve it"
            )


def calibration(calibration: Calibration) -> Table:
    columns = ("nominal", "measured", "95% interval")
    title = f"A/A: {calibration.rates[0].n} replicates of {calibration.pairs} seed pairs"
    table = table_of("", *columns, title=title, right=columns)
    for rate in calibration.rates:
        low, high = rate.interval.low, rate.interval.high
        table.add_row(
            rate.name,
            f"{rate.nominal:.1%}",
            f"{rate.rate:.1%} ({rate.count}/{rate.n})",
            f"{low:.1%} to {high:.1%}",
        )
    if calibration.skipped:
        table.add_row(f"{calibration.skipped} replicates were left out: a trial diverged")
    return table
