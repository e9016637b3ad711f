"""Diagnostics measured while training, behind one decorator.

A probe is a function from a `StepView` to numbers per replica. It sees detached tensors with the
replica axis first and draws no random numbers, so training is bit-identical with it or without.
What a file in this folder declares is measured, recorded and tested the moment it exists; a user's
own is named in the study (`probes.own`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

from paribus.declared import declared
from paribus.drawing import Drawing
from paribus.engine.observation import (
    EVERY_BLOCK,
    LOGITS,
    Labels,
    Measure,
    Probe,
    StepView,
    require_labels,
)
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, nearest
from paribus.metric import Better, readable
from paribus.study import Study
from paribus.study.choices import require_new_name
from paribus.study.importing import load_own

__all__ = [
    "EVERY_BLOCK",
    "LOGITS",
    "StepView",
    "known_probes",
    "probe",
    "shipped_probes",
    "study_probes",
]


def probe(
    name: str,
    *,
    unit: str,
    source: str = "",
    parts: Labels | Callable[[Setting], Labels] | None = None,
    statistics: Labels | None = None,
    every: int = 1,
    modules: Labels = (),
    updates: bool = False,
    by_slot: bool = False,
    better: Better = "neither",
    label: str = "",
    digits: int = 4,
    drawings: tuple[Drawing, ...] | None = None,
) -> Callable[[Measure], Probe]:
    """Make a function from a step to numbers a probe; see `Probe` for the rest."""

    called = label or readable(name)
    for what, labels in (("parts", parts), ("statistics", statistics)):
        if labels is not None and not callable(labels):
            require_labels(f"probe '{name}': {what}", labels)
    if not isinstance(every, int) or every < 0:
        raise ValueError(f"probe '{name}': every = {every!r} must be a number of steps; 0 is never")

    def declare(measure: Measure) -> Probe:
        shape = (parts, statistics, every, modules, updates, by_slot)
        declared = Probe(measure, name, unit, source, *shape, better, called, digits, drawings)
        _ = declared.metric(name), declared.drawn  # raise where they cannot be
        return declared

    return declare


@cache
def shipped_probes() -> dict[str, Probe]:
    """Return the probes in this folder, by name and in its order."""
    return declared("paribus.engine.probes", Probe)


def study_probes(study: Study) -> list[Probe]:
    """Return the probes of `study` at its cadences: those that ship, then its own.

    Raises ParibusError for an unknown name, or an own probe that is none.
    """
    return [one for one in known_probes(study) if one.every > 0]


def known_probes(study: Study) -> list[Probe]:
    """Return the same, and those that it turned off, of a cadence of 0."""
    found = dict(shipped_probes())
    for path in study.probes.own:
        where = f"probes.own = '{path}'"
        own = load_own(path, where, "probe", Probe, study.folder)
        require_new_name(where, "probe", own.name, found)
        found[own.name] = replace(own, is_own=True)
    for name in study.probes.every:
        if name not in found:
            raise ParibusError(f"probes.every.{name}: no such probe: {nearest(name, found)}")
    cadences = {name: study.probes.every.get(name, one.every) for name, one in found.items()}
    return [one.at(cadences[name]) for name, one in found.items()]
