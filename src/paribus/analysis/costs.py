"""What arms cost besides quality: calibration, and tokens per second.

Tokens of one tokenizer are other pieces of text than those of another: such arms are compared by
the bytes that their tokens stand for, by the mean over their training text.

Throughput is compared as a ratio, on the log scale: no interval then says that more than all of it
is lost. A cost is judged on the bound of its interval of level 1 - 2 alpha, which a one-sided test
of level alpha inverts: within its budget where all of the interval is, over it where none is, and
otherwise not shown to be within. That both costs are within takes both tests, so their number needs
no adjustment (an intersection-union test; Berger 1982).
"""

from __future__ import annotations

import math

from paribus.analysis.infer import infer
from paribus.analysis.side_effects import BudgetState, Cost, Costs
from paribus.analysis.table import Table
from paribus.statistics import DESCRIPTIVE_BELOW, Interval, OneLook, Stages
from paribus.study import Study

AS_TRAINED = "as trained"  # a kind of throughput

SampledBy = OneLook | Stages | None
# Tokens per second by (kind, arm, seed).
Speeds = dict[tuple[str, str, int], float]


def costs(table: Table) -> list[Costs]:
    """Of every contrast."""
    speeds = _speeds(table)
    return [
        _costs(table, speeds, arm, reference) for arm, reference in table.results.study.contrasts
    ]


def _costs(table: Table, speeds: Speeds, arm: str, reference: str) -> Costs:
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
        # A trial that is gone has left its time in turn behind.
        both = [
            seed
            for seed in sampled.seeds
            if all(
                (kind, name, seed) in speeds and (name, seed) in table.results.trials
                for name in (arm, reference)
            )
        ]
        pairs = [(speed(kind, reference, seed), speed(kind, arm, seed)) for seed in both]
        return None if sampled.why_not(both) else _share_lost(study, pairs, budget, design(both))

    in_turn = lost("training", study.decision.throughput_budget)
    rise = None
    if not sampled.why_not(shared):
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
    )


def _rise(study: Study, pairs: list[tuple[float, float]], design: SampledBy) -> Cost:
    """The rise of a score, over pairs of (reference, arm)."""
    says = infer(study, [a for a, _ in pairs], [b for _, b in pairs], design=design).decided
    budget = study.decision.calibration_budget
    return _judged(len(pairs), says.mean, says.interval, says.equivalence_interval, budget)


def _share_lost(
    study: Study, pairs: list[tuple[float, float]], budget: float | None, design: SampledBy
) -> Cost:
    """The share of a speed that is lost, 1 - arm / reference, from the mean logarithm of ratios."""
    theirs, ours = ([math.log(pair[i]) for pair in pairs] for i in (0, 1))
    says = infer(study, theirs, ours, design=design).decided

    def share(interval: Interval) -> Interval:
        return Interval(_lost(interval.high), _lost(interval.low), interval.level)

    interval, bounds = share(says.interval), share(says.equivalence_interval)
    return _judged(len(pairs), _lost(says.mean), interval, bounds, budget)


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


def _speeds(table: Table) -> Speeds:
    """Tokens per second by (kind, arm, seed): measured in turn, and as timed while training."""
    trials = table.results.trials
    as_trained = {
        (AS_TRAINED, *trial): trials[trial].get("tokens", 1) / timing["training_seconds"]
        for trial, timing in table.results.timing.items()
        if trial in trials
    }
    in_turn = {
        (row["kind"], row["arm"], row["seed"]): row["tokens"] / row["seconds"]
        for row in table.results.throughput.to_pylist()
    }
    return as_trained | in_turn
