"""The verdict on every contrast: the row that fired, in plain words with its numbers."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from paribus import numbers
from paribus.analysis import Analysis, Contrast, Cost
from paribus.decision.evidence import Evidence, cost_of, gather
from paribus.decision.rule import Outcome, Row
from paribus.decision.stability_gate import decide_row
from paribus.statistics import StatisticsError, mcnemar, required_pairs
from paribus.study import METRICS, at_rates

MOST_PAIRS = 1000  # more seeds than this are no way out


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
    row: str
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
        row=row.id,
        outcome=row.outcome,
        reason=row.reason,
        hypothesis=row.hypothesis,
        evidence=evidence,
        sentence=_sentence(analysis, row, contrast, evidence, needed) + _caveat(analysis),
        pairs_needed=needed,
        tie_breaks=_tie_breaks(analysis, arm),
    )


def _tie_breaks(analysis: Analysis, arm: str) -> tuple[str, ...]:
    """What breaks a tie, in the user's order: calibration, then throughput."""
    cost = cost_of(analysis, arm)
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


def _pairs_needed(analysis: Analysis, contrast: Contrast, row: Row) -> int | None:
    """Seed pairs that would resolve an inconclusive verdict; None where no number is known."""
    if row.outcome != "INCONCLUSIVE":
        return None
    alpha = analysis.study.inference.alpha / len(analysis.study.contrasts)
    if row.id == "8":
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


def _sentence(
    analysis: Analysis, row: Row, contrast: Contrast, evidence: Evidence, needed: int | None
) -> str:
    opening = {
        "INVALID": f"{contrast.arm} against {contrast.reference} cannot be judged",
        "DESCRIPTIVE ONLY": f"{contrast.arm} against {contrast.reference} is only described",
        "BASELINE": f"Keep {contrast.reference} rather than {contrast.arm}",
        "IMPROVES": f"{contrast.arm} improves on {contrast.reference}, which is kept all the same",
        "INCONCLUSIVE": f"{contrast.arm} against {contrast.reference} is not resolved",
        "ADOPT": f"Adopt {contrast.arm} in place of {contrast.reference}",
    }[row.outcome]
    why = evidence.invalid or row.reason
    if row.id == "1":
        why = f"{why} ({evidence.n})"
    if row.outcome not in ("INVALID", "DESCRIPTIVE ONLY"):
        opening += f" {at_rates(analysis.study, contrast.arm, contrast.reference)}"
    text = f"{opening}: {why}."
    if contrast.paired is not None and row.id != "0":
        text += f" {effect_in_words(contrast)}."
    if needed is not None and row.id == "8":
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
