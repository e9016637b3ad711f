"""The verdict: a total function of the analysis. Every outcome, inconclusive included, has a row.

First match wins. Quality of a contrast, on the primary endpoint:
    Q0  the 90% interval lies inside the registered margin
    Q-  significantly worse (Holm), Q+ significantly better
    Q?  anything else
F is what the arm does to instability: fix, harm or unshown (exact McNemar). The baseline is stable
or not by the registered share of its trials with an event.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost, Costs, Stabilities
from paribus.statistics import DESCRIPTIVE_BELOW, StatisticsError, mcnemar, required_pairs
from paribus.study import METRICS

MOST_PAIRS = 1000  # more seeds than this are no way out

Quality = Literal["Q0", "Q-", "Q+", "Q?"]
Fix = Literal["fix", "harm", "unshown"]
Outcome = Literal["INVALID", "DESCRIPTIVE ONLY", "BASELINE", "IMPROVES", "INCONCLUSIVE", "ADOPT"]


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on.

    Attributes:
        invalid: why the study cannot be judged; empty where it can.
        n: seed pairs that both arms have finished, diverged ones included.
        quality: of the arm on the primary endpoint.
        baseline_stable: by the registered threshold.
        fix: what the arm does to instability.
        over_budget: whether calibration or throughput costs more than registered, or is not known.
    """

    invalid: str
    n: int
    quality: Quality
    baseline_stable: bool
    fix: Fix
    over_budget: bool


@dataclass(frozen=True)
class Row:
    """A row of the decision table."""

    number: int
    outcome: Outcome
    reason: str
    hypothesis: Literal["H0", "H1a", "H1b"] | None = None


ROWS = {
    row.number: row
    for row in (
        Row(0, "INVALID", "a run is missing, or a control did not hold"),
        Row(1, "DESCRIPTIVE ONLY", f"fewer than {DESCRIPTIVE_BELOW} seed pairs"),
        Row(2, "BASELINE", "the arm destabilises training"),
        Row(3, "BASELINE", "regression where the baseline is stable", "H1a"),
        Row(4, "BASELINE", "no effect worth having", "H0"),
        Row(5, "IMPROVES", "a gain, but the baseline is stable: the adoption gate is not met"),
        Row(6, "INCONCLUSIVE", "underpowered"),
        Row(7, "BASELINE", "a cost, and no instability shown to be cured", "H1a"),
        Row(8, "INCONCLUSIVE", "the baseline is unstable, a cure is not shown"),
        Row(9, "BASELINE", "the instability is cured, at a cost that exceeds the benefit", "H1b"),
        Row(10, "INCONCLUSIVE", "the instability is cured, the effect on quality is unresolved"),
        Row(11, "BASELINE", "the instability is cured, a cost is over budget or not known", "H1b"),
        Row(12, "ADOPT", "the instability is cured at no cost beyond the budgets", "H1b"),
    )
}


def decide_row(evidence: Evidence) -> Row:
    """The row of the decision table that fires."""
    return ROWS[_row_number(evidence)]


def _row_number(e: Evidence) -> int:
    if e.invalid:
        return 0
    if e.n < DESCRIPTIVE_BELOW:
        return 1
    if e.fix == "harm":
        return 2
    if e.baseline_stable:
        return {"Q-": 3, "Q0": 4, "Q+": 5, "Q?": 6}[e.quality]
    if e.fix == "unshown":
        return 7 if e.quality == "Q-" else 8
    if e.quality == "Q-":
        return 9
    if e.quality == "Q?":
        return 10
    return 11 if e.over_budget else 12


@dataclass(frozen=True)
class Verdict:
    """What is decided of one arm.

    Attributes:
        row, outcome, reason, hypothesis: the row that fired, and the hypothesis it speaks to.
        evidence: what it fired on.
        sentence: the verdict in plain words, with its numbers.
        pairs_needed: seed pairs that would resolve an inconclusive verdict, at the registered
            power; None where the verdict is not inconclusive or no number would do.
        tie_breaks: calibration and throughput, which break ties where quality does not decide.
    """

    arm: str
    reference: str
    row: int
    outcome: Outcome
    reason: str
    hypothesis: str | None
    evidence: Evidence
    sentence: str
    pairs_needed: int | None
    tie_breaks: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"tie_breaks": list(self.tie_breaks)}


