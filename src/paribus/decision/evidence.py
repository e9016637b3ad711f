"""Evidence for a verdict, derived from the analysis as input to decision rules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args, get_type_hints

from paribus.analysis import Analysis, BudgetState, Contrast, Costs
from paribus.statistics import Decided, holm

Quality = Literal["Q0", "Q-", "Q+", "Q?"]
Fix = Literal["fix", "harm", "unshown"]
Benefit = Literal["shown", "absent", "not shown"]
Divergence = Literal["more", "equal", "fewer"]
Invalid = Literal["", "missing", "unregistered", "untested", "broken"]
Elsewhere = Literal["worse", "within margin", "not worse"]


class State(NamedTuple):
    """Discrete evidence about one contrast and primary endpoint, as input to decision rules.

    Attributes:
        quality: result on the endpoint: "Q0" equivalent within the margin, "Q-" significantly
            worse, "Q+" significantly better (Holm-adjusted), or "Q?" otherwise. If runs diverged
            and event rates do not differ significantly, the result must also hold with the worst
            finite score for diverged runs.
        not_worse: whether the arm is non-inferior, under the same condition.
        baseline_stable: whether the reference is stable by the registered threshold.
        fix: significant effect on divergence and loss spikes: "fix", "harm", or "unshown" for none.
        collapse: whether the arm diverges for every seed, and its reference for none.
        budget: whether costs with a limit are "within" it, whether one is "over" it, or whether
            this is "not shown", for example because a cost was not measured.
        benefit: whether the registered benefit is "shown", shown to be "absent", or "not shown".
        divergence: whether the arm diverges for "more", "equal" or "fewer" seeds.
        elsewhere: worst result on the other primary endpoints: "worse", "within margin" or "not
            worse".
    """

    quality: Quality
    not_worse: bool
    baseline_stable: bool
    fix: Fix
    collapse: bool
    budget: BudgetState
    benefit: Benefit
    divergence: Divergence
    elsewhere: Elsewhere


Value = str | bool
# The values of each part of a state, in the order in which registered tables of all states are.
PARTS: dict[str, tuple[Value, ...]] = {
    name: get_args(values) or (True, False) for name, values in get_type_hints(State).items()
}


@dataclass(frozen=True)
class Evidence:
    """Evidence on which a verdict is based.

    Attributes:
        invalid: why no verdict is possible, or "" if it is: trials are "missing", records differ
            from the registration ("unregistered"), the test split was not evaluated ("untested"),
            or a control is "broken".
        n: number of finished seed pairs, including diverged runs; for unpaired runs, the number of
            runs in the smaller arm.
        state: discrete evidence as input to decision rules.
    """

    invalid: Invalid
    n: int
    state: State


def estimate_of(says: Decided | None) -> dict[str, Any]:
    """Return the effect, interval and sample size of a test as keyword arguments of `Answer`.

    `low` and `high` are None if there are too few runs for an interval. Without a test, `n` is 0
    and all other values are None.
    """
    if says is None:
        return {"effect": None, "low": None, "high": None, "n": 0}
    low, high = (says.interval.low, says.interval.high) if says.has_interval else (None, None)
    return {"effect": says.mean, "low": low, "high": high, "n": says.n}


def gather(analysis: Analysis, contrast: Contrast) -> Evidence:
    """Collect the evidence about one contrast on a primary endpoint."""
    study, stability = analysis.study, analysis.stability(contrast.arm)
    excess, is_stable, n = 0.0, True, 0
    if stability:
        excess = stability.diverged.treatment_rate - stability.diverged.baseline_rate
        is_stable = stability.any_event.baseline_rate <= study.stability.unstable_above
        n = stability.any_event.n
    quality, not_worse = _quality(analysis, contrast)
    state = State(
        quality=quality,
        not_worse=not_worse,
        baseline_stable=is_stable,
        fix=events_shown(analysis, contrast),
        collapse=excess == 1,
        budget=_budget(analysis, cost_of(analysis, contrast.arm)),
        benefit=_benefit(analysis, contrast.arm),
        divergence="more" if excess > 0 else "fewer" if excess < 0 else "equal",
        elsewhere=_elsewhere(analysis, contrast),
    )
    return Evidence(_why_invalid(analysis, contrast), n, state)


def _why_invalid(analysis: Analysis, contrast: Contrast) -> Invalid:
    reasons: dict[Invalid, object] = {
        "missing": analysis.missing_of(contrast),
        "unregistered": analysis.unregistered,
        "untested": analysis.untested,
        "broken": analysis.broken(contrast.arm),
    }
    for code, holds in reasons.items():
        if holds:
            return code
    return ""


def _quality(analysis: Analysis, contrast: Contrast) -> tuple[Quality, bool]:
    """Return `State.quality` and `State.not_worse` for a contrast.

    Diverged runs are excluded. If runs diverged and event rates do not differ significantly, the
    result must also hold with the worst finite score for diverged runs.
    """
    alpha, stability = analysis.study.inference.alpha, analysis.stability(contrast.arm)
    versions: list[Contrast | None] = [contrast]
    rates = stability.diverged if stability else None
    some_diverged = rates and rates.baseline_events + rates.treatment_events > 0
    if some_diverged and events_shown(analysis, contrast) == "unshown":
        versions.append(contrast.counting_diverged)
    qualities: set[Quality] = {
        quality_shown(version, alpha) if version else "Q?" for version in versions
    }
    not_worse = all(version is not None and version.not_worse(alpha) for version in versions)
    return qualities.pop() if len(qualities) == 1 else "Q?", not_worse


def quality_shown(contrast: Contrast, alpha: float) -> Quality:
    """Classify a contrast as "Q+" (better), "Q-" (worse), "Q0" (equivalent) or "Q?" (neither)."""
    says = contrast.decided
    if says is None:
        return "Q?"
    if contrast.equivalent(alpha):
        return "Q0"
    if not contrast.significant(alpha):  # also where divergence has left too few pairs to test
        return "Q?"
    higher_is_better = contrast.declared.better == "higher"
    return "Q+" if (says.mean > 0) == higher_is_better else "Q-"


def events_shown(analysis: Analysis, contrast: Contrast) -> Fix:
    """Classify the arm's effect on instability as "fix", "harm" or "unshown" (not significant).

    Divergence and loss spikes are tested together. If this test is not significant, divergence is
    tested alone at half the level, but only in studies with a single analysis.
    """
    stability = analysis.stability(contrast.arm)
    if stability is None or stability.holm_p is None:
        return "unshown"
    rates, alpha = stability.any_event, analysis.study.inference.alpha
    if stability.holm_p > alpha:
        rates, sampled = stability.diverged, contrast.sampling
        is_fixed = sampled is None or (sampled.look is None and sampled.stage_seeds is None)
        contrasts = len(analysis.study.contrasts)
        if not is_fixed or 2 * contrasts * rates.p_value > alpha:
            return "unshown"
    return "fix" if rates.treatment_rate < rates.baseline_rate else "harm"


def _budget(analysis: Analysis, cost: Costs) -> BudgetState:
    """Return the worst state of all costs with a limit, "not shown" for unmeasured costs."""
    limits = analysis.study.decision
    limited = (
        (limits.calibration_budget, cost.calibration),
        (limits.throughput_budget, cost.throughput),
    )
    states = {part.state if part else "not shown" for limit, part in limited if limit is not None}
    return "over" if "over" in states else "not shown" if states - {"within"} else "within"


def cost_of(analysis: Analysis, arm: str) -> Costs:
    """Return the costs of an arm relative to its reference."""
    return next(cost for cost in analysis.costs if cost.arm == arm)


def losses_elsewhere(analysis: Analysis, contrast: Contrast) -> list[Contrast]:
    """Return the arm's contrasts on all other endpoints on which it is significantly worse.

    Secondary endpoints are included, and losses within the margin are excluded. Diverged runs are
    ignored.
    """
    alpha = analysis.study.inference.alpha
    contrasts = [
        analysis.contrast(contrast.arm, endpoint.metric)
        for endpoint in analysis.study.endpoints
        if endpoint.metric != contrast.metric
    ]
    return [
        loss
        for loss in contrasts
        if loss.declared.better != "neither" and quality_shown(loss, alpha) == "Q-"
    ]


def _elsewhere(analysis: Analysis, contrast: Contrast) -> Elsewhere:
    contrasts = (
        analysis.contrast(contrast.arm, endpoint.metric)
        for endpoint in analysis.study.judged
        if endpoint.metric != contrast.metric
    )
    worse = [c for c in contrasts if _quality(analysis, c)[0] == "Q-"]
    if not worse:
        return "not worse"
    within = all(c.not_worse(analysis.study.inference.alpha) for c in worse)
    return "within margin" if within else "worse"


def _benefit(analysis: Analysis, arm: str) -> Benefit:
    """Test whether the benefit exceeds the registered minimum (one-sided, Holm-adjusted)."""
    study, metric = analysis.study, analysis.study.decision.benefit
    if metric is None:
        return "not shown"
    contrasts = {name: analysis.contrast(name, metric) for name, _ in study.contrasts}
    says, smallest = contrasts[arm].decided, study.decision.least_benefit
    if says is None or says.descriptive_only:
        return "not shown"
    for greater in (True, False):
        p_values = [_benefit_p(each, smallest, greater=greater) for each in contrasts.values()]
        if dict(zip(contrasts, holm(p_values), strict=True))[arm] <= study.inference.alpha:
            return "shown" if greater else "absent"
    return "not shown"


def _benefit_p(contrast: Contrast, least_benefit: float, *, greater: bool) -> float:
    """Return the one-sided p-value for a comparison of a contrast's gain with `least_benefit`.

    The null hypothesis is gain <= least_benefit if `greater`, and gain >= least_benefit otherwise.
    """
    says = contrast.decided
    if says is None or (any(contrast.censored) and not greater):
        return 1.0
    gains = contrast.declared.better == "higher"
    null = contrast.declared.change(least_benefit if gains else -least_benefit)
    return says.basis.one_sided_p(null, greater=greater == gains)
