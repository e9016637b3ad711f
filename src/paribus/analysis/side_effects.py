"""Side effects of an arm: training instability and costs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from statistics import fmean
from typing import Any

from paribus.analysis.contrasts import compare_arms, holm_of, why_too_few
from paribus.analysis.schema import BudgetState, Cost, Costs, Stabilities, Tested
from paribus.analysis.table import Table
from paribus.metric import Metric
from paribus.results.records import training_flops
from paribus.statistics import DESCRIPTIVE_BELOW, Interval, event_rates

Trial = tuple[str, int]  # (arm, seed)
Values = Mapping[Trial, Any]
SPEED = Metric("speed", "speed", "", "higher", "turns", scale="log")
CALIBRATION = Metric("calibration_error", "calibration error", "share", "lower", "evaluation")


def stabilities_of(table: Table) -> list[Stabilities]:
    """Return the rates of divergence and loss spikes for every contrast with finished runs.

    p-values are Holm-adjusted over contrasts. Pairs are included up to the contrast's last look;
    unpaired runs are all included.
    """
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
        kinds = [
            [[getattr(run, kind) for run in side] for side in sides]
            for kind in ("diverged", "spiked", "is_unstable")
        ]
        rates = [event_rates(*kind, paired=is_paired) for kind in kinds]
        design = sampled.design(seeds) if is_paired else None
        p_values.append(design.events_p(*kinds[-1]) if design else rates[-1].p_value)
        stabilities.append(Stabilities(arm, reference, rates[0], rates[1], rates[2]))
    return [
        replace(s, holm_p=p) if s.any_event.n >= DESCRIPTIVE_BELOW else s
        for s, p in zip(stabilities, holm_of(p_values), strict=True)
    ]


def costs(table: Table) -> list[Costs]:
    """Return the costs of the arm in every contrast."""
    return [_costs(table, pair) for pair in table.results.study.contrasts]


def _costs(table: Table, pair: tuple[str, str]) -> Costs:
    study, trials, turns = table.results.study, table.results.trials, table.results.turns
    in_bytes, limit, rise = not study.share_tokens(*pair), study.decision.throughput_budget, None

    def lost(speeds: Values, budget: float | None = None) -> Cost | None:
        if in_bytes:
            speeds = {t: v * trials[t]["data"]["bytes_per_token"] for t, v in speeds.items()}
        return cost_of(table, pair, speeds, SPEED, budget)

    def timed(kind: str, unit: str = "tokens per second") -> Values:
        # A trial that is gone has left its time in turn behind.
        key = f"{kind}/{unit}"
        return {trial: turns[trial][key] for trial in trials if key in turns.get(trial, {})}

    as_trained = {  # or as a finished run measured itself
        trial: record["speed"] for trial, record in trials.items() if "speed" in record
    } | {
        trial: trials[trial].get("tokens", 1) / timing["training_seconds"]
        for trial, timing in table.results.timing.items()
    }
    in_turn = lost(timed("training"), limit)
    if study.is_paired:
        errors = {
            (arm, seed): value
            for arm in pair
            for seed, value in table.usable(arm, CALIBRATION.name).items()
        }
        rise = cost_of(table, pair, errors, CALIBRATION, study.decision.calibration_budget)
    return Costs(
        *pair,
        calibration=rise,
        throughput=in_turn or lost(as_trained, limit),
        in_turn=in_turn is not None,
        prefill=lost(timed("prefill")),
        decoding=lost(timed("decoding")),
        more_parameters=_more(pair, {t: record.get("parameters") for t, record in trials.items()}),
        more_flops=_more(pair, {t: training_flops(record) for t, record in trials.items()}),
        more_memory=_more(pair, timed("training", "MiB")),
    )


def _more(pair: tuple[str, str], sizes: Values) -> float | None:
    """Return the relative increase in mean size over the reference, or None if unknown."""
    ours, theirs = ([n for (arm, _), n in sizes.items() if arm == name and n] for name in pair)
    return fmean(ours) / fmean(theirs) - 1 if ours and theirs else None


def cost_of(
    table: Table, pair: tuple[str, str], values: Values, metric: Metric, budget: float | None
) -> Cost | None:
    """Return the mean cost of an arm: an increase in a score, or a relative loss of speed.

    The relative loss, 1 - arm / reference, is computed from the mean log ratio over pairs, or from
    the difference between mean logarithms of unpaired runs. Returns None for fewer than two pairs
    or fewer than two runs of an arm.

    Args:
        table: scores of the study.
        pair: (arm, reference).
        values: scores or speeds, keyed by (arm, seed).
        metric: `SPEED` for speeds, or the metric of the scores.
        budget: maximum allowed cost, or None for no limit.
    """
    study, sampled = table.results.study, table.sampling(pair[0])
    seeds = tuple(seed for seed in sampled.seeds if all((arm, seed) in values for arm in pair))
    by_arm = {
        arm: {seed: values[arm, seed] for seed in sampled.seeds if (arm, seed) in values}
        for arm in pair
    }
    if why_too_few(study, sampled, by_arm, seeds):
        return None
    weights = dict(zip(pair, (1.0, -1.0), strict=True))
    says = compare_arms(
        Tested(seeds=seeds), table, weights, by_arm, metric=metric, sampled=sampled
    ).decided
    assert says is not None
    mean, interval, bounds = says.mean, says.interval, says.equivalence_interval
    if metric is SPEED:
        mean = _lost(mean)
        interval, bounds = (Interval(_lost(i.high), _lost(i.low)) for i in (interval, bounds))
    return Cost(mean, interval, budget_state(says.n, bounds, budget))


def _lost(log_ratio: float) -> float:
    return -math.expm1(min(log_ratio, 700.0))


def budget_state(n: int, bounds: Interval, budget: float | None) -> BudgetState | None:
    """Compare a cost with its budget, or return None if the cost has no budget.

    Args:
        n: number of pairs, or of runs in the smaller arm; at least five are needed.
        bounds: confidence interval of the cost at level 1 - 2 alpha.
        budget: maximum allowed cost, or None for no limit.
    """
    if budget is None:
        return None
    if n >= DESCRIPTIVE_BELOW and bounds.high <= budget:
        return "within"
    return "over" if n >= DESCRIPTIVE_BELOW and bounds.low > budget else "not shown"
