"""One contrast of one endpoint or task, tested as the study registered it.

A pair that cannot be compared is left out by name, never in silence; a contrast whose controls are
broken is not analysed. Looks and the analysis ask the same. What is claimed of new text or new
questions is claimed of new items, so these are samples as the seeds are: documents, questions, or
contiguous blocks where the text is one document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from paribus.analysis.choice import choice_of
from paribus.analysis.sampling import Sampling, registered
from paribus.analysis.schema import Check, Contrast, LeftOut, OtherText, TaskContrast
from paribus.analysis.score_grid import repeated_scores, score_steps
from paribus.analysis.table import Table
from paribus.analysis.tuning import Tried
from paribus.errors import ParibusError
from paribus.metric import QUESTIONS, ItemSums
from paribus.numbers import plural
from paribus.results import Results
from paribus.results.curve_metrics import Needed, needed, target_axis
from paribus.results.record_format import records_of
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    LEAST_IN_BLOCK,
    MacroContrast,
    PairedContrast,
    UnpairedContrast,
    UnpairedMacro,
    contiguous_blocks,
    crossed_components,
    holm,
    item_deltas,
    joined,
    macro_contrast,
    paired_contrast,
    unpaired_contrast,
    unpaired_macro,
)
from paribus.study import Endpoint
from paribus.study.sections import HELD_OUT
from paribus.study.trainer import RUNS, STACKED

ITEMS = {"predicted": "tokens"}  # what counts of a text are called
LEAST_EQUAL = 3  # runs of an arm; two may be equal by chance
ENDS = (0.0, 1.0, 100.0)  # of a share, where runs may well be equal


def block_scores(
    table: Table, items: ItemSums, arm: str, seeds: tuple[int, ...], n_blocks: int | None = None
) -> np.ndarray:
    """[S, I] the score of every block at every seed, such that their mean is that of the text.

    Blocks are as recorded, or so many contiguous ones of these.
    """
    totals, counts = (
        np.stack([_column(table, arm, seed, name) for seed in seeds])
        for name in (items.total, items.count)
    )
    if n_blocks is not None:
        totals, counts = joined(totals, n_blocks), joined(counts, n_blocks)
    return items.scale * linearised(totals, counts)


def linearised(y: np.ndarray, x: np.ndarray) -> np.ndarray:
    """[S, I] scores of blocks with totals `y` and counts `x`, both [S, I], for resampling.

    A ratio of sums over blocks of unequal sizes is linearised (Cochran 1977, Sampling Techniques,
    section 6.4): block i has R + (y_i - R x_i) / mean(x) with R = sum(y) / sum(x), whose mean is R.
    Blocks of equal sizes have y_i / x_i.
    """
    R = y.sum(axis=1, keepdims=True) / x.sum(axis=1, keepdims=True)
    return R + (y - R * x) / x.mean(axis=1, keepdims=True)


def why_other_blocks(table: Table, arm: str, reference: str, seed: int, other: int) -> str:
    """Return why two arms share no blocks of text, by a trial of each: that of `arm` at `seed`, of
    `reference` at `other`; empty where they do."""
    trials = ((arm, seed), (reference, other))
    kinds = {table.results.trials[trial]["blocks"]["kind"] for trial in trials}
    # The same text has the same characters in each of its blocks, whatever its tokens are; but the
    # first token of the text, which no token predicts, is longer in one tokenizer than in another.
    first = 1 if kinds == {"document"} else 0
    column = records_of(table.results.study).aligned_by
    lengths = [_column(table, *trial, column)[first:] for trial in trials]
    if len(kinds) == 1 and np.array_equal(lengths[0], lengths[1]):
        return ""
    return "the arms read the validation text in windows of other lengths"


def resolution(table: Table, items: ItemSums, trial: tuple[str, int]) -> float | None:
    """Return the least change of a metric whose totals are whole numbers; None of others."""
    if not items.step:
        return None
    return items.scale * items.step / float(np.sum(_column(table, *trial, items.count)))


def _column(table: Table, arm: str, seed: int, name: str) -> np.ndarray:
    """[I] float64. Raises ParibusError where the trial's blocks have no such column."""
    blocks = table.results.trial_blocks[arm, seed]
    if name not in blocks.column_names:
        raise ParibusError(f"trial {arm}/seed-{seed}: blocks.parquet has no column '{name}'")
    return blocks[name].to_numpy(zero_copy_only=False).astype(float)


