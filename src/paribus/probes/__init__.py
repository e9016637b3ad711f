"""Stepwise diagnostics, one file each behind one decorator.

A probe is a function from a `StepView` to one number per replica. It sees detached tensors with the
replica axis first, and draws no random numbers, so training is bit-identical with it or without.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from paribus.model import StepView

Measure = Callable[[StepView], Tensor]


@dataclass(frozen=True)
class StepProbe:
    """A registered probe (see `paribus.model.Probe`)."""

    name: str
    unit: str
    modules: tuple[str, ...]
    measure: Measure


_PROBES: dict[str, StepProbe] = {}


def probe(name: str, *, unit: str, modules: tuple[str, ...] = ()) -> Callable[[Measure], Measure]:
    """Register `measure(step) -> [R]` as the column `name` of the record of steps."""

    def register(measure: Measure) -> Measure:
        if name in _PROBES:
            raise ValueError(f"probe '{name}' is registered twice")
        _PROBES[name] = StepProbe(name, unit, modules, measure)
        return measure

    return register


def all_probes() -> list[StepProbe]:
    return list(_PROBES.values())


for _module in pkgutil.iter_modules(__path__):
    importlib.import_module(f"{__name__}.{_module.name}")
