"""From records to inference: every contrast, tested as the study registered it.

The unit is the seed pair: treatment minus baseline at the same seed. A pair that cannot be compared
is left out by name, never in silence; a contrast whose controls are broken is not analysed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from paribus.analysis.claims import check_claims
from paribus.analysis.infer import infer
from paribus.analysis.parts import (
    Analysis,
    Contrast,
    Cost,
    Costs,
    LeftOut,
    Stabilities,
    Summary,
)
from paribus.analysis.sensitivity import sensitivities
from paribus.analysis.table import Table
from paribus.analysis.tasks import question_scores, task_contrasts
from paribus.results import Results, ResultsFolder, read_registration, why_unregistered
from paribus.statistics import (
    FamilySignFlip,
    MacroContrast,
    PairedContrast,
    PairedRates,
    StabilityEvents,
    holm,
    macro_contrast,
    max_statistic_sign_flip,
    minimum_detectable_effect,
    paired_event_rates,
    paired_t,
)
from paribus.study import Endpoint, Study

# Metrics that are means over windows of the validation split, and the column of hits.
ITEM_METRICS = {"validation_accuracy": "correct"}

AS_TRAINED = "as trained"  # a kind of throughput

# Tokens per second by (kind, arm, seed).
Speeds = dict[tuple[str, str, int], float]
Pair = tuple[StabilityEvents, StabilityEvents]
Kind = Callable[[StabilityEvents], bool]


def analyse(results: Results) -> Analysis:
    """Analyse the finished trials of `results` as their study says.

    Raises ParibusError where a record is missing or was changed.
    """
    study = results.study
    claimed = [claim.metric for claim in study.claims.values] if study.claims else []
    metrics = dict.fromkeys([*(endpoint.metric for endpoint in study.endpoints), *claimed])
    table = Table.of(results)
    speeds = _speeds(table)
    contrasts, left_out = [], []
    for endpoint in study.endpoints:
        for arm, reference in study.contrasts:
            contrast, out = _contrast(table, arm, reference, endpoint)
            contrasts.append(contrast)
            left_out += out
    return Analysis(
        study=study,
        missing=tuple(folder.label for folder in results.unfinished),
        unregistered=why_unregistered(ResultsFolder(results.path), study, results.trials),
        late_seeds=_late_seeds(results),
        controls=tuple(results.controls),
        summaries=tuple(
            Summary(arm, metric, table.usable(arm, metric))
            for metric in metrics
            for arm in study.arms
        ),
        contrasts=tuple(_adjusted(contrasts)),
        events=table.events,
        stabilities=tuple(_stabilities(study, table.events)),
        sensitivities=tuple(sensitivities(table)),
        costs=tuple(_costs(table, speeds, arm, reference) for arm, reference in study.contrasts),
        tasks=tuple(task_contrasts(table)),
        family=_family(study, contrasts),
        left_out=tuple(left_out),
        claim_checks=check_claims(results),
    )


def _contrast(
    table: Table, arm: str, reference: str, endpoint: Endpoint
) -> tuple[Contrast, list[LeftOut]]:
    study, metric = table.results.study, endpoint.metric
    ours, theirs = table.usable(arm, metric), table.usable(reference, metric)
    seeds = tuple(seed for seed in study.seeds if seed in ours and seed in theirs)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(filter(None, why)))
        for seed in study.seeds
        if any(why := [table.why_unusable(name, seed, metric) for name in (reference, arm)])
    ]
    broken = [c for c in table.results.controls if c.arm == arm and c.state == "broken"]
    why_not = ""
    if broken:
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif not table.is_measured(metric):
        why_not, left_out = f"{metric} was not measured in this study", []
    elif len(seeds) < 2:
        why_not = f"{len(seeds)} comparable seed pairs; inference needs two"
    contrast = Contrast(arm, reference, metric, endpoint.primary, seeds, None, why_not)
    if not why_not:
        paired = _infer(study, endpoint, theirs, ours)
        power, alpha = study.inference.power, study.inference.alpha
        effect = minimum_detectable_effect(
            len(seeds), power=power, alpha=alpha / len(study.contrasts)
        )
        contrast = replace(
            contrast,
            paired=paired,
            detectable=effect * paired.sd,
            items=_items(table, contrast, endpoint),
        )
    capped_ours, capped_theirs = table.capped(arm, metric), table.capped(reference, metric)
    if not broken and len(capped_ours.keys() & capped_theirs.keys()) > max(len(seeds), 1):
        contrast = replace(contrast, capped=_infer(study, endpoint, capped_theirs, capped_ours))
    return contrast, left_out


def _items(table: Table, contrast: Contrast, endpoint: Endpoint) -> MacroContrast | None:
    """Accuracy paired by seed and by item: questions of tasks, or windows of the validation split.

    The last window may be shorter; it is left out here, so that every item weighs the same.
    """
    study = table.results.study
    if contrast.metric == "macro_accuracy":
        baseline, treatment = (
            question_scores(table, arm, contrast.seeds)
            for arm in (contrast.reference, contrast.arm)
        )
        return _crossed(study, endpoint, baseline, treatment)
    if contrast.metric not in ITEM_METRICS:
        return None

    def accuracy(arm: str) -> np.ndarray:
        windows = [table.windows(arm, seed) for seed in contrast.seeds]
        full = [w["predicted"].to_numpy() == w["predicted"].to_numpy().max() for w in windows]
        hits = [w[ITEM_METRICS[contrast.metric]].to_numpy() for w in windows]
        sizes = [w["predicted"].to_numpy() for w in windows]
        return np.stack([(h / n)[f] for h, n, f in zip(hits, sizes, full, strict=True)])

    baseline, treatment = accuracy(contrast.reference), accuracy(contrast.arm)
    if baseline.shape != treatment.shape:  # the arm reads in windows of its own length
        return None
    return _crossed(study, endpoint, [baseline], [treatment])


def _crossed(
    study: Study, endpoint: Endpoint, baseline: list[np.ndarray], treatment: list[np.ndarray]
) -> MacroContrast:
    return macro_contrast(
        baseline,
        treatment,
        target=study.inference.target,
        seed=study.inference.seed,
        margin=endpoint.margin,
        alpha=study.inference.alpha,
        resamples=study.inference.resamples,
    )


def _infer(
    study: Study, endpoint: Endpoint, baseline: dict[int, float], treatment: dict[int, float]
) -> PairedContrast:
    """The registered inference over the seeds that both have."""
    seeds = [seed for seed in study.seeds if seed in baseline and seed in treatment]
    ours, theirs = ([of[seed] for seed in seeds] for of in (treatment, baseline))
    return infer(study, theirs, ours, endpoint.margin)


def _adjusted(contrasts: list[Contrast]) -> list[Contrast]:
    """Holm over the registered family: the primary endpoint in every contrast.

    A contrast that could not be analysed stays in the family as p = 1, so that losing one never
    makes the others easier.
    """
    family = [contrast for contrast in contrasts if contrast.primary]
    if not family:
        return contrasts
    adjusted = holm([c.paired.gate_p if c.paired else 1.0 for c in family])
    by_arm = {c.arm: float(p) for c, p in zip(family, adjusted, strict=True) if c.paired}
    return [
        replace(c, holm_p=by_arm[c.arm]) if c.primary and c.arm in by_arm else c for c in contrasts
    ]


def _stabilities(study: Study, events: dict[tuple[str, int], StabilityEvents]) -> list[Stabilities]:
    found = []
    for arm, reference in study.contrasts:
        pairs = [
            (events[reference, seed], events[arm, seed])
            for seed in study.seeds
            if (arm, seed) in events and (reference, seed) in events
        ]
        if not pairs:
            continue

        def rates(kind: Kind, pairs: list[Pair] = pairs) -> PairedRates:
            return paired_event_rates([kind(a) for a, _ in pairs], [kind(b) for _, b in pairs])

        found.append(
            Stabilities(
                arm,
                reference,
                diverged=rates(lambda e: e.diverged),
                spiked=rates(lambda e: e.spiked),
                any_event=rates(lambda e: e.diverged or e.spiked),
            )
        )
    adjusted = holm([s.any_event.p_value for s in found]) if found else []
    return [replace(s, holm_p=float(p)) for s, p in zip(found, adjusted, strict=True)]


def _costs(table: Table, speeds: Speeds, arm: str, reference: str) -> Costs:
    ours, theirs = (table.usable(name, "calibration_error") for name in (arm, reference))
    level = 1 - table.results.study.inference.alpha

    def loss_of(kind: str) -> Cost | None:
        return _cost(
            [
                1 - speeds[kind, arm, seed] / speeds[kind, reference, seed]
                for seed in table.results.study.seeds
                if (kind, arm, seed) in speeds and (kind, reference, seed) in speeds
            ],
            level,
        )

    in_turn = loss_of("training")
    return Costs(
        arm,
        reference,
        calibration=_cost([ours[seed] - theirs[seed] for seed in ours if seed in theirs], level),
        throughput=in_turn or loss_of(AS_TRAINED),
        in_turn=in_turn is not None,
        prefill=loss_of("prefill"),
        decoding=loss_of("decoding"),
    )


def _speeds(table: Table) -> Speeds:
    """Tokens per second by (kind, arm, seed): measured in turn, and as timed while training."""
    trials = table.results.trials
    as_trained = {
        (AS_TRAINED, *trial): trials[trial]["tokens"] / timing["training_seconds"]
        for trial, timing in table.results.timing.items()
    }
    in_turn = {
        (row["kind"], row["arm"], row["seed"]): row["tokens"] / row["seconds"]
        for row in table.results.throughput.to_pylist()
    }
    return as_trained | in_turn


def _cost(deltas: list[float], level: float) -> Cost | None:
    if len(deltas) < 2:
        return None
    t = paired_t(deltas)
    return Cost(t.mean, t.interval(level))


def _family(study: Study, contrasts: list[Contrast]) -> FamilySignFlip | None:
    """Over the seeds that every analysed contrast of the primary endpoint has."""
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


def _late_seeds(results: Results) -> tuple[int, ...]:
    registered = read_registration(ResultsFolder(results.path)) or {}
    return tuple(registered.get("seeds_added_after_results", ()))
