"""Tables of a report as plain text cells: the page, the paper and its CSV files show the same."""

from __future__ import annotations

from dataclasses import dataclass

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost, Costs
from paribus.decision import Verdict, rule_of
from paribus.report.figures import names
from paribus.report.figures.contrasts import state_of
from paribus.results import Results
from paribus.statistics import PairedRates
from paribus.study import Endpoint, Study

MOST_SAID = 20  # seeds of one reason that have a line each


@dataclass(frozen=True)
class Table:
    """Text in rows and columns.

    Attributes:
        name: of its file.
        caption: what it shows.
        head: a heading for each column; those called "arm" or "against" hold names of arms.
        text: columns of words, which are set to the left; numbers are set to the right.
        wide: whether a column of the paper is too narrow for it.
    """

    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    text: frozenset[str] = frozenset({"arm", "against"})
    wide: bool = False


def primary(analysis: Analysis) -> list[Table]:
    """Every primary endpoint: every arm, and every contrast."""
    return [_primary(analysis, endpoint) for endpoint in analysis.study.judged]


def _primary(analysis: Analysis, endpoint: Endpoint) -> Table:
    study, called = analysis.study, names(analysis.study)
    metric, several = analysis.metrics[endpoint.metric], len(study.judged) > 1
    level = numbers.level(study.inference.alpha)
    rows = []
    for arm in study.arms:
        summary = analysis.summary(arm, metric.name)
        row = [called[arm], numbers.mean_sd(summary.mean, summary.sd, metric.digits)]
        row.append(str(summary.n))
        contrast = analysis.contrast(arm, metric.name) if study.reference(arm) else None
        if contrast is None:
            row += [""] * 5
        elif contrast.decided is None:
            row += [contrast.why_not, *[""] * 4]
        else:
            ratio = numbers.NONE
            if metric.ratio:
                ratio = numbers.ratio(contrast.decided.mean, 3)
            row += [
                change_of(contrast),
                ratio,
                numbers.p_or_blank(contrast.p),
                numbers.p_or_blank(contrast.tested_p),
                state_of(contrast, study.inference.alpha),
            ]
        rows.append(tuple(row))
    is_first = endpoint is study.primary
    opening = (
        f"A primary endpoint, {metric.title}"
        if several
        else (f"The primary endpoint, {metric.title}")
    )
    worth = endpoint.smallest_effect
    return Table(
        "primary" if is_first else f"primary-{plain_name(metric.name)}",
        f"{opening}: mean and SD over seeds, and the change at "
        f"the same seed with its {level} interval by the test that decides. The registered "
        f"margin is ±{endpoint.margin:g}"
        + (f", the smallest effect worth detecting {worth:g}." if worth is not None else ".")
        + (
            f" Holm's method adjusts over {len(study.judged)} primary endpoints and all contrasts."
            if several
            else ""
        ),
        ("arm", "mean (SD)", "seeds", f"change [{level}]", "ratio", "p", "Holm p", "finding"),
        tuple(rows),
        frozenset({"arm", "finding"}),
        wide=True,
    )


def decision(analysis: Analysis, verdicts: list[Verdict]) -> Table:
    """The registered rule: its rows in their order, and what they fired for."""
    called, rule = names(analysis.study), rule_of(analysis)
    several = len(analysis.study.judged) > 1

    def fired(row: str) -> str:
        mine = [verdict for verdict in verdicts if verdict.row == row]
        told = (called[v.arm] + (f" ({v.label})" if several else "") for v in mine)
        return ", ".join(told)

    rows = tuple((row.id, row.when, row.outcome, fired(row.id)) for row in rule.all_rows.values())
    return Table(
        "decision",
        f"The registered decision rule, {rule.title}: the first row whose condition holds decides, "
        "for each contrast and each primary endpoint by itself.",
        ("row", "when (no row before it)", "verdict", "fired for"),
        rows,
        frozenset({"row", "when (no row before it)", "verdict", "fired for"}),
        wide=True,
    )


