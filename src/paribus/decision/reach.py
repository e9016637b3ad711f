"""The seed pairs that it takes: rows out of a design's reach, and what would resolve a verdict."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection
from dataclasses import dataclass

from paribus import numbers
from paribus.analysis import Analysis, Contrast, plan_of
from paribus.analysis.choice import FINER_GRID, MORE_TUNING_SEEDS
from paribus.decision.evidence import State, events_shown, quality_shown
from paribus.decision.rule import Row, Rule
from paribus.decision.rules import find_rule
from paribus.decision.word import Word
from paribus.errors import ParibusError
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    OneLook,
    UnpairedRates,
    combined_mcnemar,
    mcnemar,
    stage_weights,
)
from paribus.statistics.distributions import fisher_exact
from paribus.study import Study

MOST_PAIRS = 1000  # stop searching beyond this
MORE_RUNS = "more seeds"


@dataclass(frozen=True)
class OutOfReach:
    """Rows that cannot fire whatever the records say, and one reason for all of them."""

    rows: tuple[str, ...]
    why: str


def out_of_reach(study: Study) -> list[OutOfReach]:
    """Return the rows that `study` cannot reach with its number of seeds and of contrasts."""
    n, contrasts, alpha = len(study.seeds), len(study.contrasts), study.inference.alpha
    if not contrasts:
        return []
    rule = find_rule(study)
    if n < DESCRIPTIVE_BELOW:
        rows = tuple(row.id for row in rule.rows)
        why = f"fewer than {DESCRIPTIVE_BELOW} seeds are described, not tested"
        return [OutOfReach(rows, f"{numbers.plural(n, 'seed')}: {why}")]
    plan, least_p = plan_of(study), _least_p(study, n)
    if study.stages:  # which no further seeds follow
        least_p = combined_mcnemar(
            [(0, stage) for stage in study.stages],
            stage_weights(study.inference.first_stage_weight),
        )
    if plan is not None:
        least_p = OneLook(plan, len(plan.pairs) - 1).of_other(least_p)
    if least_p * contrasts <= alpha:
        return []
    needed = next(k for k in range(n, MOST_PAIRS) if _least_p(study, k) * contrasts <= alpha)
    way_out = "" if study.stages else f"; {max(needed, n + 1)} seeds can"
    combined = " of both stages" if study.stages else ""
    family = "" if contrasts == 1 else f", {least_p * contrasts:.3g} over {contrasts} contrasts"
    looked = " over all looks" if plan else ""
    exact = "McNemar's" if study.is_paired else "Fisher's"
    why = (
        f"{n} seeds cannot show that an arm cures or causes instability: {exact} exact p"
        f"{combined} is at least {least_p:.3g}{looked}{family}{way_out}"
    )
    without = {row.id for state, row in rule.table.items() if state.fix == "unshown"}
    rows = tuple(row.id for row in rule.rows if row.id not in without)
    return [OutOfReach(rows, why)] if rows else []


def _least_p(study: Study, n: int) -> float:
    """Return the least p of n runs of each arm, of which all and none had an event."""
    return mcnemar(0, n) if study.is_paired else fisher_exact(0, n, n, n)


def unreachable(study: Study) -> list[str]:
    """Return what a study names that cannot occur, a line for each reason: hypotheses that no
    verdict can support, or that name what would contradict them and cannot, and a rule that can
    adopt nothing."""
    rule = find_rule(study)
    dead = _dead_rows(study, rule)
    subjects: dict[str, dict[str, list[str]]] = {}  # who, by why and by what cannot be

    def why(outcomes: Collection[str]) -> str:
        rows = [row for row in rule.rows if not {row.outcome, f"row {row.id}"}.isdisjoint(outcomes)]
        if not outcomes or any(row.id not in dead for row in rows):
            return ""
        reasons = dict.fromkeys(dead[row.id] for row in rows)
        return "; ".join(reasons) or f"the rule {rule.name} has no such outcome"

    def say(reason: str, claim: str, subject: str) -> None:
        subjects.setdefault(reason, {}).setdefault(claim, []).append(subject)

    for hypothesis in study.hypotheses:
        yes, no = why(hypothesis.supported_by), why(hypothesis.contradicted_by)
        if yes and yes == no:
            say(yes, "can be neither supported nor contradicted", hypothesis.name)
            continue
        if yes:
            say(yes, "cannot be supported", hypothesis.name)
        if no:
            say(no, "cannot be contradicted", hypothesis.name)
    adopts = any(row.outcome == "ADOPT" for row in rule.rows)
    if adopts and (reason := why(["ADOPT"])):
        say(reason, "can adopt nothing", f"the rule {rule.name}")
    lines = {
        reason: "; ".join(f"{', '.join(subject)} {claim}" for claim, subject in claims.items())
        for reason, claims in subjects.items()
    }
    return [f"{claim}: {reason}" for reason, claim in lines.items()]


def require_comparison(study: Study) -> None:
    """Raise ParibusError if a study that is about to be run has one arm and nothing to compare."""
    if not study.contrasts and study.decision.unreachable == "refuse":
        raise ParibusError(
            f"the study has one arm, '{next(iter(study.arms))}', and nothing to compare it with; "
            'add an arm, [arms.NAME], or train it alone with decision.unreachable = "accept"'
        )


def require_reachable(study: Study) -> None:
    """Raise ParibusError where a study that is about to be registered names what cannot occur, and
    does not say that it accepts that. One of fewer than five seeds describes, whatever its rule: it
    is asked of its hypotheses alone."""
    describes = len(study.seeds) < DESCRIPTIVE_BELOW and not study.hypotheses
    if describes or study.decision.unreachable == "accept":
        return
    if lines := unreachable(study):
        raise ParibusError(
            f"{'; '.join(lines)}; change the design, or register it all the same with "
            'decision.unreachable = "accept"'
        )


def _dead_rows(study: Study, rule: Rule) -> dict[str, str]:
    """Return the rows that cannot fire, by their ids, each with the first reason that leaves it no
    state: the number of seeds, or what the study does not register."""
    by_seeds = out_of_reach(study)
    dead = {row: unreached.why for unreached in by_seeds for row in unreached.rows}
    decision = study.decision
    limited = (decision.calibration_budget, decision.throughput_budget) != (None, None)
    reasons: list[tuple[bool, str, Callable[[State], bool]]] = [
        (bool(by_seeds), "", lambda s: s.fix == "unshown"),
        (not limited, "no cost is limited", lambda s: s.budget == "within"),
        (decision.benefit is None, "no benefit is named", lambda s: s.benefit == "not shown"),
        (
            len(study.judged) == 1,
            "no other endpoint is primary",
            lambda s: s.elsewhere == "not worse",
        ),
    ]
    left = rule.table
    for applies, why, keeps in reasons:
        if applies:
            left = {state: row for state, row in left.items() if keeps(state)}
            alive = {row.id for row in left.values()}
            dead |= {row.id: why for row in rule.rows if row.id not in alive | dead.keys()}
    return dead


@dataclass(frozen=True)
class Needed:
    """What it takes to resolve a verdict.

    Attributes:
        pairs: seed pairs, or runs of each arm; None if more would not help, or it is unknown.
        why_not: the code of why there is no number (`report.cautions` has the sentences); empty if
            there is one, or nothing is left to resolve.
        instead: what reduces the largest part of the error, such as `more questions`, if that is
            not more seeds.
        shows_cure: whether so many pairs would show a cure of instability, not resolve quality.
        share: the part of the squared error that `instead` reduces.
    """

    pairs: int | None = None
    why_not: str = ""
    instead: str = ""
    shows_cure: bool = False
    share: float | None = None


def needed(analysis: Analysis, contrast: Contrast, row: Row, word: Word) -> Needed:
    """Return the seed pairs, or runs of each arm, that would resolve a contrast which is UNRESOLVED
    or on which the rule decides nothing.

    They would detect or exclude a difference of the margin's size with the registered power (or
    exclude a loss of that size, where an arm has to be no worse), by the test that decided, at the
    level of Holm's first step, and with the spread seen here; without a margin, detect the smallest
    effect worth detecting. Where trials diverged, so many more are counted in as were lost of the
    pairs here.
    """
    if row.outcome != "INCONCLUSIVE" and word != "UNRESOLVED":
        return Needed()
    lost = next(
        (arm for arm in (contrast.reference, contrast.arm) if analysis.all_diverged(arm)), ""
    )
    events = events_shown(analysis, contrast)
    if row.open == "cure" and not lost:
        return _cure_needed(analysis, contrast.arm)
    if lost and events == "unshown" and (to_show := _events_needed(analysis, contrast.arm)):
        return to_show
    if lost:
        return Needed(None, "all_diverged", "trials that do not diverge")
    if word == "UNRESOLVED" and quality_shown(contrast, analysis.study.inference.alpha) != "Q?":
        would_harm = events == "unshown" and _causes_events(analysis, contrast.arm)
        return Needed(None, "more_harm" if would_harm else "survivors_disagree")
    if events != "unshown" and word == "UNRESOLVED":
        return Needed(None, "events_disagree")
    if row.open == "harm" or (word == "UNRESOLVED" and not contrast.tested):
        return Needed(None, "more_harm") if _causes_events(analysis, contrast.arm) else Needed()
    if word != "UNRESOLVED" and row.open not in ("quality", "not worse"):
        return Needed()
    if row.open != "not worse" and contrast.equivalent(analysis.study.inference.alpha):
        return Needed()
    if no_plan := _no_plan(contrast):
        return no_plan
    study, power = analysis.study, analysis.study.inference.power
    alpha = study.inference.alpha / study.family
    test, says, size = contrast.test, contrast.decided, contrast.margin or contrast.smallest_effect
    assert test is not None and says is not None and size is not None
    detects = excludes = None
    if row.open == "not worse":
        detects = excludes = test.pairs_needed(size, power=power, alpha=2 * alpha)
    else:
        detects = excludes = test.pairs_needed(size, power=power, alpha=alpha)
    if contrast.margin and row.open != "not worse":
        # Two one-sided tests of a true difference of 0 both reject with the power asked for where
        # each does with probability (1 + power) / 2.
        excludes = test.pairs_needed(size, power=(1 + power) / 2, alpha=2 * alpha)
    parts = error_parts(contrast)
    remedies = {remedy: part for remedy, part in parts.items() if remedy != MORE_RUNS and part > 0}
    remedy = max(remedies, key=remedies.__getitem__, default="")
    pairs = None
    if detects is not None and excludes is not None:
        stability = analysis.stability(contrast.arm)
        trained = stability.any_event.n if stability else says.n
        pairs = max(math.ceil(max(detects, excludes) * trained / says.n), trained + 1)
    of_events = _pairs_to_show_events(analysis, contrast.arm)
    if word == "UNRESOLVED" and of_events is not None and of_events <= (pairs or MOST_PAIRS):
        return _events_needed(analysis, contrast.arm) or Needed(None, "more_harm")
    if pairs is not None and pairs <= MOST_PAIRS:
        is_largest = remedy and remedies[remedy] > parts[MORE_RUNS]
        return Needed(pairs, instead=remedy if is_largest else "")
    if not remedy:
        return Needed(None, "not_with_runs")
    share = remedies[remedy] / sum(parts.values())
    return Needed(None, "other_error", remedy, share=share)


def error_parts(contrast: Contrast) -> dict[str, float]:
    """Return the parts of a contrast's squared error, keyed by what would reduce each.

    Lack of fit of tuning curves is among them, also if the registered error leaves it out.
    """
    if contrast.items:
        crossed = contrast.items.crossed
        items = crossed.item_error**2
        parts = {
            MORE_RUNS: max(crossed.standard_error**2 - items, 0.0),
            f"more {contrast.items_about.rpartition(' ')[2]}": items,
        }
    elif contrast.paired:
        parts = {MORE_RUNS: contrast.paired.sd**2 / contrast.paired.n}
    else:
        parts = {MORE_RUNS: 1.0}  # nothing else is in the error of runs that are no pairs
    choice = contrast.choice
    if choice is not None and choice.included:
        fit = choice.lack_of_fit**2
        of_seeds = choice.error**2 - (fit if choice.fit_included else 0.0)
        parts |= {MORE_TUNING_SEEDS: max(of_seeds, 0.0), FINER_GRID: fit}
    return parts


def _no_plan(contrast: Contrast) -> Needed | None:
    """Return why the pairs here say nothing of how many would resolve it; None where they do."""
    says = contrast.decided
    if contrast.test is None or says is None:
        return Needed(None, "not_compared")
    if says.descriptive_only:
        return Needed(None, "few_pairs", MORE_RUNS)
    if any(contrast.censored):
        return Needed(None, "censored", "a larger budget")
    if not (contrast.margin or contrast.smallest_effect):
        return Needed(None, "no_margin", "a margin")
    if not (math.isfinite(says.interval.low) and math.isfinite(says.interval.high)):
        return Needed(None, "no_spread", MORE_RUNS)
    return Needed(None, "constant") if says.constant else None


def _causes_events(analysis: Analysis, arm: str) -> bool:
    """Return whether the arm's trials diverged or spiked more often than its reference's."""
    stability = analysis.stability(arm)
    if stability is None:
        return False
    return stability.any_event.treatment_rate > stability.any_event.baseline_rate


def _cure_needed(analysis: Analysis, arm: str) -> Needed:
    pairs = None if _causes_events(analysis, arm) else _pairs_to_show_events(analysis, arm)
    why = "" if pairs else "no_cure"
    return Needed(pairs, why, shows_cure=bool(pairs))


def _events_needed(analysis: Analysis, arm: str) -> Needed | None:
    """Return how many pairs would show a cure, or that more would show harm; None for neither."""
    pairs = _pairs_to_show_events(analysis, arm)
    if pairs is None:
        return None
    if _causes_events(analysis, arm):
        return Needed(None, "more_harm")
    return Needed(pairs, shows_cure=True)


def _pairs_to_show_events(analysis: Analysis, arm: str) -> int | None:
    """Return the pairs at which the rates of events seen here would differ significantly.

    None if no number does up to MOST_PAIRS.
    """
    stability = analysis.stability(arm)
    if stability is None:
        return None
    rates = stability.any_event
    if rates.treatment_rate == rates.baseline_rate:
        return None
    alpha = analysis.study.inference.alpha / len(analysis.study.contrasts)
    for n in range(rates.n + 1, MOST_PAIRS + 1):
        if isinstance(rates, UnpairedRates):
            events = round(n * rates.baseline_rate), round(n * rates.treatment_rate)
            if fisher_exact(*events, n, n) <= alpha:
                return n
            continue
        cured, caused = (
            round(n * count / rates.n) for count in (rates.only_baseline, rates.only_treatment)
        )
        if mcnemar(cured, caused) <= alpha:
            return n
    return None
