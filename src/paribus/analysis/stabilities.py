"""Divergence and spikes of every contrast, paired by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paribus.analysis.side_effects import Stabilities
from paribus.analysis.table import Table
from paribus.statistics import PairedRates, StabilityEvents, holm, paired_event_rates

Pair = tuple[StabilityEvents, StabilityEvents]
Kind = Callable[[StabilityEvents], bool]


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
