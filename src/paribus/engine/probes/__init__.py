"""Training diagnostics, declared with `@probe`.

A probe is a function from a `StepView` to numbers per replica. It receives detached tensors with
the replica axis first and draws no random numbers, so training is bit-identical with and without
it. Probes in this folder are found automatically; custom probes are listed in `probes.own`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

from paribus.declared import declared
from paribus.engine.observation import EVERY_BLOCK, LOGITS, Probe, StepView
from paribus.engine.setting import Setting
from paribus.errors import ParibusError, nearest
from paribus.study import Study
from paribus.study.choices import load_new

__all__ = [
    "EVERY_BLOCK",
    "LOGITS",
    "Setting",
    "StepView",
    "known_probes",
    "probe",
    "shipped_probes",
    "study_probes",
]


probe = Probe


@cache
def shipped_probes() -> dict[str, Probe]:
    """Return the built-in probes, keyed by name."""
    return declared("paribus.engine.probes", Probe)


def study_probes(study: Study) -> list[Probe]:
    """Return a study's active probes with the study's intervals, built-in ones first.

    Raises ParibusError for an unknown name, or an import path that does not lead to a probe.
    """
    return [probe for probe in known_probes(study) if probe.every > 0]


def known_probes(study: Study) -> list[Probe]:
    """Return all probes with the study's intervals, including inactive probes (interval 0)."""
    own = load_new(study.probes.own, "probes.own", "probe", Probe, study.folder, shipped_probes())
    probes = shipped_probes() | {probe.name: probe for probe in own}
    for name in study.probes.every:
        if name not in probes:
            hint = nearest(name, probes)
            raise ParibusError(f"probes.every has unknown probe '{name}'; {hint}", code="unknown")
    every = study.probes.every
    return [replace(probe, every=every.get(name, probe.every)) for name, probe in probes.items()]
