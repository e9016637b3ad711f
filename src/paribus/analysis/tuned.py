"""What a tuned study's answer depends on: tuning curves, and the contrast at every shared value.

All of it is of the tuning seeds, which chose: it describes, and tests nothing. The verdict is of
other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from paribus import numbers
from paribus.analysis.choose import Tried, caveats, next_candidates, tried_in
from paribus.analysis.sensitivity import sensitivities
from paribus.analysis.side_effects import Sensitivity
from paribus.comparison import agree
from paribus.metric import Metric
from paribus.results import Results
from paribus.statistics import StatisticsError, expected_best_of, paired_t
from paribus.study import Candidate, Study, at_edges, in_words

FEW_SEEDS = 3  # tuning seeds below which the verdict says that a choice is of few


@dataclass(frozen=True)
class Point:
    """An arm with one candidate.

    Attributes:
        candidate: its number, from 1.
        values: by tuning seed; NaN where the trial diverged.
        mean: over the seeds that did not diverge; NaN where all did.
        chosen: whether it is the arm's best.
        edges: of what was chosen, the keys with an outermost value of those tried, and where: -1 is
            the smallest, 1 the largest.
    """

    arm: str
    candidate: int
    values: dict[int, float]
    mean: float
    chosen: bool
    edges: dict[str, int] = field(default_factory=dict)

    @property
    def n_diverged(self) -> int:
        """On how many tuning seeds it diverged."""
        return sum(not math.isfinite(value) for value in self.values.values())


@dataclass(frozen=True)
class SharedContrast:
    """An arm minus its reference where both have the same candidate.

    Attributes:
        differences: as the metric is compared, by tuning seed on which neither diverged.
        mean: of these; NaN where there is none.
    """

    arm: str
    reference: str
    candidate: int
    differences: dict[int, float]
    mean: float


@dataclass(frozen=True)
class Tuned:
    """The tuning of a study.

    Attributes:
        metric: what chose.
        candidates: what every arm was tried with; the first has the number 1.
        points: arm by arm, each in the order of the candidates.
        shared: contrast by contrast, in the same order.
        best_of: by arm, the expected best of 1, 2, ... candidates drawn from those tried that did
            not diverge; empty where all did.
        caveats: by arm, what its choice leaves open.
        sensitivities: of every arm to its learning rate, where that alone is tuned.
    """

    metric: Metric
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    shared: tuple[SharedContrast, ...]
    best_of: dict[str, tuple[float, ...]]
    caveats: dict[str, list[str]]
    sensitivities: tuple[Sensitivity, ...] = ()

    def of(self, arm: str) -> list[Point]:
        """The tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """What was chosen for `arm`."""
        return next(point for point in self.of(arm) if point.chosen)

    def values_of(self, one: Point | SharedContrast) -> Candidate:
        """The values that `one` was trained with."""
        return self.candidates[one.candidate - 1]

    def shared_by(self, arm: str) -> list[SharedContrast]:
        """The contrast of `arm` at every candidate; by ascending value, where a single number is
        tuned, since a grid may have grown at its start."""
        found = [one for one in self.shared if one.arm == arm]
        values = {one.candidate: [*self.values_of(one).values()] for one in found}
        if any(len(of) > 1 or isinstance(of[0], str) for of in values.values()):
            return found
        return sorted(found, key=lambda one: values[one.candidate])

    def extremes(self, arm: str) -> tuple[SharedContrast, SharedContrast] | None:
        """The least and the largest change of `arm` at a shared candidate; None without any."""
        there = [one for one in self.shared_by(arm) if math.isfinite(one.mean)]
        if not there:
            return None
        return min(there, key=lambda one: one.mean), max(there, key=lambda one: one.mean)

    def between(self, arm: str) -> str:
        """`where both have the same value, the change of ... lies between ...`, on the tuning
        seeds; empty where fewer than two values can be compared."""
        extremes = self.extremes(arm)
        if extremes is None or extremes[0] is extremes[1]:
            return ""
        digits, unit = self.metric.change_digits, self.metric.change_unit
        low, high = (
            f"{numbers.signed(one.mean, digits)} ({in_words(self.values_of(one))})"
            for one in extremes
        )
        text = (
            f"where both arms have the same values, {self.metric.label} changes by {low} to {high}"
        ) + (f" {unit}" if unit not in ("", "1") else "")
        if extremes[0].mean < 0 < extremes[1].mean:
            text += ": its sign depends on the value"
        return text

    def why_values_differ(self, arm: str, reference: str, alpha: float) -> str:
        """That arms have different values which the tuning seeds do not tell apart, so that what
        the verdict finds may be a difference of values; empty where that is not so.

        They are told apart where each arm is significantly better with its own value than with the
        other's, or diverges with that: two arms that are one would not both be.
        """
        if not self.values_differ_untold(arm, reference, alpha):
            return ""
        n_seeds = len(self.points[0].values)
        seeds = f"{n_seeds} tuning seed{'s do' if n_seeds > 1 else ' does'}"
        mine, other = (in_words(self.values_of(self.best(one)))
                       for one in (arm, reference))  # fmt: skip
        return (
            f"{arm} has {mine} and {reference} {other}, which {seeds} not tell apart: part of the "
            "change may be one of these values, and not of the arms"
        )

    def values_differ_untold(self, arm: str, reference: str, alpha: float) -> bool:
        """Whether the two have different values that the tuning seeds do not tell apart."""
        ours, theirs = self.best(arm).candidate, self.best(reference).candidate
        if ours == theirs:
            return False
        told = self._prefers(arm, ours, theirs, alpha)
        return not (told and self._prefers(reference, theirs, ours, alpha))

    def _prefers(self, arm: str, own: int, other: int, alpha: float) -> bool:
        """Whether an arm is better with candidate `own`, beyond chance."""
        values = {point.candidate: point.values for point in self.of(arm)}
        pairs = [(values[own][seed], values[other][seed]) for seed in values[own]]
        if any(math.isfinite(mine) and not math.isfinite(theirs) for mine, theirs in pairs):
            return True
        sign = -1.0 if self.metric.better == "higher" else 1.0
        worse = [sign * (b - a) for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        try:
            found = paired_t(worse)
        except StatisticsError:  # fewer than two seeds
            return False
        return found.mean > 0 and found.p_value() <= alpha

    def left_open(self, arms: Sequence[str]) -> list[str]:
        """What the choices of these arms leave open, a line each."""
        lines = [line for arm in arms for line in self.caveats.get(arm, [])]
        n_seeds = len(self.points[0].values)
        if n_seeds < FEW_SEEDS:
            plural = "s" if n_seeds > 1 else ""
            lines.append(
                f"every value was tried on {n_seeds} tuning seed{plural} alone, so another may be "
                "the best"
            )
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return {
            "metric": self.metric.name,
            "candidates": [dict(candidate) for candidate in self.candidates],
            "points": [_plain(asdict(point)) for point in self.points],
            "shared": [_plain(asdict(contrast)) for contrast in self.shared],
            "best_of": {arm: list(curve) for arm, curve in self.best_of.items()},
            "caveats": self.caveats,
            "sensitivities": [sensitivity.to_dict() for sensitivity in self.sensitivities],
        }


def tuned(results: Results) -> Tuned | None:
    """The tuning of `results`; None where nothing is tuned, or the tuning is not finished."""
    study = results.study
    if study.tuning is None:
        return None
    rounds = results.tuning_rounds
    if not rounds or rounds[-1].unfinished:
        return None
    tried = tried_in(study, rounds)
    if tried is None or next_candidates(study, tried):
        return None
    metric, chosen = rounds[0].metrics[study.tuning.select], tried.chosen
    return Tuned(
        metric=metric,
        candidates=tried.candidates,
        points=tuple(
            Point(
                arm,
                number,
                values,
                _mean(list(values.values())),
                number == chosen[arm],
                _edges(tried, number) if number == chosen[arm] else {},
            )
            for arm, by_number in tried.scores.items()
            for number, values in by_number.items()
        ),
        shared=tuple(_shared(study, tried, metric)),
        best_of={arm: _best_of(tried, arm) for arm in study.arms},
        caveats=caveats(tried),
        sensitivities=tuple(sensitivities(study, tried)),
    )


def why_not_these_values(study: Study, found: Tuned | None) -> str:
    """Why the values of the study's arms are not those that its tuning trials, `found`, choose;
    empty where they are, and where nothing was chosen."""
    if study.tuning is None or not study.tuning.chosen:
        return ""
    if found is None:
        return "the tuning trials that chose the values of the arms are not there"
    for arm, values in study.tuning.chosen.items():
        best = found.values_of(found.best(arm))
        if not agree(values, best):
            return f"{arm} has {in_words(values)}, and the tuning trials choose {in_words(best)}"
    return ""


def _edges(tried: Tried, number: int) -> dict[str, int]:
    return dict(at_edges(tried.candidates, tried.candidates[number - 1]))


def _shared(study: Study, tried: Tried, metric: Metric) -> list[SharedContrast]:
    found = []
    for arm, reference in study.contrasts:
        for number, ours in tried.scores[arm].items():
            theirs = tried.scores[reference][number]
            differences = {
                seed: metric.compared(ours[seed]) - metric.compared(theirs[seed])
                for seed in ours
                if math.isfinite(ours[seed]) and math.isfinite(theirs[seed])
            }
            mean = _mean(list(differences.values()))
            found.append(SharedContrast(arm, reference, number, differences, mean))
    return found


def _best_of(tried: Tried, arm: str) -> tuple[float, ...]:
    means = [_mean(list(values.values()), whole=True) for values in tried.scores[arm].values()]
    finite = [mean for mean in means if math.isfinite(mean)]
    if not finite:
        return ()
    better: Literal["lower", "higher"] = "higher" if tried.better == "higher" else "lower"
    return tuple(expected_best_of(finite, list(range(1, len(finite) + 1)), better).tolist())


def _mean(values: Sequence[float], *, whole: bool = False) -> float:
    """The mean of the finite ones; with `whole` NaN unless all are."""
    finite = [value for value in values if math.isfinite(value)]
    if not finite or (whole and len(finite) < len(values)):
        return math.nan
    return math.fsum(finite) / len(finite)


def _plain(table: dict[str, Any]) -> dict[str, Any]:
    """Keys as words, and null for what is not finite."""
    return {key: _value(value) for key, value in table.items()}


def _value(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _value(inner) for key, inner in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