def task_contrasts(table: Table) -> list[TaskContrast]:
    """Every task of every contrast whose controls held; diverged trials are left out.

    What could not be compared stays in the family as p = 1, so that losing a contrast never helps
    the others.
    """
    study = table.results.study
    accuracy = task_accuracy(table.results)
    there = table.results.tasks.select(["task", "chance"]).to_pylist() if accuracy else []
    chances = {row["task"]: row["chance"] for row in there}
    family = len(study.contrasts) * len(chances)
    found = []
    for arm, reference in study.contrasts:
        if table.broken(arm):
            continue
        sampled, arms = table.sampling(arm), (arm, reference)
        usable = [s for s in study.seeds if not any(table.why_diverged(a, s) for a in arms)]
        for task, chance in chances.items():
            seeds = tuple(
                seed
                for seed in sampled.seeds
                if seed in usable
                and {(arm, seed, task), (reference, seed, task)} <= accuracy.keys()
            )
            if not seeds:
                continue
            theirs = [accuracy[reference, seed, task] for seed in seeds]
            ours = [accuracy[arm, seed, task] for seed in seeds]
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
            found.append(contrast)
    if not found:
        return found
    p_values = [c.decided.p_value if c.decided else 1.0 for c in found]
    adjusted = holm(p_values + [1.0] * (family - len(found)))
    return [
        replace(c, holm_p=float(p)) if len(c.seeds) >= DESCRIPTIVE_BELOW else c
        for c, p in zip(found, adjusted, strict=False)
    ]


def _task_items(
    table: Table, contrast: TaskContrast, about: dict[str, Any]
) -> MacroContrast | None:
    """Paired by seed and by question, where claims are about new ones and the arms share these."""
    study = table.results.study
    if not study.inference.of_new_questions:
        return None
    baseline, treatment = (
        question_scores(table, arm, contrast.seeds, contrast.task)
        for arm in (contrast.reference, contrast.arm)
    )
    if not baseline or [task.shape for task in baseline] != [task.shape for task in treatment]:
        return None
    return macro_contrast(baseline, treatment, **about, crossed=study.inference.crossed)


def task_accuracy(results: Results) -> dict[tuple[str, int, str], float]:
    """Accuracy by (arm, seed, task), the mean over numbers of shots."""
    answers_by_trial: dict[tuple[str, int, str], list[float]] = {}
    columns = ["arm", "seed", "task", "accuracy"]
    for row in results.tasks.select(columns).to_pylist() if len(results.tasks) else ():
        answers_by_trial.setdefault((row["arm"], row["seed"], row["task"]), []).append(
            row["accuracy"]
        )
    return {key: math.fsum(values) / len(values) for key, values in answers_by_trial.items()}


def question_scores(
    table: Table, arm: str, seeds: tuple[int, ...], task: str | None = None
) -> list[np.ndarray]:
    """By task [seeds, questions]: the share of the numbers of shots at which it was right.

    Of one task, or of all that the trials answered.

    Questions are in one order in every trial, whose prompts the controls have compared.
    """
    trials = [table.results.trial_answers[arm, seed] for seed in seeds]
    asked = [name for name in (trials[0] if trials else ()) if task in (None, name)]
    return [np.stack([trial[name].right for trial in trials]) for name in asked]


def questions_asked(table: Table, arm: str, seed: int, task: str | None = None) -> int:
    """Questions that a trial answered at all numbers of shots, of one task or of all."""
    answers = table.results.trial_answers[arm, seed]
    return sum(answer.asked for name, answer in answers.items() if task in (None, name))


