"""Statistical tests of differences between arms.

A difference is a weighted sum over arms: a contrast is an arm minus its reference, and an
interaction is a difference between mean effects. Pairs that cannot be compared are reported as
excluded. Contrasts with a broken control are not analysed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from paribus.analysis.items import Items, Scores, share_step
from paribus.analysis.schema import Analysis, Check, Contrast, Interacting, LeftOut, Tested
from paribus.analysis.table import Sampling, Table
from paribus.analysis.tuning import Tuned, choice_of
from paribus.errors import ParibusError
from paribus.metric import Metric
from paribus.numbers import plural
from paribus.results.curves import spent_to, target_axis
from paribus.statistics import (
    StatisticsError,
    decided,
    holm,
    macro_contrast,
    paired_contrast,
    unpaired_contrast,
)
from paribus.study import Endpoint, Interaction, Study
from paribus.study.trainer import RUNS, STACKED

LEAST_EQUAL = 3  # runs of an arm; two may be equal by chance

T = TypeVar("T", bound=Tested)
BySeed = Mapping[int, float]


def holm_of(p_values: Sequence[float | None], size: int = 0) -> list[float]:
    """Return Holm-adjusted p-values for a family of at least `size` hypotheses.

    A p-value of None, for a test that could not be run, counts as 1.
    """
    family = [1.0 if p is None else p for p in p_values] + [1.0] * (size - len(p_values))
    return holm(family).tolist()[: len(p_values)] if family else []


def _by_name(rows: Sequence[Mapping[str, float | None]], size: int) -> list[dict[str, float]]:
    """Return Holm-adjusted p-values for each row, with one family per test name."""
    adjusted_p = [dict[str, float]() for _ in rows]
    for name in dict.fromkeys(name for row in rows for name in row):
        places = [place for place, row in enumerate(rows) if name in row]
        for place, p in zip(places, holm_of([rows[k][name] for k in places], size), strict=True):
            adjusted_p[place][name] = p
    return adjusted_p


def with_holm(family: Sequence[T], size: int = 0) -> list[T]:
    """Add Holm-adjusted p-values to differences, for a family of at least `size` hypotheses.

    Untested differences count as p = 1, so that a failed test never makes the others less strict.
    Differences with fewer than five pairs also count, but get no adjusted p-value because they are
    descriptive only.
    """
    return [
        d if d.decided is None or d.decided.descriptive_only else replace(d, **p)
        for d, p in zip(family, _by_name([d.p_values for d in family], size), strict=True)
    ]


def contrasts_of(
    table: Table, endpoints: Iterable[Endpoint], tuned: Tuned | None
) -> tuple[list[Contrast], list[LeftOut]]:
    """Test all contrasts on `endpoints`, and return them with the list of excluded seeds.

    Args:
        table: scores of the study.
        endpoints: endpoints to test.
        tuned: tuning results of the study, as returned by `tuned_before`.
    """
    study, contrasts, left_out = table.results.study, list[Contrast](), list[LeftOut]()
    secondary = [endpoint.metric for endpoint in study.endpoints if not endpoint.primary]
    counted = sum(
        not _why_uncounted(table, *pair, metric) for metric in secondary for pair in study.contrasts
    )
    for endpoint in endpoints:
        family = study.family if endpoint.primary else counted
        for arm, reference in study.contrasts:
            try:
                contrast, seeds = _contrast(table, arm, reference, endpoint, tuned, family)
            except StatisticsError as error:  # scores of a magnitude that nothing is known of
                raise ParibusError(f"cannot compare {arm} on {endpoint.metric}: {error}") from None
            contrasts.append(contrast)
            left_out += seeds
    return adjusted(contrasts, study.inference.alpha), left_out


def adjusted(contrasts: Sequence[Contrast], alpha: float) -> list[Contrast]:
    """Add Holm-adjusted p-values and sensitivity analyses to contrasts."""
    checked = {}
    for primary in (True, False):
        family = [c for c in contrasts if c.primary == primary and c.counted]
        counted = with_holm([c.counting_diverged or c for c in family])
        for c, again in zip(_with_checks(with_holm(family), alpha), counted, strict=True):
            counting = again if c.counting_diverged else None
            checked[c.arm, c.metric] = replace(c, counting_diverged=counting)
    return [checked.get((c.arm, c.metric), c) for c in contrasts]


def _with_checks(family: list[Contrast], alpha: float) -> list[Contrast]:
    """Add sensitivity analyses to a family of contrasts, with Holm-adjusted p-values.

    A test that is unreliable, or cannot reject, with the available number of pairs is reported, but
    never counts as a disagreement.
    """
    sensitivity = [_other_p(c) for c in family]
    raw = [{name: p for name, (p, _) in own.items()} for own in sensitivity]
    checked = []
    for c, own, holm_p in zip(family, sensitivity, _by_name(raw, len(family)), strict=True):
        checks = []
        for name, (p, floor) in own.items() if c.tested else ():
            is_able = floor * len(family) <= alpha
            disagrees = is_able and (holm_p[name] <= alpha) != c.significant(alpha)
            checks.append(Check(name, p, holm_p[name], disagrees))
        checked.append(replace(c, checks=tuple(checks)))
    return checked


def _other_p(c: Contrast) -> dict[str, tuple[float, float]]:
    """Return {test: (p, smallest possible p)} for all tests except the primary one."""
    if c.by_run is None or not c.items_about:
        return c.by_run.others if c.by_run else {}
    return {"paired t on these items alone": (c.by_run.decided.p_value, 0.0)}


def compare_arms(
    difference: T,
    table: Table,
    weights: Mapping[str, float],
    values: Mapping[str, BySeed],
    *,
    metric: Metric,
    sampled: Sampling,
    family: int = 1,
    scores: Mapping[str, Scores] | str = "",
) -> T:
    """Run the registered test of a difference, and return `difference` with the result.

    Args:
        difference: a difference without a result.
        table: scores of the study.
        weights: weight of each arm; negative for references.
        values: {arm: {seed: value}} in the metric's unit; for unpaired runs, of all runs.
        metric: the compared metric.
        sampled: seeds included in the analysis.
        family: number of hypotheses in the family.
        scores: {arm: item scores by task, [seeds, items]} if results generalize to new items, and
            any string otherwise.
    """
    study, choice = table.results.study, difference.choice
    compared = {
        arm: [metric.compared(own[s]) for s in (difference.seeds if study.is_paired else own)]
        for arm, own in values.items()
    }
    keys = {"alpha", "power"} | ({"seed", "resamples"} if study.is_paired else set())
    asked: dict[str, Any] = study.inference.model_dump(include=keys)
    resolution = resolution_of(table, metric, values)
    asked |= {"margin": difference.margin, "family": family, "resolution": resolution}
    if choice and choice.included:
        asked["choice"] = choice.error
    if not study.is_paired:
        by_run = unpaired_contrast(*_sides(weights, compared), **asked)
        return replace(difference, by_run=by_run, decided=by_run.decided)
    asked["design"] = sampled.design(difference.seeds)
    by_run = paired_contrast(*_sides(weights, compared), **asked)
    decided = by_run.decided
    if not isinstance(scores, str):
        tasks = zip(*scores.values(), strict=True)
        sides = [_sides(weights, dict(zip(scores, task, strict=True))) for task in tasks]
        baseline, treatment = zip(*sides, strict=True)
        decided = macro_contrast(baseline, treatment, crossed=study.inference.crossed, **asked)
    return replace(difference, by_run=by_run, decided=decided)


def why_too_few(
    study: Study, sampled: Sampling, values: Mapping[str, BySeed], seeds: Sequence[int]
) -> str:
    """Return why there are too few pairs or runs for a test, or "" if there are enough."""
    if study.is_paired:
        return sampled.why_not(seeds)
    for arm, own in values.items():
        if len(own) < 2:
            runs = plural(len(own), "comparable run")
            return f"{arm} has {runs}; inference needs two per arm"
    return ""


def _sides(weights: Mapping[str, float], scores: Mapping[str, Any]) -> list[np.ndarray]:
    """Return weighted sums of scores over reference arms and over treatment arms.

    Reference arms have negative weights, whose absolute values are used. The tested difference is
    the second sum minus the first.
    """
    return [
        np.sum([abs(w) * np.asarray(scores[arm]) for arm, w in weights.items() if w * sign > 0], 0)
        for sign in (-1, 1)
    ]


def resolution_of(table: Table, metric: Metric, values: Mapping[str, BySeed]) -> float | None:
    """Return the measurement resolution of a metric, or None if it is unknown.

    For scores from other programs, the resolution is one unit in the last printed digit.
    """
    step = share_step(table, metric)
    if step is None and table.results.study.trainer == RUNS and metric.scale == "linear":
        printed = [f"{value:.15g}" for own in values.values() for value in own.values()]
        places = [int(Decimal(text).normalize().as_tuple().exponent) for text in printed]
        return 10.0 ** min(0, *places)
    return step


def task_contrasts(table: Table) -> list[Contrast]:
    """Test all contrasts on every task, except contrasts with a broken control.

    A task that cannot be compared counts as p = 1 in the family.
    """
    study = table.results.study
    answered = {task for own in table.results.trial_accuracy.values() for task in own}
    tasks = [name for name, metric in table.metrics.items() if metric.task in answered]
    family = len(study.contrasts) * len(tasks)
    contrasts = [
        _contrast(table, *pair, Endpoint(metric=task), None, family)[0]
        for pair in study.contrasts
        if not table.broken(pair[0])
        for task in tasks
    ]
    return with_holm([contrast for contrast in contrasts if contrast.seeds], family)


def _contrast(
    table: Table, arm: str, reference: str, endpoint: Endpoint, tuned: Tuned | None, family: int
) -> tuple[Contrast, list[LeftOut]]:
    """Test one contrast on one endpoint, and return it unadjusted with its excluded seeds."""
    study, metric, arms = table.results.study, endpoint.metric, (reference, arm)
    declared, sampled = table.metrics[metric], table.sampling(arm, metric)
    values = {name: table.usable(name, metric, sampled.seeds) for name in (arm, reference)}
    if declared.of_pair:
        values[reference] = dict.fromkeys(values[reference], 1.0)
    both = set.intersection if study.is_paired else set.union
    compared = both(*map(set, values.values()))
    seeds = tuple(seed for seed in sampled.seeds if seed in compared)
    uncounted = _why_uncounted(table, arm, reference, metric)
    if broken := table.broken(arm):
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    else:
        why_not = uncounted or why_too_few(study, sampled, values, seeds)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(why))
        for seed in (() if uncounted and not broken else sampled.seeds)
        if (why := _why_left_out(table, arms, seed, metric))
    ]
    never = [_never(table, name, metric) for name in values]
    if not any(never):  # those that never reached a target stand at the budget
        why_not = why_not or _equal_runs(table, declared, values)
    elif never == [len(own) for own in values.values()]:
        why_not = why_not or "reached by no run; no comparison"
    if (axis := target_axis(metric)) is not None and study.facts.target is not None:
        never = [0, 0]
        for seed in seeds:
            curves = [table.results.trial_curves[name, seed] for name in values]
            for k, name in enumerate(values):
                values[name][seed], is_censored = spent_to(study.facts.target, axis, curves, k)
                never[k] += is_censored
    smallest, margin = endpoint.smallest_effect, endpoint.margin
    contrast = Contrast(
        arm=arm,
        reference=reference,
        metric=metric,
        primary=endpoint.primary,
        seeds=seeds,
        why_not=why_not,
        declared=declared,
        margin=None if margin is None else declared.change(margin),
        smallest_effect=None if smallest is None else declared.change(smallest),
        counted=not uncounted,
        sampling=sampled,
        censored=(never[0], never[1]),
    )
    if why_not:
        return contrast, left_out
    items = Items(table, declared, arms, seeds)
    scores: dict[str, Scores] | str = ""
    if study.inference.claims_new_items(declared):
        scores = items.scores() if study.is_paired else "runs are not paired"
    is_claim = not isinstance(scores, str)
    weights = {reference: -1.0, arm: 1.0}
    asked: dict[str, Any] = {"metric": declared, "sampled": sampled, "family": family}
    text = items.text(sum(task.shape[1] for task in scores[arm])) if is_claim else ""
    contrast = replace(
        contrast,
        choice=choice_of(table, tuned, weights, metric),
        items_about=text,
        items_why_not="" if is_claim else scores,
        target=items.target(text),
    )
    contrast = compare_arms(contrast, table, weights, values, scores=scores, **asked)
    if endpoint.primary and (counted := _counting_diverged(table, contrast, sampled)):
        seeds, values = counted
        by_seed = replace(contrast, seeds=seeds, items_about="")
        again = compare_arms(by_seed, table, weights, values, **asked)
        contrast = replace(contrast, counting_diverged=again)
    return contrast, left_out


def _counting_diverged(
    table: Table, contrast: Contrast, sampled: Sampling
) -> tuple[tuple[int, ...], dict[str, dict[int, float]]] | None:
    """Impute the worst finite score for diverged runs, and return seeds and values.

    Returns None if no run diverged, or if the metric is defined only for pairs of finished runs.

    The worst finite score of both arms is deliberately mild. If the score of an untrained model
    were imputed, a single diverged run would outweigh any gain, and an improvement of 5 SD would
    be detected in only a third of studies.
    """
    metric, arms = contrast.declared, (contrast.reference, contrast.arm)
    is_paired, seeds = table.results.study.is_paired, sampled.seeds
    if metric.of_pair or target_axis(metric.name) is not None:
        return None
    if is_paired:  # a run without a partner is in no pair
        seeds = tuple(s for s in seeds if all((arm, s) in table.events for arm in arms))
    diverged = {
        arm: [s for s in seeds if (arm, s) in table.events and table.events[arm, s].diverged]
        for arm in arms
    }
    if not any(diverged.values()):
        return None
    usable = {arm: table.usable(arm, metric.name, seeds) for arm in arms}
    finite = [value for own in usable.values() for value in own.values()]
    worst = min(finite) if metric.better == "higher" else max(finite)
    values = {arm: dict.fromkeys(diverged[arm], worst) | own for arm, own in usable.items()}
    if not is_paired:
        return contrast.seeds, values
    seeds = tuple(seed for seed in seeds if all(seed in own for own in values.values()))
    return None if sampled.why_not(seeds) else (seeds, values)


def _why_left_out(table: Table, arms: tuple[str, str], seed: int, metric: str) -> list[str]:
    """Return the reasons why one of the arms has no usable value at a seed.

    For unpaired runs, an absent run is not a reason.
    """
    study = table.results.study
    return [
        why
        for arm in arms
        if (why := table.why_unusable(arm, seed, metric))
        and (study.is_paired or seed not in study.arm_facts(arm).absent)
    ]


def _equal_runs(table: Table, metric: Metric, values: Mapping[str, BySeed]) -> str:
    """Return a warning if all runs of an arm have the same score, or "" otherwise.

    Equal scores are plausible if they are integers or have a known resolution. The built-in trainer
    is exempt, because its seeds are known to affect results.
    """
    if table.results.study.trainer == STACKED or share_step(table, metric):
        return ""
    for arm, by_seed in values.items():
        scores = set(by_seed.values())
        if len(by_seed) >= LEAST_EQUAL and len(scores) == 1 and not min(scores).is_integer():
            text = f"all {len(by_seed)} runs of {arm} have {metric.label} {min(scores):g}"
            return f"{text}, so the program may ignore its seed"
    return ""


def _never(table: Table, arm: str, metric: str) -> int:
    """Return the number of finished runs of `arm` that did not reach the metric's target."""
    return sum(
        metric in record.get("facts", {}).get("censored", ())
        for (name, _), record in table.results.trials.items()
        if name == arm
    )