def decide(analysis: Analysis) -> list[Verdict]:
    """A verdict for every contrast of the study."""
    return [_verdict(analysis, arm, ref) for arm, ref in analysis.study.contrasts]


def _verdict(analysis: Analysis, arm: str, reference: str) -> Verdict:
    contrast = analysis.contrast(arm, analysis.study.primary.metric)
    evidence = gather(analysis, contrast)
    row = decide_row(evidence)
    needed = _pairs_needed(analysis, contrast, row)
    return Verdict(
        arm=arm,
        reference=reference,
        row=row.number,
        outcome=row.outcome,
        reason=row.reason,
        hypothesis=row.hypothesis,
        evidence=evidence,
        sentence=_sentence(row, contrast, evidence, needed) + _caveat(analysis),
        pairs_needed=needed,
        tie_breaks=_tie_breaks(analysis, arm),
    )


def gather(analysis: Analysis, contrast: Contrast) -> Evidence:
    """The evidence on one contrast of the primary endpoint."""
    stability = next((s for s in analysis.stabilities if s.arm == contrast.arm), None)
    return Evidence(
        invalid=_why_invalid(analysis, contrast),
        n=stability.any_event.n if stability else 0,
        quality=_quality(analysis, contrast),
        baseline_stable=stability is None
        or stability.any_event.baseline_rate <= analysis.study.stability.unstable_above,
        fix=_fix(stability, analysis.study.inference.alpha),
        over_budget=_over_budget(analysis, contrast.arm),
    )


def _over_budget(analysis: Analysis, arm: str) -> bool:
    """Whether a mean cost exceeds its budget; one that is not known cannot be within it."""
    cost, budget = _cost(analysis, arm), analysis.study.decision
    return any(
        measured is None or measured.mean > limit
        for measured, limit in (
            (cost.calibration, budget.calibration_budget),
            (cost.throughput, budget.throughput_budget),
        )
    )


def _cost(analysis: Analysis, arm: str) -> Costs:
    return next(cost for cost in analysis.costs if cost.arm == arm)


def _tie_breaks(analysis: Analysis, arm: str) -> tuple[str, ...]:
    """What breaks a tie, in the user's order: calibration, then throughput."""
    cost = _cost(analysis, arm)
    calibration = "not measured"
    if cost.calibration is not None:
        low, high = cost.calibration.interval.low, cost.calibration.interval.high
        rise = numbers.delta(cost.calibration.mean, low, high, 4)
        calibration = f"{rise} expected calibration error"
    how = "measured in turn" if cost.in_turn else "as timed while training"
    kinds = {
        f"training ({how})": cost.throughput,
        "reading": cost.prefill,
        "writing": cost.decoding,
    }
    gains = [f"{kind} {_gain(lost)} per cent" for kind, lost in kinds.items() if lost]
    throughput = f"tokens per second: {', '.join(gains)}" if gains else "throughput: not measured"
    return (f"calibration: {calibration}", throughput)


def _gain(lost: Cost) -> str:
    low, high = lost.interval.low, lost.interval.high
    return numbers.delta(-100 * lost.mean, -100 * high, -100 * low, 1)


def _why_invalid(analysis: Analysis, contrast: Contrast) -> str:
    mine = {contrast.arm, contrast.reference}
    missing = [label for label in analysis.missing if label.rsplit("/", 1)[0] in mine]
    if missing:
        if len(missing) == 1:
            return f"a trial is missing: {missing[0]}"
        return f"{len(missing)} trials are missing, such as {missing[0]}"
    if analysis.unregistered:
        return analysis.unregistered
    broken = analysis.broken(contrast.arm)
    if broken:
        return f"{broken[0].name}: {broken[0].detail}"
    return ""


def _quality(analysis: Analysis, contrast: Contrast) -> Quality:
    if contrast.paired is None or contrast.holm_p is None or contrast.paired.descriptive_only:
        return "Q?"  # also where divergence has left too few pairs to test
    if contrast.paired.equivalent:
        return "Q0"
    if contrast.holm_p > analysis.study.inference.alpha:
        return "Q?"
    higher_is_better = METRICS[contrast.metric].better == "higher"
    return "Q+" if (contrast.paired.mean > 0) == higher_is_better else "Q-"