def endpoints(analysis: Analysis) -> Table:
    """Every endpoint of every arm."""
    study, called = analysis.study, names(analysis.study)
    rows = []
    absent = analysis.unmeasured
    for endpoint in study.endpoints:
        if endpoint.metric in absent:
            continue
        metric = analysis.metrics[endpoint.metric]
        unit = f" ({metric.unit})" if metric.unit else ""
        for i, arm in enumerate(study.arms):
            summary, change = analysis.summary(arm, metric.name), ""
            if study.reference(arm):
                contrast = analysis.contrast(arm, metric.name)
                change = contrast.why_not
                if contrast.decided:
                    change = change_of(contrast)
            label = f"{metric.label}{unit}" if i == 0 else ""
            mean = numbers.mean_sd(summary.mean, summary.sd, metric.digits)
            rows.append((label, called[arm], mean, str(summary.n), change))
    return Table(
        "endpoints",
        f"Every endpoint: mean and SD over seeds, and the change to the arm's reference at the "
        f"same seed with its {numbers.level(study.inference.alpha)} interval by the test that "
        "decides." + _not_measured(analysis),
        (
            "endpoint",
            "arm",
            "mean (SD)",
            "seeds",
            f"change [{numbers.level(study.inference.alpha)}]",
        ),
        tuple(rows),
        frozenset({"endpoint", "arm"}),
        wide=True,
    )


def _not_measured(analysis: Analysis) -> str:
    named = ", ".join(analysis.metrics[metric].label for metric in analysis.unmeasured)
    return f" Not measured in this study: {named}." if named else ""


def claims(analysis: Analysis) -> Table | None:
    """What was claimed, beside what was measured."""
    study, called = analysis.study, names(analysis.study)
    if study.claims is None:
        return None
    rows = []
    for claim in study.claims.values:
        metric = analysis.metrics[claim.metric]
        for arm in claim.arms:
            summary = analysis.summary(arm, claim.metric)
            rows.append(
                (
                    metric.label,
                    called[arm],
                    numbers.mean_sd(claim.mean, claim.sd, metric.digits),
                    numbers.mean_sd(summary.mean, summary.sd, metric.digits),
                )
            )
    checks = "".join(f" {check}" for check in analysis.claim_checks)
    caption = f"Claimed by {study.claims.source}, and measured here: mean (SD).{checks}"
    head = ("metric", "arm", "claimed", "measured")
    return Table("claims", caption, head, tuple(rows), frozenset({"metric", "arm"}))


def claims_by_arm(analysis: Analysis) -> Table | None:
    """The same with a row for every arm: what was claimed → what was measured."""
    study, called = analysis.study, names(analysis.study)
    if study.claims is None:
        return None
    metrics = list(dict.fromkeys(claim.metric for claim in study.claims.values))
    rows = []
    for arm in study.arms:
        cells = []
        for metric in metrics:
            about, summary = analysis.metrics[metric], analysis.summary(arm, metric)
            mine = [c for c in study.claims.values if c.metric == metric and arm in c.arms]
            measured = numbers.mean_sd(summary.mean, summary.sd, about.digits)
            claimed = [numbers.mean_sd(c.mean, c.sd, about.digits) for c in mine]
            cells.append(f"{claimed[0]} → {measured}" if claimed else "")
        if any(cells):
            rows.append((called[arm], *cells))
    head = ("arm", *(analysis.metrics[metric].label for metric in metrics))
    caption = f"Claimed by {study.claims.source} → measured here: mean (SD) over seeds."
    return Table("claims-by-arm", caption, head, tuple(rows), wide=True) if rows else None


def controls(analysis: Analysis) -> Table:
    """All else equal: every control with its evidence."""
    called = names(analysis.study)
    marks = {
        "held": "✓ held",
        "declared": "~ declared",
        "not proven": "? not proven",
        "broken": "✗ broken",
    }
    rows = tuple(
        (c.name, called[c.arm], called[c.reference], marks[c.state], c.detail)
        for c in analysis.controls
    )
    return Table(
        "controls",
        "All else equal. Held: equal in every seed, by digest. Declared: differs because the arm "
        "says so. Not proven: not looked at yet. Broken: differs though nothing says so, and the "
        "contrast is not analysed.",
        ("control", "arm", "against", "state", "evidence"),
        rows,
        frozenset({"control", "arm", "against", "state", "evidence"}),
        wide=True,
    )


def stability(analysis: Analysis) -> Table:
    """Events of every contrast, as counts of trials."""
    called = names(analysis.study)
    rows = tuple(
        (
            called[s.arm],
            called[s.reference],
            _rates(s.diverged),
            _rates(s.spiked),
            _rates(s.any_event),
            numbers.p_value(s.holm_p),
        )
        for s in analysis.stabilities
    )
    return Table(
        "stability",
        "Trials that diverged or spiked: of the reference → of the arm, of all pairs; McNemar's "
        "exact p of either, adjusted by Holm's method.",
        ("arm", "against", "diverged", "spiked", "either", "Holm p"),
        rows,
    )


