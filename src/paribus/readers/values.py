"""Checks of scores and curves: last steps, repeated steps, units, cut logs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations, pairwise
from statistics import median

from paribus.errors import ParibusError
from paribus.numbers import plural, some
from paribus.readers.facts import Arms, Finding

LEAST_EQUAL = 3  # values; fewer may be equal by chance
PER_CENT = (50, 200)  # times the same as a share
MOST_ARMS = 4  # that a finding names


def check_values(arms: Arms, score: str, at_step: float | None) -> list[Finding]:
    """Return what the curves of `score` show of runs that are compared, by arm."""
    every = [run for runs in arms.values() for run in runs]
    findings = []
    scores = {arm: {run.scores.get(score, math.nan) for run in runs} for arm, runs in arms.items()}
    for first, second in combinations(arms, 2):
        equal = [value for value in scores[first] & scores[second] if _is_fine(value)]
        if len(equal) >= LEAST_EQUAL:
            text = (
                f"{first} and {second} have {len(equal)} values of {score} in common, such as "
                f"{equal[0]:g}: did the change take effect?"
            )
            findings.append(Finding("equal_arms", text))
            break
    for arm, runs in arms.items():
        ends = [(run.facts.get("steps"), run.facts.get("planned_steps")) for run in runs]
        early = [(a, b) for a, b in ends if isinstance(a, float) and isinstance(b, float) and a < b]
        if early:
            text = (
                f"{len(early)} of {plural(len(runs), 'run')} of {arm} stopped before the last step "
                "that was planned, such as at {:,g} of {:,g}: the score there counts."
            )
            findings.append(Finding("stopped_early", text.format(*early[0])))
    repeated = []
    for run in every:
        if len(curve := run.curves.get(score, ())):
            step = curve[-1, 0] if at_step is None else at_step
            values = set(map(repr, curve[curve[:, 0] == step, 1].tolist()))
            repeated += [(run.name, step, len(values))] if len(values) > 1 else []
    if repeated:
        source, step, n = repeated[0]
        text = (
            f"{len(repeated)} of {plural(len(every), 'run')} have several values of {score} at the "
            f"step that counts, such as {source} with {n} at step {step:g}: the last in the file "
            "is taken. Do steps begin again in each epoch or after a restart, are rows of several "
            "kinds, or is the best checkpoint evaluated at the end?"
        )
        findings.append(Finding("repeated_steps", text))
    # Tables are warned about when they are read.
    if cut := [run for run in every if "cut" in run.facts and run.reader != "table"]:
        named = some([f"{run.source} ({run.facts['cut']})" for run in cut], 1)
        text = f"{len(cut)} of {plural(len(every), 'run')} are of logs that are cut, such as"
        findings.append(Finding("cut", f"{text} {named}."))
    return findings + (_check_lengths(arms, score) if at_step is None else [])


def _check_lengths(arms: Arms, score: str) -> list[Finding]:
    """Warn if the scores, or else the runs, ended at different steps."""

    def describe(name: str) -> list[str]:
        each, every = [], set()
        for arm, runs in arms.items():
            ends = [
                c[-1, 0] if len(c := run.curves.get(name, ())) else run.facts.get("steps")
                for run in runs
            ]
            ends = [float(end) for end in ends if isinstance(end, float)]
            every.update(ends)
            if ends:
                low, high = min(ends), max(ends)
                each.append(f"{arm} {low:,g}" + (f" to {high:,g}" if high > low else ""))
        return each if len(every) > 1 else []

    if not (each := describe(score) or describe("")):
        return []
    shown = ", ".join(each[:MOST_ARMS]) + (" ..." if len(each) > MOST_ARMS else "")
    text = (
        f"Scores are those of the last step logged, which differs: {shown}. A history that was "
        "sampled lacks its end: export all of it, or state --at-step."
    )
    return [Finding("other_lengths", text)]


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three digits, so that it hardly repeats by chance."""
    return math.isfinite(value) and float(f"{value:.3g}") != value


def check_units(values: Mapping[str, Sequence[float]], score: str, better: str) -> list[Finding]:
    """Ask of scores, by arm, that are about a hundred times as large in some runs as in the others
    whether they are per cent there.

    Raises ParibusError where they must be: of a score that is better higher, those up to 1 beside
    those up to 100.
    """
    known = [(v, arm) for arm, own in values.items() for v in own if v and math.isfinite(v)]
    sizes = sorted((abs(value), arm) for value, arm in known)
    gaps = [high / low for (low, _), (high, _) in pairwise(sizes)]
    if not gaps:
        return []
    place = gaps.index(max(gaps)) + 1
    small, large = sizes[:place], sizes[place:]
    times = median(size for size, _ in large) / median(size for size, _ in small)
    if max(gaps) <= math.sqrt(times) or not PER_CENT[0] <= times <= PER_CENT[1]:
        return []
    arms = ", ".join(dict.fromkeys(arm for _, arm in large))
    text = (
        f"{score} is {large[0][0]:g} or more in {plural(len(large), 'run')} (of {arms}) and "
        f"{small[-1][0]:g} or less in the other {len(small)}, a factor of about {times:.0f}"
    )
    are_shares = small[-1][0] <= 1 < large[0][0] and large[-1][0] <= 100
    if are_shares and better == "higher" and min(known)[0] > 0:
        raise ParibusError(
            f"{text}: write all of them in per cent, or all as shares", code="incomparable"
        )
    return [Finding("units", f"{text}: are some in per cent, or in another unit?")]
