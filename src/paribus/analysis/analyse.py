"""From records to inference: every contrast, tested as the study registered it.

The unit is the seed pair: treatment minus baseline at the same seed. A pair that cannot be compared
is left out by name, never in silence; a contrast whose controls are broken is not analysed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from paribus.analysis.by_task import question_scores, questions_asked, task_contrasts
from paribus.analysis.claims import check_claims
from paribus.analysis.costs import costs
from paribus.analysis.families import adjusted
from paribus.analysis.infer import infer, infer_items
from paribus.analysis.items import block_scores, resolution, why_other_blocks
from paribus.analysis.sampling import Sampling
from paribus.analysis.schema import Analysis, Contrast, LeftOut, Summary
from paribus.analysis.sensitivity import sensitivities
from paribus.analysis.side_effects import Stabilities
from paribus.analysis.table import Table
from paribus.analysis.taking_looks import why_not_these_looks
from paribus.analysis.tuned import tuned
from paribus.metric import QUESTIONS
from paribus.results import (
    Results,
    ResultsFolder,
    read_registration,
    registered_rule,
    why_unregistered,
)
from paribus.statistics import (
    FamilySignFlip,
    MacroContrast,
    PairedContrast,
    PairedRates,
    StabilityEvents,
    holm,
    max_statistic_sign_flip,
    paired_event_rates,
)
from paribus.study import Endpoint, Study

Pair = tuple[StabilityEvents, StabilityEvents]
Kind = Callable[[StabilityEvents], bool]


def analyse(results: Results) -> Analysis:
    """Analyse the finished trials of `results` as their study says.

    Raises ParibusError where a record is missing or was changed.
    """
    folder = ResultsFolder(results.path)
    table = Table.of(results)
    why = why_unregistered(folder, results.study, results.trials)
    return analyse_table(
        table,
        unregistered=why or why_not_these_looks(table),
        late_seeds=_late_seeds(folder),
        own_rule=registered_rule(folder),
    )


def analyse_table(
    table: Table,
    *,
    unregistered: str = "",
    late_seeds: tuple[int, ...] = (),
    own_rule: dict[str, Any] | None = None,
) -> Analysis:
    """The same of scores that have been read; the three are as `Analysis` has them."""
    study = table.results.study
    metrics = {name: table.results.metrics[name] for name in study.metrics}
    contrasts, left_out = [], []
    for endpoint in study.endpoints:
        for arm, reference in study.contrasts:
            contrast, out = contrast_of(table, arm, reference, endpoint)
            contrasts.append(contrast)
            left_out += out
    return Analysis(
        study=study,
        missing=tuple(folder.label for folder in table.results.unfinished),
        unregistered=unregistered,
        late_seeds=late_seeds,
        controls=table.controls,
        summaries=tuple(
            Summary(arm, metric, table.usable(arm, metric))
            for metric in metrics
            for arm in study.arms
        ),
        contrasts=tuple(adjusted(contrasts, study.inference.alpha)),
        events=table.events,
        stabilities=tuple(stabilities_of(table)),
        sensitivities=tuple(sensitivities(table)),
        costs=tuple(costs(table)),
        tasks=tuple(task_contrasts(table)),
        family=_family(study, contrasts),
        left_out=tuple(left_out),
        claim_checks=check_claims(table.results),
        metrics=metrics,
        own_rule=own_rule or {},
        tuned=tuned(table.results),
        looks=table.looks,
    )


def contrast_of(
    table: Table, arm: str, reference: str, endpoint: Endpoint
) -> tuple[Contrast, list[LeftOut]]:
    """One contrast of one endpoint, not adjusted yet, and the seeds that it had to leave out."""
    metric, sampled = endpoint.metric, table.sampling(arm)
    ours, theirs = (table.usable(name, metric, sampled.seeds) for name in (arm, reference))
    seeds = tuple(seed for seed in sampled.seeds if seed in ours and seed in theirs)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(filter(None, why)))
        for seed in sampled.seeds
        if any(why := [table.why_unusable(name, seed, metric) for name in (reference, arm)])
    ]
    broken = table.broken(arm)
    why_not = sampled.why_not(seeds)
    if broken:
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif not _is_comparable(table, arm, reference, metric):
        why_not, left_out = "of single tokens, and the arms have other tokenizers", []
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    contrast = Contrast(
        *(arm, reference, metric, endpoint.primary, seeds, None, why_not),
        declared=table.results.metrics[metric],
        margin=_stated(table, endpoint, endpoint.margin),
        smallest_effect=_stated(table, endpoint, endpoint.smallest_effect),
        counted=table.is_measured(metric) and _is_comparable(table, arm, reference, metric),
        sampling=sampled,
    )
    if not why_not:
        items, items_why_not = _items(table, contrast, endpoint)
        contrast = replace(
            contrast,
            paired=_infer(table, sampled, endpoint, theirs, ours),
            items=items,
            items_why_not=items_why_not,
        )
    capped_ours, capped_theirs = (
        table.capped(name, metric, sampled.seeds) for name in (arm, reference)
    )
    shared = capped_ours.keys() & capped_theirs.keys()
    if not broken and len(shared) > max(len(seeds), 1) and not sampled.why_not(shared):
        capped = _infer(table, sampled, endpoint, capped_theirs, capped_ours)
        contrast = replace(contrast, capped=capped)
    return contrast, left_out


def _family_size(table: Table, endpoint: Endpoint) -> int:
    """Hypotheses tested together with one of this endpoint."""
    study = table.results.study
    if endpoint.primary:
        return study.family
    others = [e for e in study.endpoints if not e.primary and table.is_measured(e.metric)]
    return sum(
        _is_comparable(table, *contrast, e.metric) for e in others for contrast in study.contrasts
    )


def _is_comparable(table: Table, arm: str, reference: str, metric: str) -> bool:
    """Whether the metric means the same in both arms: of single tokens, only if they share them."""
    shared = table.results.study.share_tokens(arm, reference)
    return shared or not table.results.metrics[metric].of_tokens


def _stated(table: Table, endpoint: Endpoint, change: float | None) -> float | None:
    """A change that the study states, as the endpoint is compared."""
    return None if change is None else table.results.metrics[endpoint.metric].change(change)


def _items(
    table: Table, contrast: Contrast, endpoint: Endpoint
) -> tuple[MacroContrast | None, str]:
    """Accuracy paired by seed and by item, where claims are about new items: it then decides.

    Items are questions of tasks, or documents or windows of the validation split. Where the arms do
    not share them, the second entry says why there is no such pairing.
    """
    study, over = table.results.study, contrast.declared.items
    if study.inference.target == "this item set" or not over:
        return None, ""
    if over == QUESTIONS:
        baseline, treatment = (
            question_scores(table, arm, contrast.seeds, contrast.declared.task)
            for arm in (contrast.reference, contrast.arm)
        )
    else:
        arms = contrast.reference, contrast.arm
        if why := why_other_blocks(table, *arms, contrast.seeds[0]):
            return None, why
        baseline, treatment = (
            [block_scores(table, contrast.metric, arm, contrast.seeds)] for arm in arms
        )
    if [task.shape for task in baseline] != [task.shape for task in treatment]:
        return None, "the arms were not asked the same questions"
    items = infer_items(
        study,
        baseline,
        treatment,
        contrast.margin,
        family=_family_size(table, endpoint),
        resolution=_resolution(table, contrast.metric),
        design=table.sampling(contrast.arm).design(contrast.seeds),
    )
    return items, ""


def _resolution(table: Table, metric: str) -> float | None:
    """The step of a share of items; None where it is no share."""
    trial = next(iter(table.events), None)
    declared = table.results.metrics[metric]
    if trial is None or not declared.items:
        return None
    if declared.items == QUESTIONS:
        asked = questions_asked(table, *trial, declared.task)
        return 1 / asked if asked else None
    return resolution(table, metric, trial)


def _infer(
    table: Table,
    sampled: Sampling,
    endpoint: Endpoint,
    baseline: dict[int, float],
    treatment: dict[int, float],
) -> PairedContrast:
    """The registered inference over the seeds that both have."""
    metric = table.results.metrics[endpoint.metric]
    seeds = [seed for seed in sampled.seeds if seed in baseline and seed in treatment]
    return infer(
        table.results.study,
        [metric.compared(baseline[seed]) for seed in seeds],
        [metric.compared(treatment[seed]) for seed in seeds],
        _stated(table, endpoint, endpoint.margin),
        family=_family_size(table, endpoint),
        resolution=_resolution(table, endpoint.metric),
        design=sampled.design(seeds),
    )


def stabilities_of(table: Table) -> list[Stabilities]:
    """Events of every contrast with pairs, at its look; p adjusted over the contrasts."""
    found, p_values, events = [], [], table.events
    for arm, reference in table.results.study.contrasts:
        sampled = table.sampling(arm)
        pairs = [
            (events[reference, seed], events[arm, seed])
            for seed in sampled.seeds
            if (arm, seed) in events and (reference, seed) in events
        ]
        if not pairs:
            continue

        def rates(kind: Kind, pairs: list[Pair] = pairs) -> PairedRates:
            return paired_event_rates([kind(a) for a, _ in pairs], [kind(b) for _, b in pairs])

        one = Stabilities(
            arm,
            reference,
            diverged=rates(lambda e: e.diverged),
            spiked=rates(lambda e: e.spiked),
            any_event=rates(lambda e: e.diverged or e.spiked),
        )
        design = None if sampled.look is None else sampled.design([])
        over_looks = design.of_other(one.any_event.p_value) if design else None
        found.append(one)
        p_values.append(one.any_event.p_value if over_looks is None else over_looks)
    adjusted = holm(p_values) if found else []
    return [replace(s, holm_p=float(p)) for s, p in zip(found, adjusted, strict=True)]


def _family(study: Study, contrasts: list[Contrast]) -> FamilySignFlip | None:
    """Over the seeds that every analysed contrast of the primary endpoint has.

    Of one sample alone: it has no p over looks or stages.
    """
    if study.plan or study.stages:
        return None
    family = [c for c in contrasts if c.primary and c.paired is not None]
    shared = [seed for seed in study.seeds if family and all(seed in c.seeds for c in family)]
    if len(shared) < 2:
        return None
    columns = [
        [dict(zip(c.seeds, c.paired.pairs, strict=True))[seed].delta for seed in shared]
        for c in family
        if c.paired
    ]
    return max_statistic_sign_flip(
        np.array(columns).T, seed=study.inference.seed, resamples=study.inference.resamples
    )


def _late_seeds(folder: ResultsFolder) -> tuple[int, ...]:
    registered = read_registration(folder) or {}
    return tuple(registered.get("seeds_added_after_results", ()))
