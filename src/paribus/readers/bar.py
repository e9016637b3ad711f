"""`paribus judge --bar`: compare the runs of one arm with a number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.numbers import fixed, level, p_value, plural
from paribus.readers.judge import Better, default_score, digits_of, direction, read_data
from paribus.readers.select import score_of, select_runs
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t
from paribus.statistics.t_test import mean_and_sd


def judge_against_bar(
    paths: Sequence[str],
    scores: Sequence[str],
    bar: float,
    *,
    better: Better | None,
    alpha: float,
    **options: Any,
) -> tuple[dict[str, Any], list[str]]:
    """Compare the runs of the only arm with `bar`. Returns the comparison and the lines of its
    card. `judge.make_study` explains the options. Raises ParibusError if there are more arms."""
    reading, section, by_arm = read_data(paths, scores, **options)
    if len(by_arm) > 1:
        raise ParibusError(
            f"--bar needs a single arm, and there are {len(by_arm)}: {', '.join(by_arm)}"
        )
    score = scores[0] if scores else default_score(reading.runs)
    side = better or direction(score)
    selection = select_runs(by_arm, section, [score], lower=side == "lower")
    ((arm, runs),) = selection.runs.items()
    values = [score_of(run, score, section.at_step) for run in runs]
    against = {"score": score} | _compare(values, bar, side, alpha)
    lines = _describe(arm, against, alpha)
    if failed := selection.excluded.get(arm):
        lines.append(f"Failed runs are excluded: {failed} of {plural(failed + len(runs), 'run')}.")
    return against, lines + [text for _, text in selection.findings]


def _compare(values: Sequence[float], bar: float, better: Better, alpha: float) -> dict[str, Any]:
    """Compare one arm's scores with a fixed bar by Student's one-sample t test.

    `n` counts the runs with a finite score. The others diverged, and rule out BETTER. With fewer
    than two finite runs there is no SD and no interval, and with fewer than five no p. Raises
    ParibusError if no score is finite.
    """
    finite = np.array([value for value in values if math.isfinite(value)])
    if not math.isfinite(bar) or not len(finite):
        raise ParibusError(f"the bar {bar} and the score of at least one run must be finite")
    n, (mean, sd) = len(finite), mean_and_sd(finite)
    gains = finite - bar if better == "higher" else bar - finite
    test = paired_t(finite) if n > 1 else None
    interval = test.interval(1 - alpha) if test else None
    p = test.p_value(bar) if test and n >= DESCRIPTIVE_BELOW and sd else None
    word = "DESCRIPTIVE"
    if p is not None:
        word = "BETTER" if gains.mean() > 0 else "WORSE"
        if p > alpha or (word == "BETTER" and n < len(values)):
            word = "UNRESOLVED"
    return {
        "bar": bar,
        "better": better,
        "n": n,
        "diverged": len(values) - n,
        "mean": mean,
        "sd": sd if test else None,
        "p": p,
        "word": word,
        "passed": int((gains > 0).sum()),
        "low": interval.low if interval else None,
        "high": interval.high if interval else None,
    }


def _describe(arm: str, against: Mapping[str, Any], alpha: float) -> list[str]:
    """Return the lines of the card."""
    digits = digits_of(against["sd"] or 0.0) + 1
    mean, sd, low, high = (fixed(against[key], digits) for key in ("mean", "sd", "low", "high"))
    n, p, bar, lost = against["n"], against["p"], f"{against['bar']:g}", against["diverged"]
    span = f" [{low}, {high}]" if n > 1 else ""
    p_text = "" if p is None else f", p {p_value(p)}"
    diverged = f"; {lost} diverged, which rules out BETTER" if lost else ""
    return [
        f"Exploratory: {against['score']} of {arm or 'these runs'} against {bar}",
        f"  {against['score']}, {against['better']} is better",
        f"  {against['word']}  {mean}{span}  n {n}, SD {sd}{p_text}",
        f"The mean with its {level(alpha)} interval, and p of a t test against {bar}.",
        f"{against['passed']} of {plural(n + lost, 'run')} passed it{diverged}.",
    ]
