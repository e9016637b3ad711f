"""Checks of scores and curves: last steps, repeated steps, units, cut logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.facts import Finding
from paribus.readers.port import EMPTY, Run

Arms = Mapping[str, Sequence[Run]]
LEAST_OF_A_CURVE = 3  # values; fewer may be equal by chance
PER_CENT = (50, 200)  # times the same as a share
PER_CENT_MOST = 100
MOST_ARMS = 4  # that a finding names
FINE_DIGITS = 4  # of a value; of fewer, equal values are no surprise


def check_values(arms: Arms, score: str, at_step: float | None) -> list[Finding]:
    """Return what the curves of `score` show of runs that are compared, by arm."""
    findings = [
        *_check_equal_arms(arms, score),
        *_check_planned_steps(arms),
        *_check_repeated_steps(arms, score, at_step),
        *_check_resumed(arms, score),
        *_check_cut(arms),
    ]
    if at_step is None:
        findings += [*_check_empty_ends(arms, score), *_check_lengths(arms, score)]
    return findings


def _every(arms: Arms) -> list[Run]:
    return [run for runs in arms.values() for run in runs]


def _check_equal_arms(arms: Arms, score: str) -> list[Finding]:
    """Warn if several runs of two arms have equal scores: the change may not have taken effect."""
    scores = {arm: {run.scores.get(score, math.nan) for run in runs} for arm, runs in arms.items()}
    for (first, own), (second, other) in combinations(scores.items(), 2):
        equal = list(filter(_is_fine, own & other))
        if len(equal) >= LEAST_OF_A_CURVE:
            text = (
                f"{first} and {second} have {len(equal)} values of {score} in common, such as "
                f"{equal[0]:g}: did the change take effect?"
            )
            return [Finding("equal_arms", text)]
    return []


def _check_planned_steps(arms: Arms) -> list[Finding]:
    """Warn about runs that ended before their planned last step."""
    findings = []
    for arm, runs in arms.items():
        ends = [(run.facts.get("steps"), run.facts.get("planned_steps")) for run in runs]
        early = [
            (step, planned)
            for step, planned in ends
            if isinstance(step, float | int) and isinstance(planned, float | int) and step < planned
        ]
        if early:
            step, planned = early[0]
            text = (
                f"{len(early)} of {plural(len(runs), 'run')} of {arm} stopped before the last step "
                f"that was planned, such as at {step:,g} of {planned:,g}: the score there counts."
            )
            findings.append(Finding("stopped_early", text))
    return findings


def _check_repeated_steps(arms: Arms, score: str, at_step: float | None) -> list[Finding]:
    """Warn about runs with several values at the step that counts; the last in the file is used."""
    repeated = []
    for run in _every(arms):
        curve = run.curves.get(score)
        if not curve:
            continue
        step = curve[-1][0] if at_step is None else at_step
        points = np.asarray(curve)
        values = {repr(value) for value in points[points[:, 0] == step, 1].tolist()}
        if len(values) > 1:
            repeated.append((run.source or "a run", step, len(values)))
    if not repeated:
        return []
    source, step, n = repeated[0]
    text = (
        f"{len(repeated)} of {plural(len(_every(arms)), 'run')} have several values of {score} at "
        f"the step that counts, such as {source} with {n} at step {step:g}: the last in the file "
        "is taken. Do steps begin again in each epoch or after a restart, are rows of several "
        "kinds, or is the best checkpoint evaluated at the end?"
    )
    return [Finding("repeated_steps", text)]


def _check_empty_ends(arms: Arms, score: str) -> list[Finding]:
    """Warn about runs whose last rows have no score: NaN is often written as an empty cell."""
    curves = [run.curves[score] for run in _every(arms) if run.curves.get(score)]
    last = max((curve[-1][0] for curve in curves), default=0)
    findings = []
    for arm, runs in arms.items():
        ends = [
            run.curves[score][-1][0]
            for run in runs
            if f"{EMPTY}/{score}" in run.facts and run.curves[score][-1][0] < last
        ]
        if ends:
            text = (
                f"{len(ends)} of {plural(len(runs), 'run')} of {arm} have a row without a {score} "
                f"after their last one, such as after step {ends[0]:g}, and others have one at "
                f"step {last:g}: did they diverge? write NaN then; an empty cell is passed over."
            )
            findings.append(Finding("empty_end", text))
    return findings


def _check_lengths(arms: Arms, score: str) -> list[Finding]:
    """Warn if runs ended at different steps."""
    ends: dict[str, set[float]] = {}
    for name in (score, ""):  # of those without its curve, where they ended
        ends = {arm: set() for arm in arms}
        for arm, runs in arms.items():
            for run in runs:
                curve = run.curves.get(name)
                end = curve[-1][0] if curve else run.facts.get("steps")
                if isinstance(end, int | float):
                    ends[arm].add(float(end))
        if len(set().union(*ends.values())) > 1:
            break
    else:
        return []
    each = []
    for arm, steps in ends.items():
        if steps:
            low, high = min(steps), max(steps)
            each.append(f"{arm} {low:,g}" + (f" to {high:,g}" if high > low else ""))
    shown = ", ".join(each[:MOST_ARMS]) + (" ..." if len(each) > MOST_ARMS else "")
    text = (
        f"Scores are those of the last step logged, which differs: {shown}. A history that was "
        "sampled lacks its end: export all of it, or state --at-step."
    )
    return [Finding("other_lengths", text)]


def _check_resumed(arms: Arms, score: str) -> list[Finding]:
    """Warn about runs of an arm whose curves begin with the same values: one may be resumed."""
    findings = []
    for arm, runs in arms.items():
        by_start: dict[object, list[Run]] = {}
        for run in runs:
            start = list(run.curves.get(score, ())[:LEAST_OF_A_CURVE])
            values = {value for _, value in start}
            # Coarse values may well be equal, and those of a program that waits do not change.
            if len(values) == LEAST_OF_A_CURVE and all(map(_is_fine, values)):
                by_start.setdefault(tuple(start), []).append(run)
        twins = [same for same in by_start.values() if len(same) > 1]
        if twins:
            pair = " and ".join(run.source or "a row" for run in twins[0][:2])
            text = (
                f"{sum(map(len, twins))} of {plural(len(runs), 'run')} of {arm} begin with the "
                f"same values of {score} as another one, such as {pair}: is it one run that was "
                "resumed? each counts."
            )
            findings.append(Finding("resumed", text))
    return findings


def _is_fine(value: float) -> bool:
    """Return whether a value has enough digits to be unlikely to repeat by chance."""
    return math.isfinite(value) and float(f"{value:.{FINE_DIGITS - 1}g}") != value


def _check_cut(arms: Arms) -> list[Finding]:
    """Warn about logs that end in the middle of a line; tables are warned about when read."""
    every = _every(arms)
    cut = [run for run in every if "cut" in run.facts and run.reader != "table"]
    if not cut:
        return []
    named = some([f"{run.source} ({run.facts['cut']})" for run in cut], 1)
    text = f"{len(cut)} of {plural(len(every), 'run')} are of logs that are cut, such as {named}."
    return [Finding("cut", text)]


def check_units(values: Mapping[str, Sequence[float]], score: str, better: str) -> list[Finding]:
    """Ask of scores, by arm, that are about a hundred times as large in some runs as in the others
    whether they are per cent there.

    Raises ParibusError where they must be: of a score that is better higher, those up to 1 beside
    those up to 100.
    """
    known = [(v, arm) for arm, own in values.items() for v in own if v and math.isfinite(v)]
    sizes = sorted((abs(value), arm) for value, arm in known)
    gaps = [high / low for (low, _), (high, _) in pairwise(sizes)]
    place = max(range(len(gaps)), key=gaps.__getitem__, default=0) + 1
    small, large = sizes[:place], sizes[place:]
    if not large:
        return []
    times = median(size for size, _ in large) / median(size for size, _ in small)
    if gaps[place - 1] <= math.sqrt(times) or not PER_CENT[0] <= times <= PER_CENT[1]:
        return []
    arms = ", ".join(dict.fromkeys(arm for _, arm in large))
    text = (
        f"{score} is {large[0][0]:g} or more in {plural(len(large), 'run')} (of {arms}) and "
        f"{small[-1][0]:g} or less in the other {len(small)}, a factor of about {times:.0f}"
    )
    are_shares = small[-1][0] <= 1 < large[0][0] and large[-1][0] <= PER_CENT_MOST
    if are_shares and better == "higher" and min(known)[0] > 0:
        raise ParibusError(f"{text}: write all of them in per cent, or all as shares")
    return [Finding("units", f"{text}: are some in per cent, or in another unit?")]
