"""Detection of outcomes that a study cannot reach, and sample sizes for unresolved verdicts."""

from __future__ import annotations

import math
from typing import NamedTuple

from paribus.analysis import Analysis, Contrast, plan_of
from paribus.decision.evidence import Value, events_shown, quality_shown
from paribus.decision.rule import Row, Rule
from paribus.decision.rules import find_rule
from paribus.decision.schema import Needed
from paribus.decision.word import Word
from paribus.declared import provided
from paribus.errors import ParibusError
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    EventRates,
    OneLook,
    TTest,
    combined_mcnemar,
    fisher_exact,
    mcnemar,
    stage_weights,
)
from paribus.study import Study

MOST_PAIRS = 1000  # stop searching beyond this
MORE_RUNS = "seeds"
ACCEPT = 'decision.unreachable = "accept"'


def least_events_p(study: Study) -> float | None:
    """Return the smallest attainable p-value for instability, or None if it is significant.

    The p-value is attained if all runs of one arm and no runs of the other arm have an event. It is
    Bonferroni-adjusted over contrasts.
    """
    n, contrasts, plan = len(study.seeds), len(study.contrasts), plan_of(study)
    p = mcnemar(0, n) if study.is_paired else fisher_exact(0, n, n, n)
    if study.stages:  # which no further seeds follow
        weights = stage_weights(study.inference.first_stage_weight)
        p = combined_mcnemar([(0, stage) for stage in study.stages], weights)
    if plan is not None:
        p = OneLook(plan, len(plan.pairs) - 1).other_p(p)
    return p * contrasts if p * contrasts > study.inference.alpha else None


def dead_rows(study: Study, rule: Rule) -> dict[str, str]:
    """Return {row ID: reason code} for the rows of a rule that can never apply in a study.

    Reasons are too few seeds, or a missing limit, benefit or endpoint.
    """
    ids, decision = [row.id for row in rule.rows], study.decision
    if not study.contrasts:
        return {}
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        return dict.fromkeys(ids, "few_seeds")
    is_limited = (decision.calibration_budget, decision.throughput_budget) != (None, None)
    reasons = (
        ("no_events", "fix", "unshown", least_events_p(study) is None),
        ("no_limit", "budget", "within", is_limited),
        ("no_benefit", "benefit", "not shown", bool(decision.benefit)),
        ("no_other_endpoint", "elsewhere", "not worse", bool(study.judged[1:])),
    )
    dead: dict[str, str] = {}
    known: dict[str, Value] = {}
    for code, part, value, can_differ in reasons:
        if not can_differ:
            known[part] = value
            alive = rule.reachable(known)
            dead |= {row: code for row in ids if row not in alive | dead.keys()}
    return dead


class Unreachable(NamedTuple):
    """An outcome that cannot occur in a study.

    Attributes:
        name: name of the hypothesis or rule.
        claim: the impossible outcome: "supported" or "contradicted" for a hypothesis, or "adopted"
            for a rule.
        reasons: reason codes from `dead_rows`; () if the rule does not define the outcome.
    """

    name: str
    claim: str
    reasons: tuple[str, ...]


def unreachable(study: Study) -> list[Unreachable]:
    """Return all outcomes of hypotheses and of the decision rule that cannot occur."""
    rule = find_rule(study)
    dead, out_of_reach = dead_rows(study, rule), []
    claims = [(h.name, "supported", h.supported_by) for h in study.hypotheses]
    claims += [(h.name, "contradicted", h.contradicted_by) for h in study.hypotheses]
    if any(row.outcome == "ADOPT" for row in rule.rows):
        claims.append((rule.name, "adopted", ("ADOPT",)))
    for name, claim, outcomes in claims:
        rows = [row for row in rule.rows if not {row.outcome, f"row {row.id}"}.isdisjoint(outcomes)]
        if outcomes and all(row.id in dead for row in rows):
            reasons = tuple(dict.fromkeys(dead[row.id] for row in rows))
            out_of_reach.append(Unreachable(name, claim, reasons))
    return out_of_reach


def require_comparison(study: Study) -> None:
    """Raise ParibusError if the study has a single arm, unless `decision.unreachable` allows it."""
    if not study.contrasts and study.decision.unreachable == "refuse":
        raise ParibusError(
            f"the study has only one arm, '{next(iter(study.arms))}', so nothing is compared; add "
            f"another one as [arms.NAME], or set {ACCEPT} to train a single arm"
        )


def require_reachable(study: Study) -> None:
    """Raise ParibusError if an outcome cannot occur, unless `decision.unreachable` allows it.

    A study with fewer than five seeds and without hypotheses is descriptive and not checked.
    """
    describes = len(study.seeds) < DESCRIPTIVE_BELOW and not study.hypotheses
    if describes or study.decision.unreachable == "accept":
        return
    if unreachable(study):
        lines = provided("function", "unreachable_text")(study)
        raise ParibusError(
            f"{'; '.join(lines)}; change the study, or set {ACCEPT} to register it anyway"
        )


