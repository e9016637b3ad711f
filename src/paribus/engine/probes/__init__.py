"""Diagnostics measured while training, one file each behind one decorator.

A probe is a function from a `StepView` to numbers per replica. It sees detached tensors with the
replica axis first and draws no random numbers, so training is bit-identical with it or without.
A new file in this folder is measured, recorded and tested the moment it exists; a user's own is
named in the study (`probes.own`).
"""

from paribus.engine.observation import EVERY_BLOCK, LOGITS, Probe, StepView
from paribus.engine.probes.registry import known_probes, probe, shipped_probes, study_probes

__all__ = [
    "EVERY_BLOCK",
    "LOGITS",
    "Probe",
    "StepView",
    "known_probes",
    "probe",
    "shipped_probes",
    "study_probes",
]