def _why_uncounted(table: Table, arm: str, reference: str, metric: str) -> str:
    """Return why a contrast is excluded from its family of tests, or "" if it is included.

    A contrast is excluded if the metric is not comparable between the arms or was not measured.
    """
    study, declared = table.results.study, table.metrics[metric]
    if declared.of_tokens and not study.share_tokens(arm, reference):
        return "measured per token, but the arms have different tokenizers"
    is_judged = metric in [endpoint.metric for endpoint in study.judged]
    if is_judged or any(math.isfinite(table.values[*trial, metric]) for trial in table.events):
        return ""
    return f"{metric} was not measured in this study"


def interactions_of(
    table: Table, contrasts: Sequence[Contrast], tuned: Tuned | None
) -> list[Interacting]:
    """Test all interactions on all primary endpoints, as one family.

    Args:
        table: scores of the study.
        contrasts: all contrasts of the study.
        tuned: tuning results of the study.
    """
    study = table.results.study
    effects = {(c.arm, c.metric): c for c in contrasts}
    asked = [
        (name, spec, [effects[arm, endpoint.metric] for arm in (*spec.of, *spec.than)])
        for endpoint in study.judged
        for name, spec in study.interactions.items()
    ]
    return with_holm([_interaction(table, *question, tuned, len(asked)) for question in asked])


