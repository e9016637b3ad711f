"""One arm against a number that others state: a record, a published score, a target."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from paribus.decision import Word
from paribus.errors import ParibusError
from paribus.numbers import fixed, p_value, plural
from paribus.readers import Run
from paribus.readers.select import final_score
from paribus.statistics import DESCRIPTIVE_BELOW, paired_t
from paribus.statistics.t_test import mean_and_sd

MORE_DIGITS = 2  # than the spread has


@dataclass(frozen=True)
class AgainstBar:
    """A score of the runs of one arm against a bar.

    Attributes:
        n: finite runs; `diverged` are the others, and forbid BETTER.
        sd, low, high: SD of the runs, and the t interval of their mean; None below 2 runs.
        p: two-sided p of a one-sample t test against the bar; None below 5 runs.
        passed: how many runs are on the better side of the bar.
    """

    score: str
    bar: float
    better: Literal["lower", "higher"]
    n: int
    diverged: int
    mean: float
    sd: float | None
    low: float | None
    high: float | None
    p: float | None
    passed: int
    word: Word

    @property
    def lines(self) -> list[str]:
        """The card."""
        digits = 4
        if self.sd:
            digits = min(max(MORE_DIGITS - math.floor(math.log10(self.sd)), 0), 9)
        span = f"[{fixed(self.low, digits)}, {fixed(self.high, digits)}]" if self.n > 1 else ""
        p = "" if self.p is None else f", p {p_value(self.p)}"
        lost = f"; {self.diverged} diverged" if self.diverged else ""
        return [
            f"{self.score} against {self.bar:g}, {self.better} is better",
            f"  {self.word}  {fixed(self.mean, digits)} {span}  n {self.n}, SD "
            f"{fixed(self.sd, digits)}{p}",
            f"The mean with its 95% interval, and p of a t test against {self.bar:g}.",
            f"{self.passed} of {plural(self.n + self.diverged, 'run')} passed it{lost}.",
        ]


def compare_with_bar(
    runs: Sequence[Run],
    score: str,
    bar: float,
    better: Literal["lower", "higher"],
    *,
    at_step: float | None,
    alpha: float,
) -> AgainstBar:
    """Return the comparison of the runs of one arm with a bar, by Student's one-sample t.

    Raises ParibusError where no run has a finite score.
    """
    if not math.isfinite(bar):
        raise ParibusError(f"--bar {bar} must be finite")
    sign = 1 if better == "higher" else -1
    values = np.array([final_score(run, score, at_step) for run in runs])
    finite = values[np.isfinite(values)]
    if not len(finite):
        raise ParibusError(f"no run has a finite {score}")
    n, (mean, sd) = len(finite), mean_and_sd(finite)
    low = high = p = None
    if n > 1:
        test = paired_t(finite)
        interval = test.interval(1 - alpha)
        low, high = interval.low, interval.high
        p = test.p_value(bar) if n >= DESCRIPTIVE_BELOW and sd else None
    word: Word = "DESCRIPTIVE"
    if p is not None:
        is_better = sign * (mean - bar) > 0
        word = "UNRESOLVED" if p > alpha or (is_better and n < len(values)) else "BETTER"
        word = "WORSE" if word == "BETTER" and not is_better else word
    return AgainstBar(
        score=score,
        bar=bar,
        better=better,
        n=n,
        diverged=len(values) - n,
        mean=mean,
        sd=sd if n > 1 else None,
        low=low,
        high=high,
        p=p,
        passed=int((sign * (finite - bar) > 0).sum()),
        word=word,
    )
