"""Rules by which others accept a result, and what they say of runs.

A rule is data: a TOML file in this folder, or a user's own. What is computed is one of four
statistics. Nothing is registered and nothing is paired: a rule answers with its own words, beside
the verdict and not instead of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal

from pydantic import Field, ValidationError, model_validator

from paribus.errors import ParibusError, nearest
from paribus.explain import explain
from paribus.metric import Words
from paribus.statistics.distributions import ndtr, ndtri, noncentral_t_cdf, stdtr, stdtrit
from paribus.study.base import Spec
from paribus.untrusted_io import STUDY_BYTES, parse_toml, read_text

Answers = Literal["supported", "not supported", "too few runs"]
MOST_RUNS = 1_000_000  # beyond this none would do
POWER = 0.8


class PublishedRule(Spec):
    """A rule for a mean over runs.

    Attributes:
        name: how users call it: that of its file.
        title: what is required, in one line.
        source: where it is written.
        score: what the rule calls the score.
        better: which direction is an improvement.
        statistic: what is compared with the threshold, where `gain` is the mean's distance from the
            target, positive where it is better, and n the number of runs:
            "known_sigma", `gain sqrt(n)`, at least the threshold;
            "student_t", the one-sided p of Student's t, below the threshold;
            "pairwise", `(gain + steps saved x per_step) / sqrt(1/n1 + 1/n2)` of two arms, gain
            being that of their means, at least the threshold;
            "mean", the gain itself, above 0.
        target: what the mean is compared with.
        sigma: the standard deviation that the rule takes as known.
        threshold: as said under `statistic`.
        per_step: the score that one step is worth.
    """

    name: Words
    title: Words
    source: Words
    score: Words
    better: Literal["lower", "higher"]
    statistic: Literal["known_sigma", "student_t", "pairwise", "mean"]
    target: float | None = None
    sigma: float | None = Field(None, gt=0)
    threshold: float | None = Field(None, gt=0)
    per_step: float | None = Field(None, ge=0)

    @model_validator(mode="after")
    def _has_what_it_needs(self) -> PublishedRule:
        for key in ("target", "sigma", "threshold", "per_step"):
            needed = key in NEEDS[self.statistic]
            if needed != (getattr(self, key) is not None):
                told = "needs" if needed else "has no use for"
                raise ValueError(f"statistic '{self.statistic}' {told} {key}")
        return self

    def answer(
        self,
        scores: Sequence[float],
        *,
        steps: float | None = None,
        baseline: Sequence[float] = (),
        baseline_steps: float | None = None,
    ) -> PublishedAnswer:
        """Return what the rule says of the scores of the runs of one arm.

        The pairwise form compares with the scores of a `baseline`; both say at which step. Raises
        ParibusError for a score that is not finite, and where an arm is missing.
        """
        is_pair = self.statistic == "pairwise"
        for value in (*scores, *baseline):
            if not math.isfinite(value):
                raise ParibusError(f"rule {self.name}: {value} is no {self.score}; leave it out")
        if not scores or (is_pair and not baseline):
            raise ParibusError(f"rule {self.name}: an arm has no runs")
        if is_pair and (steps is None or baseline_steps is None):
            raise ParibusError(f"rule {self.name} needs the steps of both arms")
        sign = 1 if self.better == "lower" else -1
        mean = math.fsum(scores) / len(scores)
        target = math.fsum(baseline) / len(baseline) if is_pair else self.target
        assert target is not None
        gain = sign * (target - mean)
        if is_pair:
            assert steps is not None and baseline_steps is not None and self.per_step is not None
            gain += (baseline_steps - steps) * self.per_step
        return EVALUATE[self.statistic](self, gain, mean, list(scores), len(baseline))


@dataclass(frozen=True)
class PublishedAnswer:
    """What a rule says.

    Attributes:
        rule: its name.
        word: "supported"; "too few runs", where the mean is on the right side and the rule asks for
            more; "not supported", where it is not.
        runs: how many runs there are.
        mean: of their scores.
        gain: how much better than required the mean is; of the pairwise form, than the baseline's,
            with the steps that are saved.
        statistic: what the rule computes; None where that takes more runs, or runs that differ.
        p_value: one-sided, under what the rule assumes; None where it tests nothing.
        runs_needed: how many would do if mean and standard deviation stay as they are, of the
            pairwise form in both arms; None where none would, or nobody can say.
        runs_for_power: how many would do in POWER of such attempts, as sigma or the standard
            deviation of these runs has it.
    """

    rule: str
    word: Answers
    runs: int
    mean: float
    gain: float
    statistic: float | None
    p_value: float | None
    runs_needed: int | None
    runs_for_power: int | None

    @property
    def sentence(self) -> str:
        """`too few runs: 1, and 4 would do at this mean (13 in 80% of attempts)`."""
        if self.word != "too few runs":
            return self.word
        if self.runs_needed is None:
            return f"{self.word}: {self.runs}; one has no standard deviation"
        often = (
            f" ({self.runs_for_power} in {POWER:.0%} of attempts)" if self.runs_for_power else ""
        )
        return f"{self.word}: {self.runs}, and {self.runs_needed} would do at this mean{often}"


def _known_sigma(
    rule: PublishedRule, gain: float, mean: float, scores: list[float], n_baseline: int
) -> PublishedAnswer:
    assert rule.sigma is not None and rule.threshold is not None
    runs = len(scores)
    per_run = 1 / runs + (1 / n_baseline if n_baseline else 0)
    # In doubles 0.002 sqrt(4) may come out below 0.004; a ten-billionth is nobody's difference.
    statistic = round(gain / math.sqrt(per_run), 13)
    arms = 2 if n_baseline else 1
    often = rule.threshold + float(ndtri(POWER)) * rule.sigma
    return PublishedAnswer(
        rule=rule.name,
        word=_word(statistic >= rule.threshold, gain),
        runs=runs,
        mean=mean,
        gain=gain,
        statistic=statistic,
        p_value=float(ndtr(-statistic / rule.sigma)),
        runs_needed=_runs(arms * (rule.threshold / gain) ** 2) if gain > 0 else None,
        runs_for_power=_runs(arms * (often / gain) ** 2) if gain > 0 else None,
    )


def _student_t(
    rule: PublishedRule, gain: float, mean: float, scores: list[float], n_baseline: int
) -> PublishedAnswer:
    assert rule.threshold is not None
    runs, level = len(scores), rule.threshold
    statistic = p_value = needed = often = None
    if runs > 1:
        sd = math.sqrt(math.fsum((one - mean) ** 2 for one in scores) / (runs - 1))
        if sd > 0:
            statistic = gain / (sd / math.sqrt(runs))
            p_value = float(stdtr(runs - 1, -statistic))
        else:
            p_value = 0.0 if gain > 0 else 1.0
        if gain > 0 and sd > 0:
            effect = gain / sd
            needed = _least(lambda n: bool(stdtr(n - 1, -effect * math.sqrt(n)) < level))
            often = _least(lambda n: _power(n, effect, level) >= POWER)
    return PublishedAnswer(
        rule=rule.name,
        word=_word(p_value is not None and p_value < level, gain),
        runs=runs,
        mean=mean,
        gain=gain,
        statistic=statistic,
        p_value=p_value,
        runs_needed=needed,
        runs_for_power=often,
    )


def _power(runs: int, effect: float, level: float) -> float:
    """Return how often a one-sided t-test finds a mean that is `effect` SDs from the target."""
    critical = float(stdtrit(runs - 1, 1 - level))
    return 1 - noncentral_t_cdf(critical, runs - 1, effect * math.sqrt(runs))


def _mean(
    rule: PublishedRule, gain: float, mean: float, scores: list[float], n_baseline: int
) -> PublishedAnswer:
    return PublishedAnswer(
        rule=rule.name,
        word="supported" if gain > 0 else "not supported",
        runs=len(scores),
        mean=mean,
        gain=gain,
        statistic=gain,
        p_value=None,
        runs_needed=None,
        runs_for_power=None,
    )


def _word(passes: bool, gain: float) -> Answers:
    if passes:
        return "supported"
    return "too few runs" if gain > 0 else "not supported"


def _runs(number: float) -> int | None:
    return math.ceil(round(number, 9)) if number <= MOST_RUNS else None


def _least(does: Callable[[int], bool]) -> int | None:
    """Return the least number of runs, from 2, that does; doing so is monotone in it."""
    high = 2
    while not does(high):
        high *= 2
        if high > MOST_RUNS:
            return None
    low = max(high // 2, 2)
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if does(middle) else (middle + 1, high)
    return high


NEEDS = {
    "known_sigma": ("target", "sigma", "threshold"),
    "student_t": ("target", "threshold"),
    "pairwise": ("sigma", "threshold", "per_step"),
    "mean": ("target",),
}
EVALUATE = {
    "known_sigma": _known_sigma,
    "pairwise": _known_sigma,
    "student_t": _student_t,
    "mean": _mean,
}


@cache
def published_rules() -> dict[str, PublishedRule]:
    """Return the rules in this folder, by name."""
    files = sorted(Path(__file__).parent.glob("*.toml"))
    return {file.stem: read_rule(file) for file in files}


def find_published(name: str) -> PublishedRule:
    """Return the rule of that name, or in that file. Raises ParibusError."""
    if name.endswith(".toml"):
        return read_rule(Path(name))
    known = published_rules()
    if name not in known:
        raise ParibusError(
            f"--rule {name}: there is no published rule of that name: {nearest(name, known)}. Your "
            "own is a file, 'rule.toml'"
        )
    return known[name]


def read_rule(file: Path) -> PublishedRule:
    """Return the rule in a TOML file; its name is the file's. Raises ParibusError."""
    table = parse_toml(read_text(file, STUDY_BYTES), str(file))
    try:
        return PublishedRule.model_validate({"name": file.stem, **table})
    except ValidationError as error:
        raise ParibusError(f"{file}: {explain(error, PublishedRule)}") from None
