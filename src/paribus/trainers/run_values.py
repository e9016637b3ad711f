"""Speeds, model sizes and warnings derived from the values and curves of compared runs.

Warnings concern, for example, repeated values or different numbers of steps.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, combinations

import numpy as np

from paribus.numbers import plural
from paribus.readers.facts import MOST_VALUES, RATE, SHARE, TIME, Arms, Finding, find_size
from paribus.readers.port import Run, is_number

LEAST_EQUAL = 3  # values; fewer may be equal by chance
MORE_EQUAL = 3  # times as many as chance gives
PLANNED = "planned_steps"


def speeds_of(runs: Sequence[Run]) -> list[float | None]:
    """Return each run's logged speed, or None for runs that logged none.

    The speed is the first logged rate, or else the inverse of the first logged time, in the units
    of the files.
    """
    names = list(dict.fromkeys(n for run in runs for n in (*run.curves, *run.facts)))
    for pattern, power in ((RATE, 1), (TIME, -1)):
        for name in filter(pattern.fullmatch, names):
            measured = [_measured(run, name) for run in runs]
            if any(measured):
                return [value and value**power for value in measured]
    return [None] * len(runs)


def sizes_of(run: Run) -> dict[str, float]:
    """Return a run's logged model sizes, such as `parameters`, in the units of the files."""
    measured = {find_size(name): _measured(run, name) for name in (*run.curves, *run.facts)}
    return {size: value for size, value in measured.items() if size and value}


def _measured(run: Run, name: str) -> float | None:
    """Return a run's positive value of `name`, from a curve or a setting, or None.

    The value of a curve is its mean, or its last value if it always increases, as elapsed time
    does.
    """
    value = run.facts.get(name)
    if name in run.curves:
        values = run.curves[name][:, 1]
        is_total = len(values) > 2 and bool((np.diff(values) > 0).all())
        value = float(values[-1] if is_total else values.mean())
    return value if is_number(value) and 0 < value < math.inf else None


def check_values(arms: Arms, score: str, at_step: float | None) -> Iterator[Finding]:
    """Yield warnings about suspicious values and curves of `score` in the compared runs.

    Args:
        arms: runs, keyed by arm.
        score: name of the primary score.
        at_step: step at which the runs are compared, or None for the last step.
    """
    every = list(chain(*arms.values()))
    n_runs = plural(len(every), "run")
    values = {
        arm: Counter(filter(_is_fine, (run.scores.get(score, math.nan) for run in runs)))
        for arm, runs in arms.items()
    }
    for first, second in combinations(arms, 2):
        equal = list(values[first].keys() & values[second].keys())
        # By chance about as many values are in both arms as are in one of them again.
        repeats = sum(own.total() - len(own) for own in (values[first], values[second]))
        if len(equal) >= max(LEAST_EQUAL, MORE_EQUAL * repeats):
            text = f"{first} and {second} share {len(equal)} values of {score}, such as"
            yield "equal_arms", f"{text} {equal[0]:g}: did the change take effect?"
            break
    for arm, own in values.items() if not SHARE.search(score) else ():
        repeats = own.total() - len(own)
        if repeats >= max(2, own.total() / MOST_VALUES):
            text = f"{repeats} of {own.total()} values of {score} in {arm} repeat others, such as"
            yield "equal_runs", f"{text} {own.most_common(1)[0][0]:g}: are runs duplicated?"
            break
    repeated = []
    for run in every:
        steps, own = run.curves.get(score, np.empty((0, 2))).T
        at = steps[-1:] if at_step is None else at_step
        repeated += [run.source] if len(np.unique(own[steps == at])) > 1 else []
    if repeated:
        text = f"{len(repeated)} of {n_runs} have several values of {score} at the step that counts"
        text += f", such as {repeated[0]}; the last one in the file is used. Did a run restart, or"
        yield "repeated_steps", f"{text} does the file mix several kinds of rows?"
    if cut := [run.source for run in every if "cut" in run.facts]:
        text = f"{plural(len(cut), 'file')} may be truncated, such as {cut[0]}: the last line is"
        text += " incomplete."
        yield "cut", text
    if at_step is not None:
        return
    early = [run for run in every if _number(run, "steps") < _number(run, PLANNED)]
    ends = {arm: [_end(run, score) for run in runs] for arm, runs in arms.items()}
    spans = {arm: known for arm, own in ends.items() if (known := [n for n in own if n == n])}
    if early or len(set().union(*spans.values())) > 1:
        shown = [(arm, min(own), max(own)) for arm, own in spans.items()][:MOST_VALUES]
        each = "; ".join(f"{arm} {a:,g}" + f" to {b:,g}" * bool(a < b) for arm, a, b in shown)
        if early:
            each += f"; {len(early)} of {n_runs} ended before the last planned step"
        text = f"Scores are from the last logged step: {each}. If a sampled history lacks its end,"
        yield "other_lengths", f"{text} export all of it, or pass --at-step."


def _end(run: Run, score: str) -> float:
    """Return the last step of a run's score curve, or the run's logged number of steps."""
    return run.curves[score][-1, 0] if score in run.curves else _number(run, "steps")


def _number(run: Run, name: str) -> float:
    """Return a run's setting `name` if it is a number, or NaN otherwise."""
    value = run.facts.get(name)
    return value if is_number(value) else math.nan


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three significant digits.

    Such values rarely repeat by chance.
    """
    return math.isfinite(value) and float(f"{value:.3g}") != value