def needed(analysis: Analysis, contrast: Contrast, row: Row, word: Word) -> Needed:
    """Return the number of seed pairs, or runs per arm, that would resolve a contrast.

    Nothing is needed unless the verdict label is UNRESOLVED or the rule is inconclusive. The number
    is the smaller of those for quality and for event rates.
    """
    is_unresolved, alpha = word == "UNRESOLVED", analysis.study.inference.alpha
    if row.outcome != "INCONCLUSIVE" and not is_unresolved:
        return Needed()
    stability, events = analysis.stability(contrast.arm), events_shown(analysis, contrast)
    rates = stability.any_event if stability else None
    harms = rates is not None and rates.treatment_rate > rates.baseline_rate
    level = alpha / len(analysis.study.contrasts)
    to_show = _pairs_to_show(rates, level, MOST_PAIRS) if rates and harms else None
    harm = Needed(to_show, "more_harm") if harms else Needed()

    def by_events(limit: int = MOST_PAIRS) -> Needed | None:
        """Return the pairs needed for significant event rates, or None if more than `limit`."""
        pairs = _pairs_to_show(rates, level, limit) if rates and events == "unshown" else None
        return None if pairs is None else harm if harms else Needed(pairs)

    if any(analysis.all_diverged(arm) for arm in (contrast.reference, contrast.arm)):
        return by_events() or Needed(None, "all_diverged", "survivors")
    if row.open == "cure":
        return (not harms and by_events()) or Needed(why_not="no_cure")
    if is_unresolved and quality_shown(contrast, alpha) != "Q?":
        is_harm = harms and events == "unshown"
        return harm if is_harm else Needed(why_not="survivors_disagree")
    if is_unresolved and events != "unshown":
        return Needed(why_not="events_disagree")
    if row.open == "harm" or (is_unresolved and not contrast.tested):
        return harm
    asks_effect = row.open == "quality" and not contrast.equivalent(alpha)
    if not (is_unresolved or asks_effect or row.open == "not worse"):
        return Needed()
    by_quality = _by_quality(analysis, contrast, row, rates.n if rates else 0)
    if is_unresolved and by_quality.why_not in ("", "not_with_runs", "other_error"):
        return by_events(by_quality.pairs or MOST_PAIRS) or by_quality
    return by_quality


def _by_quality(analysis: Analysis, contrast: Contrast, row: Row, trained: int) -> Needed:
    """Return the number of pairs needed to detect or exclude a difference equal to the margin.

    For non-inferiority, only a loss equal to the margin must be excluded. Without a margin, the
    smallest effect worth detecting must be detected. The calculation uses the registered power,
    level alpha / family size, and the observed SD and divergence rate.

    Args:
        analysis: analysis of the study.
        contrast: the unresolved contrast.
        row: row of the rule that applies.
        trained: number of trained pairs, including diverged ones.
    """
    says, size = contrast.decided, contrast.margin or contrast.smallest_effect
    if says is None:
        return Needed(why_not="not_compared")
    if says.descriptive_only:
        return Needed(None, "few_pairs", MORE_RUNS)
    if any(contrast.censored):
        return Needed(None, "censored", "budget")
    if not size:
        return Needed(None, "no_margin", "margin")
    if not (math.isfinite(says.interval.low) and math.isfinite(says.interval.high)):
        return Needed(None, "no_spread", MORE_RUNS)
    if says.constant:
        return Needed(why_not="constant")
    power = analysis.study.inference.power
    alpha = analysis.study.inference.alpha / analysis.study.family
    # The size is detected, or excluded by one one-sided test, or by two: these both reject a true
    # difference of 0 with the registered power where each does with probability (1 + power) / 2.
    goals = [(power, alpha)]
    if row.open == "not worse":
        goals = [(power, 2 * alpha)]
    elif contrast.margin:
        goals.append(((1 + power) / 2, 2 * alpha))
    trained = trained or says.n
    largest = max(says.basis.pairs_needed(size, power=p, alpha=a) or math.inf for p, a in goals)
    pairs = max(largest * trained / says.n, trained + 1)
    parts = _error_parts(analysis, contrast, says.basis)
    of_runs = parts.pop(MORE_RUNS)
    remedy = max((name for name in parts if parts[name] > 0), key=parts.__getitem__, default="")
    if pairs <= MOST_PAIRS:
        is_largest = remedy and parts[remedy] > of_runs
        return Needed(math.ceil(pairs), instead=remedy if is_largest else "")
    return Needed(None, "other_error", remedy) if remedy else Needed(why_not="not_with_runs")


def _error_parts(analysis: Analysis, contrast: Contrast, test: TTest) -> dict[str, float]:
    """Return {remedy: contribution to a contrast's squared error that the remedy would reduce}.

    The contribution from lack of fit is included even if the registered error excludes it.
    """
    if contrast.items_about:
        parts = {MORE_RUNS: test.error**2, "items": test.item_error**2}
    elif contrast.by_run and contrast.by_run.pairs:
        parts = {MORE_RUNS: contrast.by_run.sd**2 / contrast.by_run.n}
    else:
        parts = {MORE_RUNS: 1.0}  # nothing else is in the error of runs that are no pairs
    choice = contrast.choice
    if choice is not None and choice.included:
        fit, registered = choice.lack_of_fit**2, analysis.study.inference.choice
        of_seeds = choice.error**2 - (fit if registered == "with_lack_of_fit" else 0.0)
        parts |= {
            "tuning_seeds": max(of_seeds, 0.0),
            "grid": fit,
        }
    return parts


def _pairs_to_show(rates: EventRates, alpha: float, limit: int) -> int | None:
    """Return the number of pairs or runs per arm for significance at the observed event rates.

    Returns None if the rates are equal, or if more than `limit` pairs or runs are needed.
    """
    if rates.treatment_rate == rates.baseline_rate:
        return None
    both = rates.both or 0
    for n in range(rates.n + 1, limit + 1):
        first = round(n * (rates.baseline_events - both) / rates.n_baseline)
        second = round(n * (rates.treatment_events - both) / rates.n_treatment)
        is_paired = rates.both is not None
        p = mcnemar(first, second) if is_paired else fisher_exact(first, second, n, n)
        if p <= alpha:
            return n
    return None
