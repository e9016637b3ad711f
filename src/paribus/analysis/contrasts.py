"""One contrast of one endpoint or task, tested as the study registered it.

A pair that cannot be compared is left out by name, never in silence; a contrast whose controls are
broken is not analysed. Looks and the analysis ask the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paribus.analysis.choice import choice_of
from paribus.analysis.items import (
    Items,
    question_scores,
    questions_asked,
    share_step,
    task_accuracy,
)
from paribus.analysis.sampling import Sampling, registered
from paribus.analysis.schema import Check, Contrast, LeftOut, TaskContrast
from paribus.analysis.score_grid import repeated_scores, score_steps
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tried
from paribus.numbers import plural
from paribus.results.curve_metrics import Needed, needed, target_axis
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    MacroContrast,
    PairedContrast,
    UnpairedContrast,
    holm,
    macro_contrast,
    paired_contrast,
    unpaired_contrast,
)
from paribus.study import Endpoint
from paribus.study.trainer import RUNS, STACKED

LEAST_EQUAL = 3  # runs of an arm; two may be equal by chance
ENDS = (0.0, 1.0, 100.0)  # of a share, where runs may well be equal


def task_contrasts(table: Table) -> list[TaskContrast]:
    """Every task of every contrast whose controls held; diverged trials are left out.

    What could not be compared stays in the family as p = 1, so that losing a contrast never helps
    the others.
    """
    study = table.results.study
    accuracy = task_accuracy(table.results)
    rows = table.results.tasks.select(["task", "chance"]).to_pylist() if accuracy else []
    chances = {row["task"]: row["chance"] for row in rows}
    family = len(study.contrasts) * len(chances)
    contrasts = []
    for arm, reference in study.contrasts:
        if table.broken(arm):
            continue
        sampled, arms = table.sampling(arm), (arm, reference)
        usable = [s for s in sampled.seeds if not any(table.why_diverged(a, s) for a in arms)]
        for task, chance in chances.items():
            seeds = tuple(s for s in usable if all((a, s, task) in accuracy for a in arms))
            if not seeds:
                continue
            ours, theirs = ([accuracy[a, s, task] for s in seeds] for a in arms)
            contrast = TaskContrast(
                *(arm, reference, task, chance, seeds),
                baseline=float(np.mean(theirs)),
                treatment=float(np.mean(ours)),
                paired=None,
            )
            if not sampled.why_not(seeds):
                keywords = registered(study) | {
                    "family": family,
                    "resolution": 1 / questions_asked(table, arm, seeds[0], task),
                    "design": sampled.design(seeds),
                }
                contrast = replace(
                    contrast,
                    paired=paired_contrast(theirs, ours, **keywords),
                    items=_task_items(table, contrast, keywords),
                )
            contrasts.append(contrast)
    p_values = [c.decided.p_value if c.decided else None for c in contrasts]
    adjusted_p = holm_of([*p_values, *[None] * (family - len(contrasts))])
    return [
        replace(c, holm_p=p) if len(c.seeds) >= DESCRIPTIVE_BELOW else c
        for c, p in zip(contrasts, adjusted_p, strict=False)
    ]


def _task_items(
    table: Table, contrast: TaskContrast, keywords: dict[str, Any]
) -> MacroContrast | None:
    """Paired by seed and by question, where claims are about new ones and the arms share these."""
    inference = table.results.study.inference
    if not inference.of_new_questions:
        return None
    baseline, treatment = (
        question_scores(table, arm, contrast.seeds, contrast.task)
        for arm in (contrast.reference, contrast.arm)
    )
    if not baseline or [task.shape for task in baseline] != [task.shape for task in treatment]:
        return None
    return macro_contrast(baseline, treatment, crossed=inference.crossed, **keywords)


def contrast_of(
    table: Table, arm: str, reference: str, endpoint: Endpoint, tried: Tried | None
) -> tuple[Contrast, list[LeftOut]]:
    """One contrast of one endpoint, not adjusted yet, and the seeds that it had to leave out.

    `tried` are the tuning trials behind the table (`tried_before`).
    """
    study, declared = table.results.study, table.results.metrics[endpoint.metric]
    metric, sampled = endpoint.metric, table.sampling(arm, endpoint.metric)
    ours, theirs = (table.usable(name, metric, sampled.seeds) for name in (arm, reference))
    if declared.of_pair:
        theirs = dict.fromkeys(theirs, 1.0)
    if study.is_paired:
        seeds = tuple(seed for seed in sampled.seeds if seed in ours and seed in theirs)
        why_not = sampled.why_not(seeds)
    else:
        seeds = tuple(seed for seed in sampled.seeds if seed in ours or seed in theirs)
        why_not = _too_few(arm, ours) or _too_few(reference, theirs)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(filter(None, why)))
        for seed in sampled.seeds
        if any(why := _why_left_out(table, arm, reference, seed, metric))
    ]
    broken, incomparable = table.broken(arm), _why_incomparable(table, arm, reference, metric)
    if broken:
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif incomparable:
        why_not, left_out = incomparable, []
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    elif not why_not:
        why_not = _equal_runs(table, metric, {reference: theirs, arm: ours})
    crossings = _to_target(table, arm, reference, metric, seeds)
    ours = ours | {seed: crossing.restricted[0] for seed, crossing in crossings.items()}
    theirs = theirs | {seed: crossing.restricted[1] for seed, crossing in crossings.items()}
    if crossings:
        needs = [(crossing.ours, crossing.theirs) for crossing in crossings.values()]
        censored = tuple(side.count(math.inf) for side in zip(*needs, strict=True))
    else:
        censored = tuple(_never(table, name, metric) for name in (arm, reference))
    contrast = Contrast(
        *(arm, reference, metric, endpoint.primary, seeds, None, why_not),
        declared=declared,
        margin=_change(table, endpoint, endpoint.margin),
        smallest_effect=_change(table, endpoint, endpoint.smallest_effect),
        counted=table.is_measured(metric) and not incomparable,
        sampling=sampled,
        censored=(censored[0], censored[1]),
    )
    if not why_not:
        choice = choice_of(table, tried, {reference: -1.0, arm: 1.0}, metric)
        contrast = replace(contrast, choice=choice)
        by_run = _infer(table, sampled, endpoint, theirs, ours, contrast.choice_error)
        contrast = _with_items(table, replace(contrast, by_run=by_run), endpoint)
        contrast = replace(
            contrast, counting_diverged=_counting_diverged(table, endpoint, contrast)
        )
    return contrast, left_out


def _with_items(table: Table, contrast: Contrast, endpoint: Endpoint) -> Contrast:
    """Return the contrast with what items add to it. It is paired by seed and by item where claims
    are about new items: that then decides.

    Items are questions of tasks, documents of the held-out text, or contiguous blocks of its
    windows. Where the arms do not share them, or the metric is no mean over them, `items_why_not`
    says so.
    """
    study, items = table.results.study, Items(table, contrast)
    macro, why_not = None, ""
    if study.inference.of_new_items(contrast.declared):
        scores = items.scores()
        if isinstance(scores, str):
            why_not = scores
        else:
            design = table.sampling(contrast.arm, contrast.metric).design(contrast.seeds)
            macro = macro_contrast(
                *scores,
                **registered(study),
                margin=contrast.margin,
                family=_family_size(table, endpoint),
                resolution=share_step(table, contrast.metric),
                choice=contrast.choice_error,
                design=design if study.is_paired else None,
                crossed=study.inference.crossed if study.is_paired else "welch",
            )
    sampled = items.text(macro.n_items) if macro else ""
    return replace(
        contrast,
        items=macro,
        items_about=sampled,
        items_why_not=why_not,
        target=items.target(sampled),
        other_text=items.other_text(),
    )


def _counting_diverged(table: Table, endpoint: Endpoint, contrast: Contrast) -> Contrast | None:
    """Return the contrast with diverged runs counted at the worst finite score of both arms.

    None without a diverged run, for a secondary endpoint, and for a metric that only a pair of
    finished runs has.

    The worst finite score is a mild choice on purpose: at the score of an untrained model a single
    diverged run outweighs any gain, and a gain of 5 SD is found in a third of studies.
    """
    metric, arms = contrast.declared, (contrast.reference, contrast.arm)
    is_paired, sampled = table.results.study.is_paired, table.sampling(contrast.arm, metric.name)
    seeds = sampled.seeds
    if is_paired:  # a run without a partner is in no pair
        seeds = tuple(s for s in seeds if all((arm, s) in table.events for arm in arms))
    if not endpoint.primary or metric.of_pair or target_axis(metric.name) is not None:
        return None
    if not any(table.has_diverged(arm, seed) for arm in arms for seed in seeds):
        return None
    finite = [v for arm in arms for v in table.usable(arm, metric.name, seeds).values()]
    worst = min(finite) if metric.better == "higher" else max(finite)
    theirs, ours = (table.counting_diverged(arm, metric.name, seeds, worst) for arm in arms)
    if is_paired:
        seeds = tuple(seed for seed in seeds if seed in ours and seed in theirs)
        if sampled.why_not(seeds):
            return None
    else:
        seeds = contrast.seeds
    by_run = _infer(table, sampled, endpoint, theirs, ours, contrast.choice_error)
    return replace(contrast, items=None, seeds=seeds, by_run=by_run)


def _why_left_out(
    table: Table, arm: str, reference: str, seed: int, metric: str
) -> tuple[str, ...]:
    """Return of both arms why a seed is left out; of runs that are no pairs, a seed that an arm has
    no run of is not missed."""
    study = table.results.study
    return tuple(
        table.why_unusable(name, seed, metric)
        if study.is_paired or seed not in study.arm_facts(name).absent
        else ""
        for name in (reference, arm)
    )


def _too_few(arm: str, values: Mapping[int, float]) -> str:
    """Return why so few runs of an arm cannot be tested; empty where they can."""
    if len(values) >= 2:
        return ""
    return f"{arm} has {plural(len(values), 'comparable run')}; inference needs two of each arm"


def _equal_runs(table: Table, metric: str, values: Mapping[str, Mapping[int, float]]) -> str:
    """Return that runs of an arm have one score, all or more than chance gives two of a continuous
    one; empty where it may be so: of whole numbers, where a score says its resolution, and of our
    own trainer, whose seeds are proven to matter."""
    study = table.results.study
    if study.trainer == STACKED or share_step(table, metric):
        return ""
    scores = {arm: list(by_seed.values()) for arm, by_seed in values.items()}
    are_counts = all(value == round(value) for arm in scores.values() for value in arm)
    if are_counts or any(_never(table, name, metric) for name in values):
        return ""  # where the target was never reached, runs stand at the budget
    label = table.results.metrics[metric].label
    for arm, scored in scores.items():
        first = scored[0] if scored else 0.0
        if len(scored) >= LEAST_EQUAL and set(scored) == {first} and first not in ENDS:
            text = f"all {len(scored)} runs of {arm} have {label} {first:g}"
            return f"{text}: does the program ignore its seed?"
    inside = {
        arm: [value for value in scored if value not in ENDS] for arm, scored in scores.items()
    }
    for arm, (value, n) in repeated_scores(inside).items():
        return (
            f"{n} of {len(scores[arm])} runs of {arm} have {label} {value!r}: is it one run under "
            f"{n} names? leave copies out, or state the score's resolution if runs may be equal"
        )
    return ""


def _never(table: Table, arm: str, metric: str) -> int:
    """Return in how many runs of other programs `arm` never came to the target of the metric."""
    trials = table.results.trials.items()
    return sum(
        metric in record.get("facts", {}).get("censored", ())
        for (name, _), record in trials
        if name == arm
    )


def _to_target(
    table: Table, arm: str, reference: str, metric: str, seeds: tuple[int, ...]
) -> dict[int, Needed]:
    """Return what the pairs needed to the registered target, where `metric` is that; else
    nothing."""
    axis, target = target_axis(metric), table.results.study.facts.target
    if axis is None or target is None:
        return {}
    curves = table.results.trial_curves
    by_seed = {
        seed: needed(curves[arm, seed], curves[reference, seed], target, axis) for seed in seeds
    }
    return {seed: value for seed, value in by_seed.items() if value is not None}


def _family_size(table: Table, endpoint: Endpoint) -> int:
    """Hypotheses tested together with one of this endpoint."""
    study = table.results.study
    if endpoint.primary:
        return study.family
    secondary = [e for e in study.endpoints if not e.primary and table.is_measured(e.metric)]
    return sum(
        not _why_incomparable(table, *contrast, e.metric)
        for e in secondary
        for contrast in study.contrasts
    )


def _why_incomparable(table: Table, arm: str, reference: str, metric: str) -> str:
    """Return why the metric does not mean the same in both arms; empty where it does."""
    study, declared = table.results.study, table.results.metrics[metric]
    if declared.of_tokens and not study.share_tokens(arm, reference):
        return "of single tokens, and the arms have other tokenizers"
    if any(metric in study.arm_facts(name).not_measured for name in (arm, reference)):
        return f"{metric} is measured in float16 only"
    return ""


def _change(table: Table, endpoint: Endpoint, change: float | None) -> float | None:
    """Return a change that the study states, as the endpoint is compared."""
    return None if change is None else table.results.metrics[endpoint.metric].change(change)


def _resolution(table: Table, metric: str, arms: Sequence[Mapping[int, float]]) -> dict[str, Any]:
    """Return the resolution of a score, and whether it is one of rounding.

    The scores of runs of other programs are as they were printed: the arm with the coarser grid
    sets the step, unless the study states it.
    """
    step = share_step(table, metric)
    is_linear = table.results.metrics[metric].scale == "linear"
    if table.results.study.trainer != RUNS or not is_linear:
        return {"resolution": step}
    if step is None:
        step = max(score_steps([list(arm.values()) for arm in arms if arm]))
    return {"resolution": step, "rounded": True}


def _infer(
    table: Table,
    sampled: Sampling,
    endpoint: Endpoint,
    baseline: Mapping[int, float],
    treatment: Mapping[int, float],
    choice: float,
) -> PairedContrast | UnpairedContrast:
    """Return the registered inference over the seeds that both have; over the runs of both, where
    they are no pairs."""
    study, compared = table.results.study, table.results.metrics[endpoint.metric].compared
    keywords = {
        **registered(study),
        "margin": _change(table, endpoint, endpoint.margin),
        "family": _family_size(table, endpoint),
        **_resolution(table, endpoint.metric, (baseline, treatment)),
    }
    if not study.is_paired:
        theirs, ours = (list(map(compared, arm.values())) for arm in (baseline, treatment))
        return unpaired_contrast(theirs, ours, **keywords)
    seeds = [seed for seed in sampled.seeds if seed in baseline and seed in treatment]
    theirs, ours = ([compared(arm[seed]) for seed in seeds] for arm in (baseline, treatment))
    return paired_contrast(theirs, ours, **keywords, design=sampled.design(seeds), choice=choice)


def holm_of(p_values: Iterable[float | None]) -> list[float]:
    """Return Holm-adjusted p; one that is None, as nothing was tested, counts as p = 1."""
    values = [1.0 if p is None else p for p in p_values]
    adjusted_p: list[float] = holm(values).tolist() if values else []
    return adjusted_p


def adjusted(contrasts: list[Contrast], alpha: float) -> list[Contrast]:
    """Return the same contrasts with their p adjusted in their families."""
    checked = {}
    for primary in (True, False):
        family = [c for c in contrasts if c.primary == primary and c.counted]
        counted = _adjusted([c.counting_diverged or c for c in family], alpha)
        for c, again in zip(_adjusted(family, alpha), counted, strict=True):
            checked[c.arm, c.metric] = replace(
                c, counting_diverged=again if c.counting_diverged else None
            )
    return [checked.get((c.arm, c.metric), c) for c in contrasts]


def _adjusted(family: list[Contrast], alpha: float) -> list[Contrast]:
    tested = holm_of(c.decided.p_value if c.decided else None for c in family)
    with_margin = [c for c in family if c.margin is not None]
    # Of a trial that was censored nobody knows how far it is from the other: no equality is shown.
    known = [None if any(c.censored) else c for c in with_margin]
    equal = holm_of(c.decided.equivalence_p if c and c.decided else None for c in known)
    not_worse = holm_of(c.not_worse_p if c else None for c in known)
    of_margin = dict(zip(with_margin, zip(equal, not_worse, strict=True), strict=True))
    with_p = []
    for c, p, checks in zip(family, tested, _checks(family, tested, alpha), strict=True):
        if c.decided is not None and c.decided.descriptive_only:
            c = replace(c, checks=tuple(replace(check, holm_p=None) for check in checks))
        elif c.decided is not None:
            equal_p, not_worse_p = of_margin.get(c, (None, None))
            c = replace(
                c, holm_p=p, checks=checks, equivalence_holm_p=equal_p, not_worse_holm_p=not_worse_p
            )
        with_p.append(c)
    return with_p


def _checks(family: list[Contrast], decided: list[float], alpha: float) -> list[tuple[Check, ...]]:
    """Return what other tests say of each contrast, each adjusted over the family in the same
    way.

    A test that could not have rejected at this number of pairs is shown, and is no disagreement.
    """
    by_contrast: list[list[Check]] = [[] for _ in family]
    for name in dict.fromkeys(name for c in family for name in c.others):
        adjusted_p = holm_of(c.others.get(name) for c in family)
        for c, p, of_test, checks in zip(family, adjusted_p, decided, by_contrast, strict=True):
            if name not in c.others:
                continue
            able = c.decided is not None and not c.decided.descriptive_only
            able = able and c.floor(name) * len(family) <= alpha
            disagrees = able and (p <= alpha) != (of_test <= alpha)
            checks.append(Check(name, c.others[name], p, disagrees))
    return [tuple(checks) for checks in by_contrast]
