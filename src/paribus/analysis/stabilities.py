"""Divergence and spikes of every contrast, paired by seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from paribus.analysis.side_effects import Stabilities
from paribus.analysis.table import Table
from paribus.statistics import DESCRIPTIVE_BELOW, StabilityEvents, holm, paired_event_rates

Pair = tuple[StabilityEvents, StabilityEvents]
Kind = Callable[[StabilityEvents], bool]


def any_event(events: StabilityEvents) -> bool:
    """Whether a trial diverged or spiked."""
    return events.diverged or events.spiked


def stabilities_of(table: Table) -> list[Stabilities]:
    """Events of every contrast with pairs, at its look or by its stages; p adjusted over the
    contrasts."""
    found, p_values, events = [], [], table.events
    for arm, reference in table.results.study.contrasts:
        sampled = table.sampling(arm)
        seeds = [s for s in sampled.seeds if (arm, s) in events and (reference, s) in events]
        pairs = [(events[reference, seed], events[arm, seed]) for seed in seeds]
        if not pairs:
            continue

        def events_of(kind: Kind, pairs: list[Pair] = pairs) -> tuple[list[bool], list[bool]]:
            return [kind(a) for a, _ in pairs], [kind(b) for _, b in pairs]

        one = Stabilities(
            arm,
            reference,
            diverged=paired_event_rates(*events_of(lambda e: e.diverged)),
            spiked=paired_event_rates(*events_of(lambda e: e.spiked)),
            any_event=paired_event_rates(*events_of(any_event)),
        )
        design = sampled.design(seeds)
        found.append(one)
        p_values.append(
            design.of_events(*events_of(any_event)) if design else one.any_event.p_value
        )
    adjusted = holm(p_values) if found else []
    return [
        replace(s, holm_p=float(p)) if s.any_event.n >= DESCRIPTIVE_BELOW else s
        for s, p in zip(found, adjusted, strict=True)
    ]