def contrast_of(
    table: Table, arm: str, reference: str, endpoint: Endpoint, tried: Tried | None
) -> tuple[Contrast, list[LeftOut]]:
    """One contrast of one endpoint, not adjusted yet, and the seeds that it had to leave out.

    `tried` are the tuning trials behind the table (`tried_before`).
    """
    metric, sampled = endpoint.metric, table.sampling(arm, endpoint.metric)
    ours, theirs = (table.usable(name, metric, sampled.seeds) for name in (arm, reference))
    if table.results.metrics[metric].of_pair:
        theirs = dict.fromkeys(theirs, 1.0)
    paired = table.results.study.is_paired
    if paired:
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
    broken = table.broken(arm)
    if broken:
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif incomparable := _why_incomparable(table, arm, reference, metric):
        why_not, left_out = incomparable, []
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    elif not why_not:
        why_not = _equal_runs(table, metric, {reference: theirs, arm: ours})
    compared = _to_target(table, arm, reference, metric, seeds)
    if compared:
        ours = ours | {seed: crossing.restricted[0] for seed, crossing in compared.items()}
        theirs = theirs | {seed: crossing.restricted[1] for seed, crossing in compared.items()}
    late_ours = sum(crossing.ours == math.inf for crossing in compared.values())
    late_theirs = sum(crossing.theirs == math.inf for crossing in compared.values())
    if not compared:
        late_ours, late_theirs = (_never(table, name, metric) for name in (arm, reference))
    contrast = Contrast(
        *(arm, reference, metric, endpoint.primary, seeds, None, why_not),
        declared=table.results.metrics[metric],
        margin=_stated(table, endpoint, endpoint.margin),
        smallest_effect=_stated(table, endpoint, endpoint.smallest_effect),
        counted=table.is_measured(metric) and not _why_incomparable(table, arm, reference, metric),
        sampling=sampled,
        censored=(late_ours, late_theirs),
        choice=None if why_not else choice_of(table, tried, {reference: -1.0, arm: 1.0}, metric),
    )
    if not why_not and not paired:
        contrast = replace(contrast, unpaired=_infer_unpaired(table, endpoint, theirs, ours))
    if not why_not:
        items, items_why_not = _items(table, contrast, endpoint)
        about = _about(table, contrast, sum(items.crossed.n_items)) if items else ""
        contrast = replace(
            contrast,
            paired=_infer(table, sampled, endpoint, theirs, ours, contrast.choice_error)
            if paired
            else None,
            items=items,
            items_about=about,
            items_why_not=items_why_not,
            target=_target(table, contrast, about),
            other_text=_other_text(table, contrast),
        )
    contrast = replace(contrast, counting_diverged=_counting_diverged(table, endpoint, contrast))
    if not paired:
        return contrast, left_out
    capped_ours, capped_theirs = (
        table.capped(name, metric, sampled.seeds) for name in (arm, reference)
    )
    shared = capped_ours.keys() & capped_theirs.keys()
    if not broken and len(shared) > max(len(seeds), 1) and not sampled.why_not(shared):
        about = sampled, endpoint, capped_theirs, capped_ours, contrast.choice_error
        capped = _infer(table, *about)
        contrast = replace(contrast, capped=capped)
    return contrast, left_out


def _counting_diverged(table: Table, endpoint: Endpoint, contrast: Contrast) -> Contrast | None:
    """Return the contrast with diverged runs counted at the worst finite score of both arms.

    None without a diverged run, without a test of the runs that survived, for a secondary endpoint,
    and for a metric that only a pair of finished runs has.

    The worst finite score is a mild choice on purpose: at the score of an untrained model a single
    diverged run outweighs any gain, and a gain of 5 SD is found in a third of studies.
    """
    metric, arms = contrast.declared, (contrast.reference, contrast.arm)
    sampled = table.sampling(contrast.arm, contrast.metric)
    seeds = sampled.seeds
    if table.results.study.is_paired:  # a run without a partner is in no pair
        seeds = tuple(s for s in seeds if all((arm, s) in table.events for arm in arms))
    exists = endpoint.primary and contrast.decided is not None
    if not exists or metric.of_pair or target_axis(contrast.metric) is not None:
        return None
    if not any(table.has_diverged(arm, seed) for arm in arms for seed in seeds):
        return None
    finite = [v for arm in arms for v in table.usable(arm, contrast.metric, seeds).values()]
    worst = min(finite) if metric.better == "higher" else max(finite)
    theirs, ours = (table.counting_diverged(arm, contrast.metric, seeds, worst) for arm in arms)
    counted = replace(contrast, items=None, capped=None)
    if contrast.unpaired:
        return replace(counted, unpaired=_infer_unpaired(table, endpoint, theirs, ours))
    shared = tuple(seed for seed in seeds if seed in ours and seed in theirs)
    if sampled.why_not(shared):
        return None
    paired = _infer(table, sampled, endpoint, theirs, ours, contrast.choice_error)
    return replace(counted, seeds=shared, paired=paired)