def _fix(stability: Stabilities | None, alpha: float) -> Fix:
    if stability is None or stability.holm_p > alpha:
        return "unshown"
    cured = stability.any_event.treatment_rate < stability.any_event.baseline_rate
    return "fix" if cured else "harm"


def _pairs_needed(analysis: Analysis, contrast: Contrast, row: Row) -> int | None:
    """Seed pairs that would resolve an inconclusive verdict; None where no number is known."""
    if row.outcome != "INCONCLUSIVE":
        return None
    alpha = analysis.study.inference.alpha / len(analysis.study.contrasts)
    if row.number == 8:
        return _pairs_to_show_cure(analysis, contrast.arm, alpha)
    paired, power = contrast.paired, analysis.study.inference.power
    if paired is None or paired.margin is None or paired.sd == 0:
        return None
    d_z = paired.margin / paired.sd
    try:
        detects = required_pairs(d_z, power=power, alpha=alpha)
        # Two one-sided tests of a true difference of 0 both reject with the power asked for where
        # each does with probability (1 + power) / 2.
        excludes = required_pairs(d_z, power=(1 + power) / 2, alpha=2 * paired.alpha)
    except StatisticsError:
        return None
    return max(detects, excludes, paired.n + 1)


def _pairs_to_show_cure(analysis: Analysis, arm: str, alpha: float) -> int | None:
    """Pairs at which the rates of events seen here would be significant by McNemar's test."""
    rates = next(s.any_event for s in analysis.stabilities if s.arm == arm)
    if rates.only_baseline <= rates.only_treatment:
        return None
    for n in range(rates.n + 1, MOST_PAIRS + 1):
        cured, caused = (
            round(n * count / rates.n) for count in (rates.only_baseline, rates.only_treatment)
        )
        if mcnemar(cured, caused) <= alpha:
            return n
    return None


def _sentence(row: Row, contrast: Contrast, evidence: Evidence, needed: int | None) -> str:
    opening = {
        "INVALID": f"{contrast.arm} against {contrast.reference} cannot be judged",
        "DESCRIPTIVE ONLY": f"{contrast.arm} against {contrast.reference} is only described",
        "BASELINE": f"Keep {contrast.reference} rather than {contrast.arm}",
        "IMPROVES": f"{contrast.arm} improves on {contrast.reference}, which is kept all the same",
        "INCONCLUSIVE": f"{contrast.arm} against {contrast.reference} is not resolved",
        "ADOPT": f"Adopt {contrast.arm} in place of {contrast.reference}",
    }[row.outcome]
    why = evidence.invalid or row.reason
    if row.number == 1:
        why = f"{why} ({evidence.n})"
    text = f"{opening}: {why}."
    if contrast.paired is not None and row.number != 0:
        text += f" {effect_in_words(contrast)}."
    if needed is not None and row.number == 8:
        text += f" At these rates of events, about {needed} seed pairs would show a cure."
    elif needed is not None:
        text += f" About {needed} seed pairs would detect or exclude a change of the margin's size."
    return text


def _caveat(analysis: Analysis) -> str:
    if not analysis.late_seeds:
        return ""
    seeds = ", ".join(map(str, analysis.late_seeds))
    return f" Seeds added after results had been seen ({seeds}): no error rate is guaranteed."


def effect_in_words(contrast: Contrast) -> str:
    """The primary effect with its interval, losses as perplexity ratios too."""
    assert contrast.paired is not None
    metric, paired = METRICS[contrast.metric], contrast.paired
    interval = paired.t_interval
    text = (
        f"{metric.label} changes by "
        f"{numbers.delta(paired.mean, interval.low, interval.high, metric.digits)}"
        + (f" {metric.unit}" if metric.unit else "")
    )
    if metric.unit == "nats/token":
        low, mean, high = (math.exp(x) for x in (interval.low, paired.mean, interval.high))
        text += f", a perplexity ratio of {mean:.3f} [{low:.3f}, {high:.3f}]"
    text += f", n = {paired.n}"
    if contrast.holm_p is not None and not paired.descriptive_only:
        text += f", Holm p = {numbers.p_value(contrast.holm_p)}"
    return text[0].upper() + text[1:]