def costs(analysis: Analysis) -> Table:
    """What arms cost besides quality."""
    called, level = names(analysis.study), numbers.level(analysis.study.inference.alpha)

    def change(cost: Cost | None, digits: int, scale: float = 1.0) -> str:
        if cost is None:
            return numbers.NONE
        # Adding zero turns a negative zero into a positive one.
        low, high = sorted((scale * cost.interval.low + 0.0, scale * cost.interval.high + 0.0))
        return numbers.delta(scale * cost.mean + 0.0, low, high, digits)

    in_bytes = any(c.in_bytes for c in analysis.costs)
    rows = tuple(
        (
            called[c.arm],
            called[c.reference],
            change(c.calibration, 4),
            *(change(kind, 1, -100) for kind in (c.throughput, c.prefill, c.decoding)),
            _budget(c),
        )
        for c in analysis.costs
    )
    return Table(
        "costs",
        "Change of the expected calibration error (share), and of tokens per second (per cent) in "
        f"training, reading and writing (from ratios), with {level} intervals over seed pairs."
        f"{' Where tokenizers differ, it is bytes per second.' if in_bytes else ''} The "
        "budget is judged on the one-sided bound of the worse of calibration and training.",
        ("arm", "against", "calibration", "training, %", "reading, %", "writing, %", "budget"),
        rows,
        wide=True,
    )


def _budget(costs: Costs) -> str:
    states = [cost.state if cost else "not shown" for cost in (costs.calibration, costs.throughput)]
    return next((str(s) for s in ("over", "not shown") if s in states), "within")


def arms(study: Study) -> Table:
    """What every arm is, and exactly what sets it apart."""
    called = names(study)
    rows = []
    for name, arm in study.arms.items():
        reference = study.reference(name)
        differences = "; ".join(f"{k}: {a} → {b}" for k, (a, b) in study.differences(name).items())
        rows.append(
            (
                called[name],
                arm.description or arm.title,
                called[reference] if reference else "",
                differences,
            )
        )
    head = ("arm", "what it is", "against", "differs in exactly")
    caption = "The arms, and exactly what sets each apart from what it is compared with."
    return Table("arms", caption, head, tuple(rows), frozenset(head), wide=True)


def trials(results: Results, analysis: Analysis) -> Table:
    """Every trial with every endpoint."""
    called, study = names(results.study), results.study
    metrics = [analysis.metrics[endpoint.metric] for endpoint in study.endpoints]
    rows = []
    for row in results.scores.to_pylist():
        events = analysis.events[row["arm"], row["seed"]]
        outcome = "diverged" if row["diverged"] or events.diverged else "finished"
        outcome += ", spiked" if events.spiked else ""
        values = [numbers.fixed(row[metric.name], metric.digits) for metric in metrics]
        rows.append((called[row["arm"]], str(row["seed"]), *values, outcome))
    for folder in results.unfinished:
        blank = [""] * len(metrics)
        rows.append((called[folder.arm], str(folder.seed), *blank, "not finished"))
    return Table(
        "trials",
        "Every trial.",
        ("arm", "seed", *(metric.label for metric in metrics), "outcome"),
        tuple(rows),
        frozenset({"arm", "outcome"}),
        wide=True,
    )


def left_out(analysis: Analysis) -> list[str]:
    """One line per seed and reason, or for all seeds that share one where these are many; the same
    reason is not said again for every metric."""
    called = names(analysis.study)
    told: dict[tuple[str, str, str], list[int]] = {}
    for out in analysis.left_out:
        seeds = told.setdefault((called[out.arm], called[out.reference], out.why), [])
        seeds.append(out.seed)
    lines = []
    for (arm, reference, why), seeds in told.items():
        each = list(dict.fromkeys(seeds))
        if len(each) <= MOST_SAID:
            lines += [f"Seed {seed} of {arm} against {reference}: {why}." for seed in each]
        else:
            first = ", ".join(map(str, each[:MOST_SAID]))
            lines.append(f"{len(each):,} seeds of {arm} against {reference} ({first} ...): {why}.")
    return lines


def plain_name(metric: str) -> str:
    """The name of a metric as that of a file."""
    return metric.replace("/", "-").replace(" ", "-")


def change_of(contrast: Contrast) -> str:
    """The change with its interval, by the test that decides."""
    says = contrast.decided
    assert says is not None
    digits = contrast.declared.change_digits
    return numbers.delta(says.mean, says.interval.low, says.interval.high, digits)


def _rates(rates: PairedRates) -> str:
    base, arm = rates.both + rates.only_baseline, rates.both + rates.only_treatment
    return f"{base} → {arm} of {rates.n}"
