"""What a tuned study's answer depends on: tuning curves, and the contrast at every shared value.

All of it is of the tuning seeds, which chose: it describes, and tests nothing. The verdict is of
other seeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from paribus.analysis.choose import Tried, caveats, next_candidates, tried_in, tuning_rounds
from paribus.metric import Metric
from paribus.results import Results
from paribus.statistics import expected_best_of
from paribus.study import Candidate, Study


@dataclass(frozen=True)
class Point:
    """An arm with one candidate.

    Attributes:
        candidate: its number, from 1.
        values: by tuning seed; NaN where the trial diverged.
        mean: over the seeds that did not diverge; NaN where all did.
        chosen: whether it is the arm's best.
    """

    arm: str
    candidate: int
    values: dict[int, float]
    mean: float
    chosen: bool


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
    """

    metric: Metric
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    shared: tuple[SharedContrast, ...]
    best_of: dict[str, tuple[float, ...]]
    caveats: dict[str, list[str]]

    def of(self, arm: str) -> list[Point]:
        """The tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return {
            "metric": self.metric.name,
            "candidates": [dict(candidate) for candidate in self.candidates],
            "points": [_plain(asdict(point)) for point in self.points],
            "shared": [_plain(asdict(contrast)) for contrast in self.shared],
            "best_of": {arm: list(curve) for arm, curve in self.best_of.items()},
            "caveats": self.caveats,
        }


def tuned(results: Results) -> Tuned | None:
    """The tuning of `results`; None where nothing is tuned, or the tuning is not finished."""
    study = results.study
    if study.tuning is None:
        return None
    rounds = tuning_rounds(results.path)
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
            Point(arm, number, values, _mean(list(values.values())), number == chosen[arm])
            for arm, by_number in tried.scores.items()
            for number, values in by_number.items()
        ),
        shared=tuple(_shared(study, tried, metric)),
        best_of={arm: _best_of(tried, arm) for arm in study.arms},
        caveats=caveats(tried),
    )


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
