"""Interactions: whether what a change does depends on something else, seed by seed.

The interaction is the mean effect of some arms minus that of others, each effect against the arm's
own reference. It is tested as a contrast is: by the registered test, over the seeds that all of
these trials have, with the error of items and of tuned values where a contrast has it. What the
arms share cancels: an arm that is the reference of both effects has no weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from paribus.analysis.choice import choice_of
from paribus.analysis.contrasts import of_items, with_holm
from paribus.analysis.items import Items, Scores, share_step
from paribus.analysis.sampling import registered
from paribus.analysis.schema import Contrast, Interacting
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tuned
from paribus.statistics import paired_contrast
from paribus.study import Interaction, Study


def interactions_of(
    table: Table, contrasts: Sequence[Contrast], tuned: Tuned | None
) -> list[Interacting]:
    """Return every registered interaction on every primary endpoint, adjusted in their family.

    Args: contrasts: those of the study. tuned: its tuning.
    """
    study = table.results.study
    effects = {(c.arm, c.metric): c for c in contrasts}
    return with_holm(
        [
            _interaction(
                *(table, name, spec),
                {arm: effects[arm, endpoint.metric] for arm in (*spec.of, *spec.than)},
                tuned,
            )
            for endpoint in study.judged
            for name, spec in study.interactions.items()
        ]
    )


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
    tuned: Tuned | None,
) -> Interacting:
    study, first = table.results.study, next(iter(effects.values()))
    shared = set.intersection(*(set(effect.seeds) for effect in effects.values()))
    sampled = table.sampling(first.arm, first.metric)
    seeds = tuple(seed for seed in sampled.seeds if seed in shared)
    why_not = next((effect.why_not for effect in effects.values() if effect.why_not), "")
    interaction = Interacting(
        name=name,
        title=spec.title or name,
        of=spec.of,
        than=spec.than,
        metric=first.metric,
        seeds=seeds,
        why_not=why_not or sampled.why_not(seeds),
        margin=first.margin,
        declared=first.declared,
    )
    if interaction.why_not:
        return interaction
    weights = weights_of(study, spec)
    choice = choice_of(table, tuned, weights, first.metric)
    keywords = registered(study) | {
        "margin": first.margin,
        "family": len(study.interactions) * len(study.judged),
        "resolution": share_step(table, first.metric),
        "design": sampled.design(seeds),
        "choice": choice.error if choice and choice.included else 0.0,
    }
    interaction = replace(interaction, choice=choice)
    if scores := _item_scores(table, effects, seeds):
        by_task = [
            _sides(weights, dict(zip(scores, task, strict=True)))
            for task in zip(*scores.values(), strict=True)
        ]
        baseline, treatment = map(list, zip(*by_task, strict=True))
        return replace(interaction, items=of_items(study, (baseline, treatment), keywords))
    compared, values = first.declared.compared, table.values
    by_arm = {
        arm: np.array([compared(values[arm, seed, first.metric]) for seed in seeds])
        for arm in weights
    }
    return replace(interaction, by_run=paired_contrast(*_sides(weights, by_arm), **keywords))


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
) -> dict[str, Scores] | None:
    """Return the scores of every arm by task, [seeds, items]; None where no claim is about new
    items."""
    by_name: dict[str, Scores] = {}
    for arm, effect in effects.items():
        scores = Items(table, replace(effect, seeds=seeds)).scores() if effect.items else ""
        if isinstance(scores, str):
            return None
        by_name[effect.reference], by_name[arm] = scores
    return by_name
