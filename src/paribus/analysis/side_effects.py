"""What an arm does besides changing its endpoints: events in training, and costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from paribus.analysis.sampling import registered
from paribus.analysis.schema import BudgetState, Cost, Costs, Stabilities
from paribus.analysis.table import Table
from paribus.results.record_format import parameters, training_flops
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    Interval,
    OneLook,
    StabilityEvents,
    Stages,
    holm,
    paired_contrast,
    paired_event_rates,
    unpaired_contrast,
    unpaired_event_rates,
)
from paribus.study import Study

Pair = tuple[StabilityEvents, StabilityEvents]
Kind = Callable[[StabilityEvents], bool]


def any_event(events: StabilityEvents) -> bool:
    """Return whether a trial diverged or spiked."""
    return events.diverged or events.spiked


def stabilities_of(table: Table) -> list[Stabilities]:
    """Events of every contrast with pairs, at its look or by its stages; p adjusted over the
    contrasts."""
    stabilities, p_values, events = [], [], table.events
    for arm, reference in table.results.study.contrasts:
        sampled = table.sampling(arm)
        if not table.results.study.is_paired:
            if stability := _unpaired_stabilities(table, arm, reference):
                stabilities.append(stability)
                p_values.append(stability.any_event.p_value)
            continue
        seeds = [s for s in sampled.seeds if (arm, s) in events and (reference, s) in events]
        pairs = [(events[reference, seed], events[arm, seed]) for seed in seeds]
        if not pairs:
            continue

        def events_of(kind: Kind, pairs: list[Pair] = pairs) -> tuple[list[bool], list[bool]]:
            return [kind(a) for a, _ in pairs], [kind(b) for _, b in pairs]

        stability = Stabilities(
            arm,
            reference,
            diverged=paired_event_rates(*events_of(lambda e: e.diverged)),
            spiked=paired_event_rates(*events_of(lambda e: e.spiked)),
            any_event=paired_event_rates(*events_of(any_event)),
        )
        design = sampled.design(seeds)
        stabilities.append(stability)
        p_values.append(
            design.of_events(*events_of(any_event)) if design else stability.any_event.p_value
        )
    adjusted = holm(p_values) if stabilities else []
    return [
        replace(s, holm_p=float(p)) if s.any_event.n >= DESCRIPTIVE_BELOW else s
        for s, p in zip(stabilities, adjusted, strict=True)
    ]


def _unpaired_stabilities(table: Table, arm: str, reference: str) -> Stabilities | None:
    """Events of all runs of both arms; None where one has none."""
    theirs, ours = (
        [events for (name, _), events in table.events.items() if name == whose]
        for whose in (reference, arm)
    )
    if not theirs or not ours:
        return None
    kinds: tuple[Kind, ...] = (lambda e: e.diverged, lambda e: e.spiked, any_event)
    diverged, spiked, either = (
        unpaired_event_rates(list(map(kind, theirs)), list(map(kind, ours))) for kind in kinds
    )
    return Stabilities(arm, reference, diverged, spiked, either)


AS_TRAINED = "as trained"  # a kind of throughput

SampledBy = OneLook | Stages | None
# Tokens per second by (kind, arm, seed).
Speeds = dict[tuple[str, str, int], float]
# Bytes that training holds by (arm, seed).
Memory = dict[tuple[str, int], float]


def _sizes(table: Table, memory: Memory, arm: str, reference: str) -> dict[str, float | None]:
    """Return by what share an arm has more parameters, training FLOPs and memory of training than
    its reference."""
    trials = table.results.trials
    sizes: dict[str, Callable[[tuple[str, int]], float | None]] = {
        "more_parameters": lambda key: parameters(trials[key]),
        "more_flops": lambda key: training_flops(trials[key]),
        "more_memory": memory.get,
    }
    found: dict[str, float | None] = {}
    for name, size in sizes.items():
        ours, theirs = (
            [n for key in trials if key[0] == each and (n := size(key))]
            for each in (arm, reference)
        )
        found[name] = fmean(ours) / fmean(theirs) - 1 if ours and theirs else None
    return found


def costs(table: Table) -> list[Costs]:
    """Return what every contrast costs."""
    in_turn = table.results.throughput.to_pylist()
    speeds = _speeds(table, in_turn)
    memory = {(row["arm"], row["seed"]): row["bytes"] for row in in_turn if row["bytes"]}
    return [
        _costs(table, speeds, memory, arm, reference)
        for arm, reference in table.results.study.contrasts
    ]


def _costs(table: Table, speeds: Speeds, memory: Memory, arm: str, reference: str) -> Costs:
    study = table.results.study
    ours, theirs = (table.usable(name, "calibration_error") for name in (arm, reference))
    sampled = table.sampling(arm)
    shared = [seed for seed in sampled.seeds if seed in ours and seed in theirs]

    design = sampled.design

    in_bytes = not study.share_tokens(arm, reference)

    def speed(kind: str, arm: str, seed: int) -> float:
        size = table.results.trials[arm, seed]["data"]["bytes_per_token"] if in_bytes else 1.0
        return speeds[kind, arm, seed] * size

    def lost(kind: str, budget: float | None = None) -> Cost | None:
        if not study.is_paired:
            theirs, ours = (
                [
                    speed(kind, name, seed)
                    for seed in study.seeds
                    if (kind, name, seed) in speeds and (name, seed) in table.results.trials
                ]
                for name in (reference, arm)
            )
            few = min(len(theirs), len(ours)) < 2
            return None if few else _share_lost(study, theirs, ours, budget, None)
        # A trial that is gone has left its time in turn behind.
        both = [
            seed
            for seed in sampled.seeds
            if all(
                (kind, name, seed) in speeds and (name, seed) in table.results.trials
                for name in (arm, reference)
            )
        ]
        if sampled.why_not(both):
            return None
        theirs, ours = ([speed(kind, name, seed) for seed in both] for name in (reference, arm))
        return _share_lost(study, theirs, ours, budget, design(both))

    in_turn = lost("training", study.decision.throughput_budget)
    rise = None
    if study.is_paired and not sampled.why_not(shared):
        rise = _rise(study, [(theirs[seed], ours[seed]) for seed in shared], design(shared))
    return Costs(
        arm,
        reference,
        calibration=rise,
        throughput=in_turn or lost(AS_TRAINED, study.decision.throughput_budget),
        in_turn=in_turn is not None,
        prefill=lost("prefill"),
        decoding=lost("decoding"),
        in_bytes=in_bytes,
        **_sizes(table, memory, arm, reference),
    )


def _rise(study: Study, pairs: list[tuple[float, float]], design: SampledBy) -> Cost:
    """Return the rise of a score, over pairs of (reference, arm)."""
    theirs, ours = zip(*pairs, strict=True)
    says = paired_contrast(theirs, ours, design=design, **registered(study)).decided
    budget = study.decision.calibration_budget
    return _judged(len(pairs), says.mean, says.interval, says.equivalence_interval, budget)


def _share_lost(
    study: Study,
    theirs: list[float],
    ours: list[float],
    budget: float | None,
    design: SampledBy,
) -> Cost:
    """Return the share of a speed that is lost, 1 - arm / reference, from the mean logarithm of
    ratios; where runs are no pairs, from the difference of mean logarithms."""
    logs = [math.log(x) for x in theirs], [math.log(x) for x in ours]
    keywords = registered(study)
    if study.is_paired:
        says = paired_contrast(*logs, design=design, **keywords).decided
    else:
        says = unpaired_contrast(*logs, **keywords).decided

    def share(interval: Interval) -> Interval:
        return Interval(_lost(interval.high), _lost(interval.low), interval.level)

    interval, bounds = share(says.interval), share(says.equivalence_interval)
    return _judged(says.n, _lost(says.mean), interval, bounds, budget)


def _lost(log_ratio: float) -> float:
    return -math.expm1(min(log_ratio, 700.0))


def _judged(
    n: int, mean: float, interval: Interval, bounds: Interval, budget: float | None
) -> Cost:
    state: BudgetState | None = None if budget is None else "not shown"
    if budget is not None and n >= DESCRIPTIVE_BELOW:
        state = (
            "within" if bounds.high <= budget else "over" if bounds.low > budget else "not shown"
        )
    return Cost(mean, interval, bounds, state)


def _speeds(table: Table, rows: Sequence[Mapping[str, Any]]) -> Speeds:
    """Tokens per second by (kind, arm, seed): measured in turn, and as timed while training."""
    trials = table.results.trials
    as_trained = {
        (AS_TRAINED, *trial): trials[trial].get("tokens", 1) / timing["training_seconds"]
        for trial, timing in table.results.timing.items()
        if trial in trials
    }
    in_turn = {
        (row["kind"], row["arm"], row["seed"]): row["tokens"] / row["seconds"] for row in rows
    }
    return as_trained | in_turn