def weights_of(study: Study, spec: Interaction) -> dict[str, float]:
    """Return the weights of the arms in an interaction, which sum to 0."""
    weights: dict[str, float] = {}
    for side, sign in ((spec.of, 1.0), (spec.than, -1.0)):
        for arm in side:
            for name, weight in ((arm, sign), (study.reference(arm) or arm, -sign)):
                weights[name] = weights.get(name, 0.0) + weight / len(side)
    return {arm: weight for arm, weight in weights.items() if abs(weight) > 1e-12}


def _interaction(
    table: Table,
    name: str,
    spec: Interaction,
    effects: Sequence[Contrast],
    tuned: Tuned | None,
    family: int,
) -> Interacting:
    first, weights = effects[0], weights_of(table.results.study, spec)
    metric, shared = first.declared, set.intersection(*(set(effect.seeds) for effect in effects))
    sampled = table.sampling(first.arm, metric.name)
    seeds = tuple(seed for seed in sampled.seeds if seed in shared)
    why_not = next((effect.why_not for effect in effects if effect.why_not), "")
    interaction = Interacting(
        name=name,
        title=spec.title or name,
        of=spec.of,
        than=spec.than,
        metric=metric.name,
        seeds=seeds,
        why_not=why_not or sampled.why_not(seeds),
        margin=first.margin,
        declared=metric,
    )
    if interaction.why_not:
        return interaction
    items = Items(table, metric, tuple(weights), seeds)
    scores = items.scores() if all(effect.items_about for effect in effects) else ""
    values = {arm: {s: table.values[arm, s, metric.name] for s in seeds} for arm in weights}
    return compare_arms(
        replace(interaction, choice=choice_of(table, tuned, weights, metric.name)),
        table,
        weights,
        values,
        metric=metric,
        sampled=sampled,
        family=family,
        scores=scores,
    )


def with_lack_of_fit(analysis: Analysis) -> Analysis:
    """Return a copy of `analysis` whose contrasts also include the error from lack of fit.

    Only studies registered with `inference.choice = "propagated"` change, because their registered
    test omits this error. Interactions are unchanged.
    """
    if analysis.study.inference.choice != "propagated":
        return analysis
    contrasts = [_widened(analysis.study, contrast) for contrast in analysis.contrasts]
    return replace(analysis, contrasts=tuple(adjusted(contrasts, analysis.study.inference.alpha)))


def _widened(study: Study, contrast: Contrast) -> Contrast:
    choice, says = contrast.choice, contrast.decided
    if choice is None or says is None:
        return contrast
    test = replace(says.basis, choice=math.hypot(says.basis.choice, choice.lack_of_fit))
    asked = study.inference.model_dump(include={"alpha", "power"})
    wider = decided(test, says.test, margin=says.margin, family=says.family, **asked)
    return replace(contrast, decided=wider)
