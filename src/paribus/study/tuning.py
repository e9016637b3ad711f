"""At which learning rate a comparison holds, and whether that was chosen by tuning."""

from __future__ import annotations

from paribus import numbers
from paribus.study.study import Study


def at_rates(study: Study, arm: str, reference: str) -> str:
    """`at this learning rate (3e-4, not tuned)`: what a verdict on the two must add."""
    swept = [arm for sweep in study.sweeps.values() for arm in sweep.arms]
    how = "one of those swept" if arm in swept and reference in swept else "not tuned"
    rates = [study.setting(a).training.optimizer.learning_rate for a in (reference, arm)]
    if rates[0] == rates[1]:
        return f"at this learning rate ({numbers.compact(rates[0])}, {how})"
    theirs, ours = map(numbers.compact, rates)
    return f"at these learning rates ({ours} against {theirs}, {how})"
