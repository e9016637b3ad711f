"""One contrast of one endpoint, tested as the study registered it.

A pair that cannot be compared is left out by name, never in silence; a contrast whose controls are
broken is not analysed. Looks and the analysis ask the same.
"""

from __future__ import annotations

import math
from dataclasses import replace

from paribus.analysis.by_task import question_scores, questions_asked
from paribus.analysis.infer import infer, infer_items
from paribus.analysis.items import block_scores, resolution, why_other_blocks
from paribus.analysis.sampling import Sampling
from paribus.analysis.schema import Contrast, LeftOut
from paribus.analysis.table import Table
from paribus.results.curve_metrics import Needed, needed, target_axis
from paribus.statistics import MacroContrast, PairedContrast
from paribus.study import Endpoint


def contrast_of(
    table: Table, arm: str, reference: str, endpoint: Endpoint
) -> tuple[Contrast, list[LeftOut]]:
    """One contrast of one endpoint, not adjusted yet, and the seeds that it had to leave out."""
    metric, sampled = endpoint.metric, table.sampling(arm, endpoint.metric)
    ours, theirs = (table.usable(name, metric, sampled.seeds) for name in (arm, reference))
    if table.results.metrics[metric].of_pair:
        theirs = dict.fromkeys(theirs, 1.0)
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
    elif incomparable := _why_incomparable(table, arm, reference, metric):
        why_not, left_out = incomparable, []
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    compared = _to_target(table, arm, reference, metric, seeds)
    if compared:
        ours = ours | {seed: one.restricted[0] for seed, one in compared.items()}
        theirs = theirs | {seed: one.restricted[1] for seed, one in compared.items()}
    late_ours = sum(one.ours == math.inf for one in compared.values())
    late_theirs = sum(one.theirs == math.inf for one in compared.values())
    contrast = Contrast(
        *(arm, reference, metric, endpoint.primary, seeds, None, why_not),
        declared=table.results.metrics[metric],
        margin=_stated(table, endpoint, endpoint.margin),
        smallest_effect=_stated(table, endpoint, endpoint.smallest_effect),
        counted=table.is_measured(metric) and not _why_incomparable(table, arm, reference, metric),
        sampling=sampled,
        censored=(late_ours, late_theirs),
    )
    if not why_not:
        items, items_why_not = _items(table, contrast, endpoint)
        contrast = replace(
            contrast,
            paired=_infer(table, sampled, endpoint, theirs, ours),
            items=items,
            items_about=_about(table, contrast, items) if items else "",
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


def _to_target(
    table: Table, arm: str, reference: str, metric: str, seeds: tuple[int, ...]
) -> dict[int, Needed]:
    """What the pairs needed to the registered target, where `metric` is that; else nothing."""
    axis, target = target_axis(metric), table.results.study.format.target(table.results.study)
    if axis is None or target is None:
        return {}
    curves = table.results.trial_curves
    found = {
        seed: needed(curves[arm, seed], curves[reference, seed], target, axis) for seed in seeds
    }
    return {seed: one for seed, one in found.items() if one is not None}


def _family_size(table: Table, endpoint: Endpoint) -> int:
    """Hypotheses tested together with one of this endpoint."""
    study = table.results.study
    if endpoint.primary:
        return study.family
    others = [e for e in study.endpoints if not e.primary and table.is_measured(e.metric)]
    return sum(
        not _why_incomparable(table, *contrast, e.metric)
        for e in others
        for contrast in study.contrasts
    )


def _why_incomparable(table: Table, arm: str, reference: str, metric: str) -> str:
    """Why the metric does not mean the same in both arms; empty where it does."""
    study, declared = table.results.study, table.results.metrics[metric]
    return study.format.why_incomparable(study, declared, arm, reference)


def _stated(table: Table, endpoint: Endpoint, change: float | None) -> float | None:
    """A change that the study states, as the endpoint is compared."""
    return None if change is None else table.results.metrics[endpoint.metric].change(change)


def _items(
    table: Table, contrast: Contrast, endpoint: Endpoint
) -> tuple[MacroContrast | None, str]:
    """The endpoint paired by seed and by item, where claims are about new items: it then decides.

    Items are questions of tasks, or documents or windows of the validation split. Where the arms do
    not share them, or the metric is no mean over them, the second entry says so.
    """
    study, over = table.results.study, contrast.declared.items
    if not study.inference.of_new_items(contrast.declared):
        return None, ""
    if not over:
        return None, f"{contrast.declared.label} is no ratio of sums over items"
    if isinstance(over, str):
        baseline, treatment = (
            question_scores(table, arm, contrast.seeds, contrast.declared.task)
            for arm in (contrast.reference, contrast.arm)
        )
    else:
        arms = contrast.reference, contrast.arm
        if why := why_other_blocks(table, *arms, contrast.seeds[0]):
            return None, why
        baseline, treatment = ([block_scores(table, over, arm, contrast.seeds)] for arm in arms)
    if [task.shape for task in baseline] != [task.shape for task in treatment]:
        return None, "the arms were not asked the same questions"
    if all(task.shape[1] < 2 for task in baseline):
        return None, "a single item says nothing of others"
    items = infer_items(
        study,
        baseline,
        treatment,
        contrast.margin,
        family=_family_size(table, endpoint),
        resolution=_resolution(table, contrast.metric),
        design=table.sampling(contrast.arm, contrast.metric).design(contrast.seeds),
    )
    return items, ""


def _about(table: Table, contrast: Contrast, items: MacroContrast) -> str:
    """`384 questions`, `40 documents`, `1,024 blocks of 3,000 windows`."""
    n = sum(items.crossed.n_items) if items.crossed else 0
    if isinstance(contrast.declared.items, str):
        return f"{n:,} questions"
    of = table.results.trials[contrast.arm, contrast.seeds[0]]["blocks"]
    counted = f"{of['items']:,} {of['kind']}s"
    return counted if of["items"] == n else f"{n:,} blocks of {counted}"


def _resolution(table: Table, metric: str) -> float | None:
    """The step of a share of items; None where it is no share."""
    trial = next(iter(table.events), None)
    declared = table.results.metrics[metric]
    if trial is None or not declared.items:
        return None
    if isinstance(declared.items, str):
        asked = questions_asked(table, *trial, declared.task)
        return 1 / asked if asked else None
    return resolution(table, declared.items, trial)


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
