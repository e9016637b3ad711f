"""What a verdict rests on, gathered from the analysis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from paribus.analysis import Analysis, Contrast, Costs, Stabilities
from paribus.statistics import holm

Quality = Literal["Q0", "Q-", "Q+", "Q?"]
Fix = Literal["fix", "harm", "unshown"]
Budget = Literal["within", "over", "not shown"]
Benefit = Literal["shown", "absent", "not shown"]
Divergence = Literal["more", "equal", "fewer"]
Elsewhere = Literal["worse", "within margin", "not worse"]


@dataclass(frozen=True)
class Evidence:
    """All that a verdict rests on.

    Attributes:
        invalid: why the study cannot be judged; empty where it can.
        n: seed pairs that both arms have finished, diverged ones included.
        quality: of the arm on the endpoint that is judged.
        not_worse: whether it is shown to be worse by less than the margin, if at all.
        baseline_stable: by the registered threshold.
        fix: what the arm does to instability.
        collapse: whether the arm diverges in every seed, and its reference in none.
        budget: whether calibration and throughput cost less than registered: one of them is over
            its budget, or not shown to be within, which is also where it was not measured.
        benefit: whether the registered benefit is shown to be more than registered, or shown not to
            be; also "not shown" where none is registered.
        divergence: whether the arm diverged in more seeds than its reference. Quality is compared
            over seeds that both survived, so that an arm which lost more of them is seen at its
            best.
        elsewhere: the worst that is shown of the arm on the other primary endpoints: significantly
            worse, and by less than the margin or not shown to be.
    """

    invalid: str
    n: int
    quality: Quality
    not_worse: bool
    baseline_stable: bool
    fix: Fix
    collapse: bool
    budget: Budget
    benefit: Benefit
    divergence: Divergence
    elsewhere: Elsewhere


def gather(analysis: Analysis, contrast: Contrast) -> Evidence:
    """The evidence on one contrast of an endpoint that is judged."""
    stability = analysis.stability(contrast.arm)
    return Evidence(
        invalid=_why_invalid(analysis, contrast),
        n=stability.any_event.n if stability else 0,
        quality=_quality(analysis, contrast),
        not_worse=contrast.not_worse(analysis.study.inference.alpha),
        baseline_stable=stability is None
        or stability.any_event.baseline_rate <= analysis.study.stability.unstable_above,
        fix=_fix(stability, analysis.study.inference.alpha),
        collapse=_collapses(stability),
        budget=_budget(cost_of(analysis, contrast.arm)),
        benefit=benefit_state(analysis, contrast.arm),
        divergence=_divergence(stability),
        elsewhere=_elsewhere(analysis, contrast),
    )


def _divergence(stability: Stabilities | None) -> Divergence:
    if stability is None:
        return "equal"
    more = stability.diverged.only_treatment - stability.diverged.only_baseline
    return "more" if more > 0 else "fewer" if more < 0 else "equal"


def worse_elsewhere(analysis: Analysis, contrast: Contrast) -> list[Contrast]:
    """The other primary endpoints of this contrast on which the arm is significantly worse."""
    others = [
        analysis.contrast(contrast.arm, endpoint.metric)
        for endpoint in analysis.study.judged
        if endpoint.metric != contrast.metric
    ]
    return [other for other in others if _quality(analysis, other) == "Q-"]


def _elsewhere(analysis: Analysis, contrast: Contrast) -> Elsewhere:
    worse = worse_elsewhere(analysis, contrast)
    if not worse:
        return "not worse"
    within = all(other.not_worse(analysis.study.inference.alpha) for other in worse)
    return "within margin" if within else "worse"


def _collapses(stability: Stabilities | None) -> bool:
    if stability is None:
        return False
    diverged = stability.diverged
    return diverged.only_treatment == diverged.n


def _budget(cost: Costs) -> Budget:
    """The worse of the two; one that is not known is not shown to be within its budget."""
    states = [of.state if of else "not shown" for of in (cost.calibration, cost.throughput)]
    if "over" in states:
        return "over"
    return "within" if states == ["within", "within"] else "not shown"


def cost_of(analysis: Analysis, arm: str) -> Costs:
    """What calibration and throughput `arm` costs; every contrast's arm has an entry."""
    return next(cost for cost in analysis.costs if cost.arm == arm)


def _why_invalid(analysis: Analysis, contrast: Contrast) -> str:
    missing = analysis.missing_of(contrast)
    if missing:
        if len(missing) == 1:
            return f"a trial is missing: {missing[0]}"
        return f"{len(missing)} trials are missing, such as {missing[0]}"
    if why := analysis.unregistered or analysis.untested:
        return why
    broken = analysis.broken(contrast.arm)
    if broken:
        return f"{broken[0].name}: {broken[0].detail}"
    return ""


def _quality(analysis: Analysis, contrast: Contrast) -> Quality:
    says, alpha = contrast.decided, analysis.study.inference.alpha
    if says is None:
        return "Q?"
    if contrast.equivalent(alpha):
        return "Q0"
    if not contrast.significant(alpha):  # also where divergence has left too few pairs to test
        return "Q?"
    higher_is_better = contrast.declared.better == "higher"
    return "Q+" if (says.mean > 0) == higher_is_better else "Q-"


def _fix(stability: Stabilities | None, alpha: float) -> Fix:
    if stability is None or stability.holm_p is None or stability.holm_p > alpha:
        return "unshown"
    cured = stability.any_event.treatment_rate < stability.any_event.baseline_rate
    return "fix" if cured else "harm"


def benefit_of(analysis: Analysis, arm: str) -> Contrast | None:
    """The contrast of the endpoint that is the registered benefit; None where there is none."""
    metric = analysis.study.decision.benefit
    return analysis.contrast(arm, metric) if metric is not None else None


def benefit_state(analysis: Analysis, arm: str) -> Benefit:
    """Whether the benefit exceeds what is registered, by one-sided tests, Holm over contrasts."""
    alpha, arms = analysis.study.inference.alpha, [arm for arm, _ in analysis.study.contrasts]
    contrasts = [benefit_of(analysis, one) for one in arms]
    mine = contrasts[arms.index(arm)]
    if mine is None or mine.decided is None or mine.decided.descriptive_only:
        return "not shown"
    least = analysis.study.decision.least_benefit
    more, less = (
        holm([_benefit_p(c, least, greater=greater) if c else 1.0 for c in contrasts])
        for greater in (True, False)
    )
    place = arms.index(arm)
    return "shown" if more[place] <= alpha else "absent" if less[place] <= alpha else "not shown"


def _benefit_p(contrast: Contrast, least: float, *, greater: bool) -> float:
    """p against "the gain is at most `least`" (greater), or "at least `least`"."""
    if contrast.test is None or (any(contrast.censored) and not greater):
        return 1.0
    gains = contrast.declared.better == "higher"
    null = contrast.declared.change(least if gains else -least)
    return contrast.test.one_sided_p(null, greater=greater == gains)
