"""Speeds, model sizes and warnings derived from the values and curves of compared runs.

Warnings concern, for example, repeated values or different numbers of steps.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import plural
from paribus.readers.facts import (
    MOST_VALUES,
    RATE,
    SHARE,
    TIME,
    Arms,
    Fact,
    Finding,
    common_step,
    end_of,
    find_size,
    values_of,
)
from paribus.readers.port import PLANNED, Run, cell_text, is_number

LEAST_EQUAL = 3  # values; fewer may be equal by chance
MORE_EQUAL = 3  # times as many as chance gives
LEAST_CELLS = 10  # steps of the last digit within the spread, for each distinct value
FAR = 3  # times the spread within an arm, from all other values
EVALUATED = re.compile(r"(?<![a-z])(?:dev|eval|heldout|test|val|valid|validation)(?![a-z])")
EVALUATED_LOSS = re.compile(r"(?:.*[/_.])?(?:val|valid|validation|eval)[/_.]?loss", re.IGNORECASE)
# Facts that say how many batches a loss may be summed over.
BATCHES = re.compile(
    r"accum|micro_?batch|batch|update_freq|(?<![a-z])(?:bs|gas?)(?![a-z])", re.IGNORECASE
)
# Scores that are greater than 0.
POSITIVE = re.compile(r"loss|nll|entropy|bp[bc]|perplexity|ppl", re.IGNORECASE)


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
    """Return a run's value of `name` from a curve or a setting, or None if it is not positive.

    The value of a curve is its mean, or its last value if it always increases, like elapsed time.
    """
    value = run.facts.get(name)
    if name in run.curves:
        values = run.curves[name][:, 1]
        is_total = len(values) > 2 and bool((np.diff(values) > 0).all())
        value = float(values[-1] if is_total else values.mean())
    return value if is_number(value) and 0 < value < math.inf else None


def check_values(
    arms: Arms, score: str, at_step: float | None, facts: Iterable[Fact] = ()
) -> Iterator[Finding]:
    """Yield warnings about suspicious values and curves of `score` in the compared runs.

    Args:
        arms: the runs, keyed by arm.
        score: the score that decides.
        at_step: the step at which the runs are compared, or None for the last one.
        facts: facts about the runs.

    Raises ParibusError if values are not of one unit, or copies of each other, or mark failed runs.
    """
    numbers = {
        arm: [v for run in runs if math.isfinite(v := run.scores.get(score, math.nan))]
        for arm, runs in arms.items()
    }
    every = list(chain(*arms.values()))
    _refuse_percent(numbers, every, score)
    _refuse_multiplied(arms, [fact for fact in facts if fact.conclusion == "defines"], score)
    _refuse_copies(arms, numbers, score)
    yield from _check_marks(arms, numbers, score)
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
        curves = [run.curves[score] for run in arms[arm] if score in run.curves]
        curves = [curve for curve in curves if len(np.unique(curve[:, 1])) >= LEAST_EQUAL]
        is_copied = len({curve.tobytes() for curve in curves}) < len(curves)
        if repeats >= max(2, own.total() / MOST_VALUES) or (is_copied and repeats):
            text = f"{repeats} of {own.total()} values of {score} in {arm} repeat others"
            text += ", along whole curves" * is_copied
            text += f", such as {own.most_common(1)[0][0]:g}: are runs duplicated?"
            yield "equal_runs", text
            break
    repeated = []
    for run in every:
        steps, own = run.curves.get(score, np.empty((0, 2))).T
        at = steps[-1:] if at_step is None else at_step
        repeated += [run.source] if len(np.unique(own[steps == at])) > 1 else []
    if repeated:
        text = f"{len(repeated)} of {n_runs} have several values of {score} at the compared step"
        text += f", such as {repeated[0]}; the last one in the file is used. Did a run restart, or"
        yield "repeated_steps", f"{text} does the file mix several kinds of rows?"
    if cut := [run.source for run in every if "cut" in run.facts]:
        text = f"{plural(len(cut), 'file')} may be truncated, such as {cut[0]}: its last line is"
        text += " incomplete."
        yield "cut", text
    if at_step is not None:
        full = dict.fromkeys(arms, at_step)
        for arm, run in ((arm, run) for arm, runs in arms.items() for run in runs):
            known = (_number(run, name) for name in ("steps", PLANNED))
            full[arm] = max(full[arm], *filter(math.isfinite, known), 0.0)
        if len(set(full.values())) > 1:
            each = ", ".join(f"{arm} at {at_step:,g} of {n:,g} steps" for arm, n in full.items())
            text = f"Runs were read at different parts of their schedules: {each}. If the learning"
            yield "other_schedules", f"{text} rate decays, this favours the shorter schedule."
        return
    early = [run for run in every if _number(run, "steps") < _number(run, PLANNED)]
    ends = {arm: [end_of(run, score) for run in runs] for arm, runs in arms.items()}
    spans = {arm: known for arm, own in ends.items() if (known := [n for n in own if n == n])}
    if early or len(set().union(*spans.values())) > 1:
        shown = [(arm, min(own), max(own)) for arm, own in spans.items()][:MOST_VALUES]
        each = "; ".join(f"{arm} {a:,g}" + f" to {b:,g}" * bool(a < b) for arm, a, b in shown)
        if early:
            each += f"; {len(early)} of {n_runs} ended before the last planned step"
        text = f"Scores are from the last logged step: {each}. If the end of a history is missing,"
        way = common_step(every, score) or "--at-step"
        yield "other_lengths", f"{text} export all of it, or pass {way}."


def _way_without(runs: Sequence[Run], every: Sequence[Run]) -> str:
    """Return options that exclude some of the runs, such as `--where 'seed!=3'`, or ""."""
    others = [run for run in every if run not in runs]
    for name in dict.fromkeys(name for run in runs for name in run.facts if name != "arm"):
        values = {run.facts.get(name) for run in runs}
        if None not in values and values.isdisjoint(values_of(others, name)):
            return " ".join(f"--where '{name}!={text}'" for text in sorted(map(cell_text, values)))
    return ""


def _refuse_percent(
    numbers: Mapping[str, Sequence[float]], every: Sequence[Run], score: str
) -> None:
    """Raise ParibusError if a share is a fraction in some runs and a percentage in others."""
    values = list(chain(*numbers.values()))
    fractions, percents = [v for v in values if 0 < v < 1], [v for v in values if 1 < v <= 100]
    if not (SHARE.search(score) and fractions and percents):
        return
    factor = np.median(percents) / np.median(fractions)
    is_by_arm = all(max(own) <= 1 or min(own) > 1 for own in numbers.values() if own)
    if 80 < factor < 125 or (is_by_arm and 50 < factor < 200):
        why = f"{score} is about {np.median(fractions):g} in some runs and {np.median(percents):g}"
        why += " in others, like a fraction and a percentage; convert both to one unit"
        fewer = min(fractions, percents, key=len)
        way = _way_without([run for run in every if run.scores.get(score) in fewer], every)
        why += f", or pass {way}" if way else ""
        raise ParibusError(why, code="incomparable")


def _refuse_multiplied(arms: Arms, defines: Iterable[Fact], score: str) -> None:
    """Raise ParibusError if a training loss seems to be summed over accumulated batches.

    The signs are a loss that, in some arms only, is an integer multiple of the evaluation loss, or
    a loss that is proportional (also inversely) to the number or size of batches.
    """
    if not score.lower().endswith("loss") or EVALUATED.search(score):
        return
    losses = np.array([_middle(runs, re.compile(re.escape(score))) for runs in arms.values()])
    ratios = losses / np.array([_middle(runs, EVALUATED_LOSS) for runs in arms.values()])
    factors = np.maximum(np.round(ratios), 1)
    is_multiple = (factors > 1) & (abs(ratios / factors - 1) < 0.15)
    is_summed = is_multiple.any() and (ratios < 1.4).any()
    for fact in defines:
        first = [own[0] if own else 1.0 for own in fact.values.values()]
        numbers = np.array([n for n in first if is_number(n) and n > 0])
        is_clear = len(numbers) == len(first) and numbers.max() >= 1.5 * numbers.min()
        if BATCHES.search(fact.name) and is_clear:
            for parts in (losses / numbers, losses * numbers):
                is_summed |= parts.max() < 1.2 * parts.min()
    if is_summed:
        why = f"{score} differs between arms by an integer factor, as if summed over accumulated"
        why += " batches; judge by the evaluation loss, or divide it by the number of batches"
        raise ParibusError(why, code="incomparable")


def _middle(runs: Iterable[Run], names: re.Pattern[str]) -> float:
    """Return the median of all finite scores with matching names, or NaN if no score matches."""
    scores = [score for run in runs for score in run.scores.items()]
    values = [v for name, v in scores if names.fullmatch(name) and math.isfinite(v)]
    return float(np.median(values)) if values else math.nan


def _refuse_copies(arms: Arms, numbers: Mapping[str, Sequence[float]], score: str) -> None:
    """Raise ParibusError if most values in an arm occur several times, to every digit.

    The values must be so fine, for their spread, that this is not chance. Shares are often coarse.
    """
    digits = [len(repr(v).partition(".")[2]) for v in chain(*numbers.values())]
    for arm, values in numbers.items():
        repeated = [value for value, n in Counter(values).items() if n > 1]
        n_repeated = sum(map(values.count, repeated))
        if SHARE.search(score) or len(repeated) < 2 or 3 * n_repeated < 2 * len(values):
            continue
        if max(values) - min(values) >= LEAST_CELLS * len(set(values)) * 0.1 ** max(digits):
            firsts = {run.scores.get(score): run for run in reversed(arms[arm])}
            copies = [run for run in arms[arm] if run is not firsts[run.scores.get(score)]]
            why = f"{n_repeated} of {len(values)} runs of {arm} have the {score} of another run to"
            why += f" every digit, such as {repeated[0]:g}, so they are not independent; remove the"
            way = _way_without(copies, arms[arm]) or "--where and a column that tells them apart"
            raise ParibusError(f"{why} copies ({way})", code="incomparable")


def _check_marks(
    arms: Arms, numbers: Mapping[str, Sequence[float]], score: str
) -> Iterator[Finding]:
    """Yield a question about values such as 0 and -1 that may mark failed runs.

    Raises ParibusError if such a value is far from all others and cannot be a score, such as 9999.
    """
    others = {arm: [v for v in own if not _is_mark(v)] for arm, own in numbers.items()}
    rest = list(chain(*others.values()))
    spread = max((max(own) - min(own) for own in others.values() if own), default=0.0)
    for value in sorted({*chain(*numbers.values())} - {*rest}) if len({*rest}) > 1 else ():
        if min(abs(value - v) for v in rest) <= FAR * spread:
            continue
        counts = [
            f"{n} of {len(own)} in {arm}" for arm, own in numbers.items() if (n := own.count(value))
        ]
        source = next(r.source for r in chain(*arms.values()) if r.scores.get(score) == value)
        text = (
            f"{score} is {value:.12g} in some runs ({', '.join(counts)}; {source}), like a mark of"
        )
        text += " failed runs"
        is_impossible = (POSITIVE.search(score) and min(rest) > 0) or (
            SHARE.search(score) and value
        )
        if is_impossible or abs(value) > 1:
            ways = "write NaN for a run that diverged, which then counts as a result, or remove it"
            raise ParibusError(f"{text}; {ways}", code="incomparable")
        yield "marks", f"{text}. Did they fail? If so, write NaN."


def _is_mark(value: float) -> bool:
    """Return whether a value is 0, -1, all nines such as 9999, or a power of ten such as 1e9."""
    text = f"{abs(value):.15g}"
    return value in (0, -1) or bool(re.fullmatch(r"9{3,}(?:[.]9+)?|10{4,}|1e[+]\d+", text))


def _number(run: Run, name: str) -> float:
    """Return a run's setting `name` if it is a number, or NaN otherwise."""
    value = run.facts.get(name)
    return value if is_number(value) else math.nan


def _is_fine(value: float) -> bool:
    """Return whether a value has more than three significant digits.

    Such values rarely repeat by chance.
    """
    return math.isfinite(value) and float(f"{value:.3g}") != value
