"""Interactions: whether what a change does depends on something else, seed by seed.

The interaction is the mean effect of some arms minus that of others, each effect against the arm's
own reference. It is tested as a contrast is: by the registered test, over the seeds that all of
these trials have, with the error of items and of tuned values where a contrast has it. What the
arms share cancels: an arm that is the reference of both effects has no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paribus.analysis.choice import choice_of
from paribus.analysis.contrasts import holm_of
from paribus.analysis.items import Items, share_step
from paribus.analysis.sampling import registered
from paribus.analysis.schema import Contrast, Interacting
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tried
from paribus.statistics import macro_contrast, paired_contrast
from paribus.study import Interaction, Study


def interactions_of(
    table: Table, contrasts: Sequence[Contrast], tried: Tried | None
) -> list[Interacting]:
    """Return every registered interaction on every primary endpoint, adjusted in their family.

    Args: contrasts: those of the study. tried: its tuning trials.
    """
    study = table.results.study
    by_name = {(c.arm, c.metric): c for c in contrasts}
    interactions = [
        _interaction(
            table,
            name,
            spec,
            {arm: by_name[arm, endpoint.metric] for arm in (*spec.of, *spec.than)},
            tried,
        )
        for endpoint in study.judged
        for name, spec in study.interactions.items()
    ]
    return _adjusted(interactions)


def weights_of(study: Study, spec: Interaction) -> dict[str, float]:
    """Return the weight of every arm in the interaction; they add up to 0."""
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
    effects: Mapping[str, Contrast],
    tried: Tried | None,
) -> Interacting:
    study, first = table.results.study, next(iter(effects.values()))
    shared = set.intersection(*(set(effect.seeds) for effect in effects.values()))
    sampled = table.sampling(first.arm, first.metric)
    seeds = tuple(seed for seed in sampled.seeds if seed in shared)
    declared, weights = first.declared, weights_of(study, spec)
    why_not = next((effect.why_not for effect in effects.values() if effect.why_not), "")
    interaction = Interacting(
        *(name, spec.title or name, spec.of, spec.than, first.metric, seeds, None),
        why_not=why_not or sampled.why_not(seeds),
        margin=first.margin,
        declared=declared,
    )
    if interaction.why_not:
        return interaction
    choice = choice_of(table, tried, weights, first.metric)
    keywords: dict[str, Any] = registered(study) | {
        "margin": first.margin,
        "family": len(study.interactions) * len(study.judged),
        "resolution": share_step(table, first.metric),
        "design": sampled.design(seeds),
        "choice": choice.error if choice and choice.included else 0.0,
    }
    scores = _item_scores(table, effects, seeds)
    if scores is None:
        values = {
            arm: np.array([declared.compared(table.values[arm, s, first.metric]) for s in seeds])
            for arm in weights
        }
        decided = paired_contrast(*_sides(weights, values), **keywords).decided
    else:
        tasks = range(len(next(iter(scores.values()))))
        sides = [_sides(weights, {arm: scores[arm][k] for arm in weights}) for k in tasks]
        baseline, treatment = zip(*sides, strict=True)
        crossed = study.inference.crossed
        decided = macro_contrast(baseline, treatment, crossed=crossed, **keywords).decided
    return replace(interaction, decided=decided, choice=choice)


def _sides(
    weights: Mapping[str, float], scores: Mapping[str, np.ndarray]
) -> tuple[np.ndarray, np.ndarray]:
    """Return weighted sums of scores over arms of negative and of positive weight, whose
    difference, second minus first, is the interaction."""
    shape = next(iter(scores.values())).shape
    sides = np.zeros(shape), np.zeros(shape)
    for arm, weight in weights.items():
        sides[weight > 0][...] += abs(weight) * scores[arm]
    return sides


def _item_scores(
    table: Table, effects: Mapping[str, Contrast], seeds: tuple[int, ...]
) -> dict[str, list[np.ndarray]] | None:
    """Return the scores of every arm by task, [seeds, items]; None where no claim is about new
    items."""
    by_name: dict[str, list[np.ndarray]] = {}
    for arm, effect in effects.items():
        scores = Items(table, replace(effect, seeds=seeds)).scores() if effect.items else ""
        if isinstance(scores, str):
            return None
        by_name[effect.reference], by_name[arm] = scores
    return by_name


def _adjusted(interactions: list[Interacting]) -> list[Interacting]:
    """Return them with p adjusted; one that cannot be tested stays in the family as p = 1."""
    says = [interaction.decided for interaction in interactions]
    tested = holm_of(decided.p_value if decided else None for decided in says)
    equal = holm_of(decided.equivalence_p if decided else None for decided in says)
    return [
        replace(
            interaction,
            holm_p=p,
            equivalence_holm_p=equal_p if interaction.margin is not None else None,
        )
        if interaction.decided and not interaction.decided.descriptive_only
        else interaction
        for interaction, p, equal_p in zip(interactions, tested, equal, strict=True)
    ]