def _why_left_out(
    table: Table, arm: str, reference: str, seed: int, metric: str
) -> tuple[str, ...]:
    """Return of both arms why a seed is left out; of runs that are no pairs, what an arm has no run
    of is not missed."""
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
    if any(_never(table, name, metric) for name in values):
        return ""  # they stand at the budget
    label = table.results.metrics[metric].label
    every = [value for by_seed in values.values() for value in by_seed.values()]
    are_whole = all(value == round(value) for value in every)

    def may_recur(value: float) -> bool:
        """Return whether equal runs are no surprise: of counts, and at the ends of a share."""
        return are_whole or value in ENDS

    for arm, by_seed in values.items():
        first = next(iter(by_seed.values()))
        if (
            len(by_seed) >= LEAST_EQUAL
            and set(by_seed.values()) == {first}
            and not may_recur(first)
        ):
            text = f"all {len(by_seed)} runs of {arm} have {label} {first:g}"
            return f"{text}: does the program ignore its seed?"
    for arm, (value, n) in repeated_scores(
        {arm: [v for v in by_seed.values() if not may_recur(v)] for arm, by_seed in values.items()}
    ).items():
        return (
            f"{n} of {len(values[arm])} runs of {arm} have {label} {value!r}: is it one run under "
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
    values_by_seed = {
        seed: needed(curves[arm, seed], curves[reference, seed], target, axis) for seed in seeds
    }
    return {seed: value for seed, value in values_by_seed.items() if value is not None}


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


def _stated(table: Table, endpoint: Endpoint, change: float | None) -> float | None:
    """Return a change that the study states, as the endpoint is compared."""
    return None if change is None else table.results.metrics[endpoint.metric].change(change)


def _items(
    table: Table, contrast: Contrast, endpoint: Endpoint
) -> tuple[MacroContrast | UnpairedMacro | None, str]:
    """Return the endpoint paired by seed and by item, where claims are about new items: it then
    decides.

    Items are questions of tasks, documents of the held-out text, or contiguous blocks of its
    windows. Where the arms do not share them, or the metric is no mean over them, the second entry
    says so.
    """
    study = table.results.study
    if not study.inference.of_new_items(contrast.declared):
        return None, ""
    scores = item_scores(table, contrast)
    if isinstance(scores, str):
        return None, scores
    keywords: dict[str, Any] = registered(study) | {
        "margin": contrast.margin,
        "family": _family_size(table, endpoint),
        "resolution": share_step(table, contrast.metric),
        "choice": contrast.choice_error,
    }
    if not study.is_paired:
        return unpaired_macro(*scores, **keywords), ""
    design = table.sampling(contrast.arm, contrast.metric).design(contrast.seeds)
    return macro_contrast(*scores, crossed=study.inference.crossed, design=design, **keywords), ""


def item_scores(
    table: Table, contrast: Contrast
) -> tuple[list[np.ndarray], list[np.ndarray]] | str:
    """Return scores of the reference and of the arm, [seeds, items] by task; or why the arms
    cannot be paired by item, in words."""
    over = contrast.declared.items
    if not over:
        return f"{contrast.declared.label} is no ratio of sums over items"
    if isinstance(over, str):
        baseline, treatment = (
            question_scores(table, arm, _seeds_of(table, contrast, arm), contrast.declared.task)
            for arm in (contrast.reference, contrast.arm)
        )
    else:
        arms = contrast.reference, contrast.arm
        first = [_seeds_of(table, contrast, arm)[0] for arm in arms]
        if why := why_other_blocks(table, *arms, *first):
            return why
        n_blocks = _contiguous(table, contrast)
        if _is_short(table, contrast):
            text = plural(_recorded(table, contrast), "window")
            return (
                f"a text of {text} is too short for {DESCRIPTIVE_BELOW} blocks of {LEAST_IN_BLOCK}"
            )
        baseline, treatment = (
            [block_scores(table, over, arm, _seeds_of(table, contrast, arm), n_blocks)]
            for arm in arms
        )
    if [task.shape[1] for task in baseline] != [task.shape[1] for task in treatment]:
        return "the arms were not asked the same questions"
    if all(task.shape[1] < 2 for task in baseline):
        return "a single item says nothing of others"
    return baseline, treatment


def _seeds_of(table: Table, contrast: Contrast, arm: str) -> tuple[int, ...]:
    """Return the seeds at which `arm` is compared: where runs are no pairs, its own."""
    if table.results.study.is_paired:
        return contrast.seeds
    return tuple(table.usable(arm, contrast.metric, contrast.seeds))


def _other_text(table: Table, contrast: Contrast) -> OtherText | None:
    """Return what the choice of held-out text would add to the error of a primary endpoint whose
    claim is of this text; None where nothing is recorded by item."""
    metric = contrast.declared
    if not table.results.study.is_paired:
        return None
    items, claimed = metric.items, table.results.study.inference.of_new_items(metric)
    if not isinstance(items, ItemSums) or metric.record not in HELD_OUT:
        return None
    if not (contrast.primary and table.results.has_blocks) or claimed:
        return None
    scores = item_scores(table, contrast)
    if isinstance(scores, str):
        if _is_short(table, contrast):
            first = contrast.arm, contrast.seeds[0]
            n = _column(table, *first, items.count).sum()
            return OtherText(None, f"{n:,.0f} {ITEMS.get(items.count, items.count)}")
        return None
    components = crossed_components(item_deltas(*scores))
    return OtherText(components.item_error, _about(table, contrast, sum(components.n_items)))


def _blocks(table: Table, contrast: Contrast) -> Mapping[str, Any]:
    """Return what is recorded of the blocks of the held-out text: `kind`, `items`, `blocks`."""
    first = _seeds_of(table, contrast, contrast.arm)[0]
    return table.results.trials[contrast.arm, first]["blocks"]


def _recorded(table: Table, contrast: Contrast) -> int:
    """Return how many blocks there are sums of: fewer than of the text, where these were kept."""
    first = _seeds_of(table, contrast, contrast.arm)[0]
    return len(table.results.trial_blocks[contrast.arm, first])


def _contiguous(table: Table, contrast: Contrast) -> int | None:
    """Return to how many contiguous blocks the items of one text are joined; None where items are
    independent of each other, or the study takes them to be."""
    blocks = _blocks(table, contrast)
    if blocks["kind"] != "window" or table.results.study.inference.windows == "independent":
        return None
    return contiguous_blocks(_recorded(table, contrast))


def _is_short(table: Table, contrast: Contrast) -> bool:
    """Return whether the held-out text is too short to say how much contiguous blocks differ."""
    n_blocks = _contiguous(table, contrast)
    return n_blocks is not None and n_blocks < DESCRIPTIVE_BELOW


def _about(table: Table, contrast: Contrast, n: int) -> str:
    """`384 questions`, `40 documents`, `1,024 blocks of 3,000 documents`, `10 contiguous blocks of
    text`."""
    if isinstance(contrast.declared.items, str):
        return f"{n:,} questions"
    if _contiguous(table, contrast) is not None:
        return f"{n:,} contiguous blocks of text"
    blocks = _blocks(table, contrast)
    counted = f"{blocks['items']:,} {blocks['kind']}s"
    return counted if blocks["items"] == n else f"{n:,} blocks of {counted}"


def _target(table: Table, contrast: Contrast, about: str) -> str:
    """Return what is claimed of besides new seeds, where `about` are the items that are samples
    too: `this text`, `text like these 40 documents`; empty of no held-out text or tasks.
    """
    metric = contrast.declared
    if metric.items == QUESTIONS:
        n = about.partition(" ")[0]
        return f"questions like these {n}" if about else "these questions"
    if metric.record not in HELD_OUT:
        return ""
    if table.results.study.trainer == RUNS and not about:  # nobody says what scores are of
        return ""
    if table.results.study.trainer != STACKED:  # which may hold out what is no text
        return f"items like these {about}" if about else "this held-out data"
    if not about:
        return "this text"
    if _contiguous(table, contrast) is not None:
        return f"this text (error over {about.removesuffix(' of text')})"
    return f"text like these {about}"


def share_step(table: Table, metric: str) -> float | None:
    """Return the step of a share of items; None where it is no share."""
    trial = next(iter(table.events), None)
    declared, study = table.results.metrics[metric], table.results.study
    if (stated := study.facts.resolution.get(metric)) is not None:
        return stated
    if trial is None or not declared.items:
        return None
    if isinstance(declared.items, str):
        asked = questions_asked(table, *trial, declared.task)
        return 1 / asked if asked else None
    return resolution(table, declared.items, trial)


def _infer_unpaired(
    table: Table, endpoint: Endpoint, baseline: dict[int, float], treatment: dict[int, float]
) -> UnpairedContrast:
    """Return the registered inference over the runs of both arms, which are no pairs."""
    study, metric = table.results.study, table.results.metrics[endpoint.metric]
    keywords = registered(study)
    return unpaired_contrast(
        [metric.compared(value) for value in baseline.values()],
        [metric.compared(value) for value in treatment.values()],
        **keywords,
        margin=_stated(table, endpoint, endpoint.margin),
        family=_family_size(table, endpoint),
        **_resolution(table, endpoint.metric, (baseline, treatment)),
    )


def _resolution(table: Table, metric: str, arms: Sequence[Mapping[int, float]]) -> dict[str, Any]:
    """Return the resolution of a score, and whether it is one of rounding.

    The scores of runs of other programs are as they were printed: the arm with the coarser grid
    sets the step, unless the study states it.
    """
    stated = share_step(table, metric)
    is_linear = table.results.metrics[metric].scale == "linear"
    if table.results.study.trainer != RUNS or not is_linear:
        return {"resolution": stated}
    if stated is not None:
        return {"resolution": stated, "rounded": True}
    step = max(score_steps([list(arm.values()) for arm in arms if arm]))
    return {"resolution": step, "rounded": True}


def _infer(
    table: Table,
    sampled: Sampling,
    endpoint: Endpoint,
    baseline: dict[int, float],
    treatment: dict[int, float],
    choice: float,
) -> PairedContrast:
    """Return the registered inference over the seeds that both have."""
    metric = table.results.metrics[endpoint.metric]
    seeds = [seed for seed in sampled.seeds if seed in baseline and seed in treatment]
    return paired_contrast(
        [metric.compared(baseline[seed]) for seed in seeds],
        [metric.compared(treatment[seed]) for seed in seeds],
        **registered(table.results.study),
        margin=_stated(table, endpoint, endpoint.margin),
        family=_family_size(table, endpoint),
        **_resolution(table, endpoint.metric, (baseline, treatment)),
        design=sampled.design(seeds),
        choice=choice,
    )


def adjusted(contrasts: list[Contrast], alpha: float) -> list[Contrast]:
    """Return the same contrasts with their p adjusted in their families."""
    checked = []
    for primary in (True, False):
        family = [c for c in contrasts if c.primary == primary and c.counted]
        if family:
            counted = _adjusted([c.counting_diverged or c for c in family], alpha)
            checked += [
                replace(c, counting_diverged=again if c.counting_diverged else None)
                for c, again in zip(_adjusted(family, alpha), counted, strict=True)
            ]
    by_name = {(c.arm, c.metric): c for c in checked}
    return [by_name.get((c.arm, c.metric), c) for c in contrasts]


def _adjusted(family: list[Contrast], alpha: float) -> list[Contrast]:
    says = [c.decided for c in family]
    # Of a trial that was censored nobody knows how far it is from the other: no equality is shown.
    known = [not any(c.censored) for c in family]
    tested = holm([d.p_value if d else 1.0 for d in says])
    equal = _with_margin(
        family, [d.equivalence_p if d and ok else None for d, ok in zip(says, known, strict=True)]
    )
    not_worse = _with_margin(
        family, [c.not_worse_p if ok else None for c, ok in zip(family, known, strict=True)]
    )
    checks = _checks(family, [float(p) for p in tested], alpha)
    with_p = []
    for c, p, checked in zip(family, tested, checks, strict=True):
        if c.decided is None:
            with_p.append(c)
        elif c.decided.descriptive_only:
            with_p.append(replace(c, checks=tuple(replace(one, holm_p=None) for one in checked)))
        else:
            p_values = {"equivalence_holm_p": equal.get(c), "not_worse_holm_p": not_worse.get(c)}
            with_p.append(replace(c, holm_p=float(p), checks=checked, **p_values))
    return with_p


def _with_margin(family: list[Contrast], p_values: list[float | None]) -> dict[Contrast, float]:
    """p against the margins, adjusted over the contrasts of the family that have one."""
    named = {c: p for c, p in zip(family, p_values, strict=True) if c.margin is not None}
    if not named:
        return {}
    adjusted = holm([1.0 if p is None else p for p in named.values()])
    return dict(zip(named, map(float, adjusted), strict=True))


def _checks(family: list[Contrast], decided: list[float], alpha: float) -> list[tuple[Check, ...]]:
    """Return what other tests say of each contrast, each adjusted over the family in the same
    way.

    A test that could not have rejected at this number of pairs is shown, and is no disagreement.
    """
    names = dict.fromkeys(name for c in family for name in c.others)
    by_contrast: list[list[Check]] = [[] for _ in family]
    for name in names:
        p_values = [c.others.get(name, 1.0) for c in family]
        for i, p in enumerate(holm(p_values).tolist()):
            if name not in family[i].others:
                continue
            says = family[i].decided
            able = says is not None and not says.descriptive_only
            able = able and family[i].floor(name) * len(family) <= alpha
            disagrees = able and (p <= alpha) != (decided[i] <= alpha)
            by_contrast[i].append(Check(name, p_values[i], p, disagrees))
    return [tuple(checks) for checks in by_contrast]
