"""Interactions: whether what a change does depends on something else, seed by seed.

The interaction is the mean effect of some arms minus that of others, each effect against the arm's
own reference. It is tested as a contrast is: by the registered test, over the seeds that all of
these trials have, with the error of items and of tuned values where a contrast has it. What the
arms share cancels: an arm that is the reference of both effects has no weight.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paribus.analysis.contrasts import tested, with_holm
from paribus.analysis.items import Items, share_step
from paribus.analysis.schema import Contrast, Interacting
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tuned, choice_of
from paribus.study import Interaction, Study


def interactions_of(
    table: Table, contrasts: Sequence[Contrast], tuned: Tuned | None
) -> list[Interacting]:
    """Return every registered interaction on every primary endpoint, adjusted in their family.

    Args: contrasts: those of the study. tuned: its tuning.
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
    items = Items(table, metric, dict.fromkeys(weights, seeds))
    scores = items.scores() if all(effect.items for effect in effects) else {}
    values = {
        arm: [metric.compared(table.values[arm, seed, metric.name]) for seed in seeds]
        for arm in weights
    }
    return tested(
        replace(interaction, choice=choice_of(table, tuned, weights, metric.name)),
        table,
        weights,
        values,
        sampled=sampled,
        family=family,
        resolution=share_step(table, metric.name),
        scores={} if isinstance(scores, str) else scores,
    )
