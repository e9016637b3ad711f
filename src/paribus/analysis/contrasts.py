"""One contrast of one endpoint or task, tested as the study registered it.

A pair that cannot be compared is left out by name, never in silence; a contrast whose controls are
broken is not analysed. Looks and the analysis ask the same.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any, TypeVar

import numpy as np

from paribus.analysis.choice import choice_of
from paribus.analysis.items import (
    Items,
    Scores,
    question_scores,
    questions_asked,
    share_step,
    task_accuracy,
)
from paribus.analysis.sampling import infer, registered
from paribus.analysis.schema import Analysis, Check, Contrast, LeftOut, TaskContrast, Tested
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tuned
from paribus.numbers import plural
from paribus.results.curves import Needed, needed, target_axis
from paribus.statistics import (
    MacroContrast,
    PairedContrast,
    TTest,
    UnpairedContrast,
    decided,
    holm,
    macro_contrast,
    paired_contrast,
)
from paribus.study import Endpoint, Study
from paribus.study.trainer import RUNS, STACKED

LEAST_EQUAL = 3  # runs of an arm; two may be equal by chance
ENDS = (0.0, 1.0, 100.0)  # of a share, where runs may well be equal

T = TypeVar("T", bound=Tested)
BySeed = Mapping[int, float]


def holm_of(p_values: Iterable[float | None]) -> list[float]:
    """Return Holm-adjusted p; a test that could not be made (None) counts as p = 1."""
    values = [1.0 if p is None else p for p in p_values]
    return holm(values).tolist() if values else []


def with_holm(family: Sequence[T], size: int = 0) -> list[T]:
    """Return differences with their p adjusted over the family, of `size` hypotheses at least.

    What could not be tested counts as p = 1, so that losing one never makes the others easier. One
    of fewer than five pairs counts too, and has no adjusted p: it is only described.
    """
    raw, adjusted_p = [tested.p_values for tested in family], [dict[str, float]() for _ in family]
    for name in dict.fromkeys(name for p_values in raw for name in p_values):
        places = [place for place, p_values in enumerate(raw) if name in p_values]
        known = [raw[place][name] for place in places]
        adjusted_here = holm_of([*known, *[None] * (size - len(family))])
        for place, p in zip(places, adjusted_here, strict=False):
            adjusted_p[place][name] = p
    return [
        replace(tested, **p)
        if tested.decided is not None and not tested.decided.descriptive_only
        else tested
        for tested, p in zip(family, adjusted_p, strict=True)
    ]


def adjusted(contrasts: Sequence[Contrast], alpha: float) -> list[Contrast]:
    """Return the same contrasts with their p adjusted in their families."""
    checked = {}
    for primary in (True, False):
        family = [c for c in contrasts if c.primary == primary and c.counted]
        counted = with_holm([c.counting_diverged or c for c in family])
        for c, again in zip(_with_checks(with_holm(family), alpha), counted, strict=True):
            counting = again if c.counting_diverged else None
            checked[c.arm, c.metric] = replace(c, counting_diverged=counting)
    return [checked.get((c.arm, c.metric), c) for c in contrasts]


def _with_checks(family: list[Contrast], alpha: float) -> list[Contrast]:
    """Return contrasts with what other tests say, each adjusted over the family in the same way.

    A test that could not have rejected at this number of pairs is shown, and is not a disagreement.
    """
    checks: list[list[Check]] = [[] for _ in family]
    for name in dict.fromkeys(name for c in family for name in c.others):
        adjusted_p = holm_of(c.others[name][0] if name in c.others else None for c in family)
        for c, p, own in zip(family, adjusted_p, checks, strict=True):
            if name not in c.others:
                continue
            raw, floor = c.others[name]
            is_able = c.tested and floor * len(family) <= alpha
            disagrees = is_able and (p <= alpha) != c.significant(alpha)
            own.append(Check(name, raw, p if c.tested else None, disagrees))
    return [replace(c, checks=tuple(own)) for c, own in zip(family, checks, strict=True)]


def of_items(study: Study, sides: tuple[Scores, Scores], keywords: dict[str, Any]) -> MacroContrast:
    """Return the inference over seeds, or runs, and items: from scores by task, [seeds, items]."""
    return macro_contrast(
        *sides, crossed=study.inference.crossed if study.is_paired else "welch", **keywords
    )


def task_contrasts(table: Table) -> list[TaskContrast]:
    """Every task of every contrast whose controls held; diverged trials are left out.

    What could not be compared stays in the family as p = 1.
    """
    study, accuracy = table.results.study, task_accuracy(table.results)
    rows = table.results.tasks.select(["task", "chance"]).to_pylist() if accuracy else []
    chances = {row["task"]: row["chance"] for row in rows}
    family = len(study.contrasts) * len(chances)
    contrasts = []
    for arm, reference in study.contrasts:
        if table.broken(arm):
            continue
        sampled, arms = table.sampling(arm), (reference, arm)
        usable = [s for s in sampled.seeds if not any(table.why_diverged(a, s) for a in arms)]
        for task, chance in chances.items():
            seeds = tuple(s for s in usable if all((a, s, task) in accuracy for a in arms))
            if not seeds:
                continue
            theirs, ours = ([accuracy[a, s, task] for s in seeds] for a in arms)
            contrast = TaskContrast(
                arm=arm,
                reference=reference,
                task=task,
                chance=chance,
                seeds=seeds,
                baseline=float(np.mean(theirs)),
                treatment=float(np.mean(ours)),
                why_not=sampled.why_not(seeds),
            )
            if not contrast.why_not:
                keywords = registered(study) | {
                    "family": family,
                    "resolution": 1 / questions_asked(table, arm, seeds[0], task),
                    "design": sampled.design(seeds),
                }
                contrast = replace(contrast, by_run=paired_contrast(theirs, ours, **keywords))
                baseline, treatment = (question_scores(table, a, seeds, task) for a in arms)
                are_shared = [t.shape for t in baseline] == [t.shape for t in treatment]
                if study.inference.claims_new_questions and baseline and are_shared:
                    items = of_items(study, (baseline, treatment), keywords)
                    contrast = replace(contrast, items=items)
            contrasts.append(contrast)
    return with_holm(contrasts, family)


def contrast_of(
    table: Table, arm: str, reference: str, endpoint: Endpoint, tuned: Tuned | None
) -> tuple[Contrast, list[LeftOut]]:
    """One contrast of one endpoint, not adjusted yet, and the seeds that it had to leave out.

    `tuned` are the tuning trials behind the table (`tuned_before`).
    """
    study, metric = table.results.study, endpoint.metric
    declared, sampled = table.results.metrics[metric], table.sampling(arm, metric)
    ours, theirs = (table.usable(name, metric, sampled.seeds) for name in (arm, reference))
    if declared.of_pair:
        theirs = dict.fromkeys(theirs, 1.0)
    both = ours.keys() & theirs.keys() if study.is_paired else ours.keys() | theirs.keys()
    seeds = tuple(seed for seed in sampled.seeds if seed in both)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(why))
        for seed in sampled.seeds
        if (why := list(_why_left_out(table, (reference, arm), seed, metric)))
    ]
    incomparable = _why_incomparable(table, arm, reference, metric)
    if broken := table.broken(arm):
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif incomparable:
        why_not, left_out = incomparable, []
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    elif study.is_paired:
        why_not = sampled.why_not(seeds)
    else:
        why_not = _too_few(arm, ours) or _too_few(reference, theirs)
    why_not = why_not or _equal_runs(table, metric, {reference: theirs, arm: ours})
    censored = _never(table, arm, metric), _never(table, reference, metric)
    if crossings := _to_target(table, arm, reference, metric, seeds):
        ours = ours | {seed: crossing.restricted[0] for seed, crossing in crossings.items()}
        theirs = theirs | {seed: crossing.restricted[1] for seed, crossing in crossings.items()}
        never = [(math.isinf(c.ours), math.isinf(c.theirs)) for c in crossings.values()]
        censored = sum(our for our, _ in never), sum(their for _, their in never)
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
        counted=table.is_measured(metric) and not incomparable,
        sampling=sampled,
        censored=censored,
    )
    if not why_not:
        choice = choice_of(table, tuned, {reference: -1.0, arm: 1.0}, metric)
        contrast = replace(contrast, choice=choice)
        contrast = replace(contrast, by_run=_infer(table, contrast, endpoint, theirs, ours))
        contrast = _with_items(table, contrast, endpoint)
        counting = _counting_diverged(table, contrast, endpoint)
        contrast = replace(contrast, counting_diverged=counting)
    return contrast, left_out


def _infer(
    table: Table, contrast: Contrast, endpoint: Endpoint, theirs: BySeed, ours: BySeed
) -> PairedContrast | UnpairedContrast:
    """Return the registered inference over the seeds of a contrast; over all runs of both arms,
    where they are no pairs."""
    study, compared = table.results.study, contrast.declared.compared
    keywords = _keywords(table, contrast, endpoint)
    if study.trainer == RUNS and contrast.declared.scale == "linear":
        # Scores of other programs are as they were printed.
        scores = [*theirs.values(), *ours.values()]
        keywords["resolution"] = keywords["resolution"] or last_decimal(scores)
    if not study.is_paired:
        sides = ([compared(value) for value in arm.values()] for arm in (theirs, ours))
    else:
        sides = ([compared(arm[seed]) for seed in contrast.seeds] for arm in (theirs, ours))
    return infer(study, *sides, **keywords)


def last_decimal(scores: Sequence[float]) -> float:
    """Return the step of the last decimal that some score was printed with; at most 1."""
    exponents = [int(Decimal(f"{score:.15g}").normalize().as_tuple().exponent) for score in scores]
    return 10.0 ** min(0, *exponents)


def _keywords(table: Table, contrast: Contrast, endpoint: Endpoint) -> dict[str, Any]:
    """Return what a contrast is tested by."""
    study, metric = table.results.study, contrast.metric
    keywords = registered(study) | {
        "margin": contrast.margin,
        "family": _family_size(table, endpoint),
        "resolution": share_step(table, metric),
    }
    if study.is_paired:
        design = table.sampling(contrast.arm, metric).design(contrast.seeds)
        keywords |= {"design": design, "choice": contrast.choice_error}
    return keywords


def _with_items(table: Table, contrast: Contrast, endpoint: Endpoint) -> Contrast:
    """Return the contrast with what items add to it. It is paired by seed and by item where claims
    are about new items: that then decides.

    Items are questions of tasks, documents of the held-out text, or contiguous blocks of its
    windows. Where the arms do not share them, or the metric is not their mean, `items_why_not`
    says so.
    """
    study, items = table.results.study, Items(table, contrast)
    macro, why_not = None, ""
    if study.inference.claims_new_items(contrast.declared):
        scores = items.scores()
        if isinstance(scores, str):
            why_not = scores
        else:
            macro = of_items(study, scores, _keywords(table, contrast, endpoint))
    sampled = items.text(macro.n_items) if macro else ""
    return replace(
        contrast,
        items=macro,
        items_about=sampled,
        items_why_not=why_not,
        target=items.target(sampled),
    )


def _counting_diverged(table: Table, contrast: Contrast, endpoint: Endpoint) -> Contrast | None:
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
        contrast = replace(contrast, seeds=seeds)
    by_run = _infer(table, contrast, endpoint, theirs, ours)
    return replace(contrast, items=None, by_run=by_run)


def _why_left_out(table: Table, arms: tuple[str, str], seed: int, metric: str) -> Iterable[str]:
    """Yield why arms leave a seed out; of runs that are no pairs, a seed that an arm has no run of
    is not missed."""
    study = table.results.study
    for arm in arms:
        why = table.why_unusable(arm, seed, metric)
        if why and (study.is_paired or seed not in study.arm_facts(arm).absent):
            yield why


def _too_few(arm: str, values: BySeed) -> str:
    """Return why so few runs of an arm cannot be tested; empty where they can."""
    if len(values) >= 2:
        return ""
    return f"{arm} has {plural(len(values), 'comparable run')}; inference needs two of each arm"


def _equal_runs(table: Table, metric: str, values: Mapping[str, BySeed]) -> str:
    """Return that all runs of an arm have one score; empty where it may be so: of whole numbers,
    where a score says its resolution, and of our own trainer, whose seeds are proven to matter."""
    if table.results.study.trainer == STACKED or share_step(table, metric):
        return ""
    scores = {arm: list(by_seed.values()) for arm, by_seed in values.items()}
    are_counts = all(value == round(value) for arm in scores.values() for value in arm)
    if are_counts or any(_never(table, name, metric) for name in values):
        return ""  # where the target was never reached, runs stand at the budget
    for arm, scored in scores.items():
        first = scored[0] if scored else 0.0
        if len(scored) >= LEAST_EQUAL and set(scored) == {first} and first not in ENDS:
            label = table.results.metrics[metric].label
            text = f"all {len(scored)} runs of {arm} have {label} {first:g}"
            return f"{text}: does the program ignore its seed?"
    return ""


def _never(table: Table, arm: str, metric: str) -> int:
    """Return in how many runs of other programs `arm` never came to the target of the metric."""
    return sum(
        metric in record.get("facts", {}).get("censored", ())
        for (name, _), record in table.results.trials.items()
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


def with_lack_of_fit(analysis: Analysis) -> Analysis:
    """Return `analysis` with lack of fit in the error of every contrast, p adjusted again.

    Studies registered with `inference.choice = "propagated"` leave this part of the error out; what
    they registered decides. Interactions keep their errors.
    """
    if analysis.study.inference.choice != "propagated":
        return analysis
    contrasts = [_widened(analysis.study, contrast) for contrast in analysis.contrasts]
    return replace(analysis, contrasts=tuple(adjusted(contrasts, analysis.study.inference.alpha)))


def _widened(study: Study, contrast: Contrast) -> Contrast:
    choice, test, says = contrast.choice, contrast.test, contrast.decided
    if choice is None or says is None or not choice.lack_of_fit or not isinstance(test, TTest):
        return contrast
    test = replace(test, choice=math.hypot(test.choice, choice.lack_of_fit))
    asked = study.inference.model_dump(include={"alpha", "power"})
    wider = decided(test, says.test, margin=says.margin, family=says.family, **asked)
    kind = "by_run" if contrast.items is None else "items"
    inference = replace(getattr(contrast, kind), test=test, decided=wider)
    return replace(contrast, **{kind: inference})
