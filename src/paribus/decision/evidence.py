"""What a verdict rests on, gathered from the analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paribus.analysis import Analysis, Contrast, Costs, Stabilities
from paribus.study import METRICS

Quality = Literal["Q0", "Q-", "Q+", "Q?"]
Fix = Literal["fix", "harm", "unshown"]


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
    cost, budget = cost_of(analysis, arm), analysis.study.decision
    return any(
        measured is None or measured.mean > limit
        for measured, limit in (
            (cost.calibration, budget.calibration_budget),
            (cost.throughput, budget.throughput_budget),
        )
    )


def cost_of(analysis: Analysis, arm: str) -> Costs:
    return next(cost for cost in analysis.costs if cost.arm == arm)


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
