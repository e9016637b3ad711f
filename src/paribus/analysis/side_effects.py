"""What an arm does besides changing its endpoints: events in training, and costs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

from paribus.analysis.contrasts import holm_of
from paribus.analysis.sampling import registered
from paribus.analysis.schema import BudgetState, Cost, Costs, Stabilities
from paribus.analysis.table import Table
from paribus.results.record_format import parameters, training_flops
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    Design,
    Interval,
    StabilityEvents,
    event_rates,
    paired_contrast,
    unpaired_contrast,
)
from paribus.study import Study


def any_event(events: StabilityEvents) -> bool:
    """Return whether a trial diverged or spiked."""
    return events.diverged or events.spiked


KINDS: tuple[Callable[[StabilityEvents], bool], ...] = (
    lambda events: events.diverged,
    lambda events: events.spiked,
    any_event,
)


def stabilities_of(table: Table) -> list[Stabilities]:
    """Events of every contrast with pairs, at its look or by its stages; p adjusted over the
    contrasts. Where runs are no pairs, of all runs of both arms."""
    stabilities, p_values, events = [], [], table.events
    is_paired = table.results.study.is_paired
    for arm, reference in table.results.study.contrasts:
        sampled, arms = table.sampling(arm), (reference, arm)
        seeds = [s for s in sampled.seeds if all((name, s) in events for name in arms)]
        if is_paired:
            sides = [[events[name, seed] for seed in seeds] for name in arms]
        else:
            sides = [[e for (name, _), e in events.items() if name == whose] for whose in arms]
        if not all(sides):
            continue
        struck = [[list(map(kind, side)) for side in sides] for kind in KINDS]
        rates = [event_rates(*both, paired=is_paired) for both in struck]
        design = sampled.design(seeds) if is_paired else None
        stabilities.append(Stabilities(arm, reference, *rates))  # type: ignore[arg-type]
        p_values.append(design.of_events(*struck[-1]) if design else rates[-1].p_value)
    return [
        replace(s, holm_p=p) if s.any_event.n >= DESCRIPTIVE_BELOW else s
        for s, p in zip(stabilities, holm_of(p_values), strict=True)
    ]


AS_TRAINED = "as trained"  # a kind of throughput

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
    shares: dict[str, float | None] = {}
    for name, size in sizes.items():
        ours, theirs = (
            [n for key in trials if key[0] == each and (n := size(key))]
            for each in (arm, reference)
        )
        shares[name] = fmean(ours) / fmean(theirs) - 1 if ours and theirs else None
    return shares


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
    study, trials, sampled = table.results.study, table.results.trials, table.sampling(arm)
    arms, in_bytes = (reference, arm), not study.share_tokens(arm, reference)

    def cost(
        values: list[Mapping[int, float]], budget: float | None, *, as_ratio: bool
    ) -> Cost | None:
        """Compare what is measured of the reference and of the arm, by seed."""
        if not study.is_paired:
            few = min(map(len, values)) < 2
            theirs, ours = (list(side.values()) for side in values)
            return None if few else _cost(study, theirs, ours, budget, None, as_ratio=as_ratio)
        shared = [seed for seed in sampled.seeds if all(seed in side for side in values)]
        if sampled.why_not(shared):
            return None
        theirs, ours = ([side[seed] for seed in shared] for side in values)
        return _cost(study, theirs, ours, budget, sampled.design(shared), as_ratio=as_ratio)

    def lost(kind: str, budget: float | None = None) -> Cost | None:
        values: list[Mapping[int, float]] = [
            {
                seed: speeds[kind, name, seed]
                * (trials[name, seed]["data"]["bytes_per_token"] if in_bytes else 1.0)
                for seed in study.seeds
                # A trial that is gone has left its time in turn behind.
                if (kind, name, seed) in speeds and (name, seed) in trials
            }
            for name in arms
        ]
        return cost(values, budget, as_ratio=True)

    limits = study.decision
    in_turn = lost("training", limits.throughput_budget)
    rise = None
    if study.is_paired:
        errors: list[Mapping[int, float]] = [table.usable(n, "calibration_error") for n in arms]
        rise = cost(errors, limits.calibration_budget, as_ratio=False)
    return Costs(
        arm,
        reference,
        calibration=rise,
        throughput=in_turn or lost(AS_TRAINED, limits.throughput_budget),
        in_turn=in_turn is not None,
        prefill=lost("prefill"),
        decoding=lost("decoding"),
        in_bytes=in_bytes,
        **_sizes(table, memory, arm, reference),
    )


def _cost(
    study: Study,
    theirs: Sequence[float],
    ours: Sequence[float],
    budget: float | None,
    design: Design,
    *,
    as_ratio: bool,
) -> Cost:
    """Return the rise of a score; of ratios, the share that is lost, 1 - arm / reference, from the
    mean logarithm of ratios (where runs are no pairs, the difference of mean logarithms)."""
    keywords = registered(study)
    if as_ratio:
        theirs, ours = ([math.log(x) for x in side] for side in (theirs, ours))
    if study.is_paired:
        says = paired_contrast(theirs, ours, design=design, **keywords).decided
    else:
        says = unpaired_contrast(theirs, ours, **keywords).decided
    mean, intervals = says.mean, (says.interval, says.equivalence_interval)
    if as_ratio:
        mean = _lost(mean)
        intervals = tuple(Interval(_lost(i.high), _lost(i.low), i.level) for i in intervals)
    state = budget_state(says.n, intervals[1], budget)
    return Cost(mean, intervals[0], intervals[1], state)


def _lost(log_ratio: float) -> float:
    return -math.expm1(min(log_ratio, 700.0))


def budget_state(n: int, bounds: Interval, budget: float | None) -> BudgetState | None:
    """Judge a cost on its bounds; fewer than five pairs show nothing."""
    if budget is None:
        return None
    if n >= DESCRIPTIVE_BELOW and bounds.high <= budget:
        return "within"
    return "over" if n >= DESCRIPTIVE_BELOW and bounds.low > budget else "not shown"


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
