"""Tuning, judged from its records: what each arm tried, what was chosen, and how sure that is.

Every arm gets the candidate whose mean of the registered metric over the tuning seeds is best. A
candidate that diverged on some seed comes after all that did on fewer; of equal ones the first
that was tried counts.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from paribus.analysis.sampling import registered
from paribus.analysis.table import Table
from paribus.comparison import agree, compare
from paribus.errors import ParibusError
from paribus.metric import Better, Metric
from paribus.results import Results
from paribus.statistics import (
    LEAST_TUNING_SEEDS,
    PairedContrast,
    Result,
    StatisticsError,
    learning_rate_sensitivity,
    paired_contrast,
    paired_t,
    parabola,
)
from paribus.study import (
    LEARNING_RATE,
    Candidate,
    Study,
    at_edges,
    in_words,
    open_edges,
    tuning_study,
)
from paribus.study.study import tuning_of
from paribus.study.tuning import VERTEX_DIGITS, Value
from paribus.study.tuning_study import candidate_arm

RULE = (
    "the candidate with the best mean over the tuning seeds; one that diverged on a seed comes "
    "after those that diverged on fewer, and of equal ones the first tried counts"
)
VERTEX = (
    "along a numeric axis the vertex of the parabola through the mean of that candidate and those "
    "of its neighbours, against the logarithm of the value, between the three"
)
SIDES = {-1: "smallest", 1: "largest"}
Scores = dict[str, dict[int, dict[int, float]]]
"""{arm: {number of the candidate: {seed: value}}}, NaN where a trial diverged."""


@dataclass(frozen=True)
class Tried:
    """The tuning trials.

    Attributes:
        candidates: all that every arm was tried with, in order; the first has the number 1.
        scores: their values of the metric that chooses.
        better: its direction.
        initial: {arm: {seed: loss before the first update}}, which no learning rate changes.
    """

    candidates: tuple[Candidate, ...]
    scores: Scores
    better: Better
    initial: dict[str, dict[int, float]]

    @property
    def chosen(self) -> dict[str, int]:
        """The number of each arm's best candidate."""
        return {arm: choose(scores, self.better) for arm, scores in self.scores.items()}


def vertex_key(tried: Tried) -> str | None:
    """Return the key along which parabolas are fitted: the learning rate, or the first of
    positive numbers that are not all whole; None without any, and of several keys that are no
    whole grid."""
    keys = list(tried.candidates[0])
    sizes = [len({str(candidate[key]) for candidate in tried.candidates}) for key in keys]
    if len(keys) > 1 and math.prod(sizes) != len(tried.candidates):
        return None
    for key in sorted(keys, key=lambda key: key != LEARNING_RATE):
        values = [candidate[key] for candidate in tried.candidates]
        # Between whole numbers alone, such as a depth, there may be nothing.
        if any(isinstance(value, float) for value in values) and all(
            isinstance(value, int | float) and not isinstance(value, bool) and value > 0
            for value in values
        ):
            return key
    return None


def windows(tried: Tried, arm: str) -> list[tuple[int, int, int]]:
    """Return the best candidate of `arm` and its neighbours by value, ascending: of the chosen
    values of all other keys, and then of each other combination of these that has them.

    Along `vertex_key`. A best value at the edge has both neighbours on one side; one where a seed
    diverged is no neighbour. Empty where there are no three such candidates in a row with the
    other keys as chosen.
    """
    key = vertex_key(tried)
    if key is None:
        return []
    slices: dict[tuple[tuple[str, Value], ...], list[int]] = {}
    for number, candidate in enumerate(tried.candidates, start=1):
        other_values = tuple((name, value) for name, value in candidate.items() if name != key)
        slices.setdefault(other_values, []).append(number)
    chosen = tried.chosen[arm]
    by_others = {}
    for numbers_ in slices.values():
        best = choose({number: tried.scores[arm][number] for number in numbers_}, tried.better)
        order = sorted(numbers_, key=lambda number: tried.candidates[number - 1][key])
        if three := _around(tried, arm, order, best):
            by_others[best] = three
    if chosen not in by_others:
        return []
    return [by_others.pop(chosen), *by_others.values()]


def _around(tried: Tried, arm: str, order: Sequence[int], best: int) -> tuple[int, int, int] | None:
    """Return `best` and its neighbours in `order`; None without three that did not diverge."""
    sound = [all(map(math.isfinite, tried.scores[arm][n].values())) for n in order]
    at = order.index(best)
    low = high = at
    while low > 0 and sound[low - 1]:
        low -= 1
    while high < len(order) - 1 and sound[high + 1]:
        high += 1
    if not sound[at] or high - low < 2:
        return None
    middle = min(max(at, low + 1), high - 1)
    return order[middle - 1], order[middle], order[middle + 1]


def place(tried: Tried, number: int) -> float:
    """Return the logarithm of the value of a candidate along which its parabola is fitted."""
    key = vertex_key(tried)
    assert key is not None
    return math.log(float(tried.candidates[number - 1][key]))


def chosen_values(study: Study, tried: Tried) -> dict[str, Candidate]:
    """Return what each arm is judged at: its best candidate, or the vertex beside it where the
    error is to include the choice by it."""
    values_by_arm = {arm: dict(tried.candidates[n - 1]) for arm, n in tried.chosen.items()}
    key = vertex_key(tried)
    if (
        not study.inference.chooses_vertex
        or key is None
        or len(tuning_of(study).seeds) < LEAST_TUNING_SEEDS
    ):
        return values_by_arm
    for arm, values in values_by_arm.items():
        if not (tried_windows := windows(tried, arm)):
            continue
        sign = -1.0 if tried.better == "higher" else 1.0
        means = [sign * _mean(tried.scores[arm][number].values()) for number in tried_windows[0]]
        vertex = parabola([place(tried, number) for number in tried_windows[0]], means).vertex
        values[key] = float(f"{math.exp(vertex):.{VERTEX_DIGITS}g}")
    return values_by_arm


def choose(scores: Mapping[int, Mapping[int, float]], better: Better) -> int:
    """Return the number of the best candidate of one arm; `scores` are values by seed."""
    sign = -1.0 if better == "higher" else 1.0

    def rank(number: int) -> tuple[int, float, int]:
        values, mean = scores[number].values(), _mean(scores[number].values())
        n_diverged = sum(not math.isfinite(value) for value in values)
        return n_diverged, math.inf if math.isnan(mean) else sign * mean, number

    return min(scores, key=rank)


def tried_in(study: Study, results: Results) -> Tried:
    """Return the tuning trials in `results`, checked to be those that the plan asks for.

    Raises ParibusError if they are of another plan, or if one of them is not finished.
    """
    tuning = tuning_of(study)
    if not tuning_study(study).is_same(results.study):
        raise ParibusError(
            f"{results.path} holds other tuning trials than the plan asks for; restore it, or "
            "choose another folder with --results"
        )
    if results.unfinished:
        raise ParibusError(
            f"{results.path}: tuning trial {results.unfinished[0].label} is not finished, and "
            "arms are compared at equal cost; run the study again to continue"
        )
    table, scores = Table.of(results), Scores()
    for arm in study.arms:
        scores[arm] = {}
        for number in range(1, len(tuning.candidates) + 1):
            usable = table.usable(candidate_arm(arm, number), tuning.select)
            scores[arm][number] = {seed: usable.get(seed, math.nan) for seed in tuning.seeds}
    initial = {
        arm: {
            seed: events.initial_loss
            for seed in tuning.seeds
            if (events := table.events.get((candidate_arm(arm, 1), seed)))
        }
        for arm in study.arms
    }
    better = results.metrics[tuning.select].better
    return Tried(tuple(tuning.candidates), scores, better, initial)


def tuning_record(study: Study, results: Results) -> dict[str, Any]:
    """Return what tuning.json holds: every trial, the choice of each arm, its rule, and what is
    open. `results` are the tuning trials.

    Raises ParibusError as `tried_in` does.
    """
    tuning, tried = tuning_of(study), tried_in(study, results)
    values = chosen_values(study, tried)
    return {
        "select": tuning.select,
        "better": tried.better,
        "rule": f"{RULE}; {VERTEX}" if study.inference.chooses_vertex else RULE,
        "seeds": list(tuning.seeds),
        "candidates": [dict(candidate) for candidate in tried.candidates],
        "root": results.root,
        "trials": [
            {
                "arm": arm,
                "candidate": number,
                "seed": seed,
                "value": value if math.isfinite(value) else None,
            }
            for arm, by_number in tried.scores.items()
            for number, by_seed in by_number.items()
            for seed, value in by_seed.items()
        ],
        "chosen": {
            arm: {"candidate": number, "values": values[arm]}
            for arm, number in tried.chosen.items()
        },
        "caveats": caveats(tried),
    }


def values_of(record: Mapping[str, Any]) -> dict[str, Candidate]:
    """Return what was chosen for each arm, as tuning.json says."""
    return {arm: choice["values"] for arm, choice in record["chosen"].items()}


def differing_from(stated: Mapping[str, Any], fresh: Mapping[str, Any]) -> list[str]:
    """Return the keys of a tuning.json that say otherwise than `fresh`, whatever its sentences."""
    return compare(stated, fresh, words=("caveats", "rule")).differing


def caveats(tried: Tried) -> dict[str, list[str]]:
    """Return what the choice leaves open, by arm, a line each."""
    lines_by_arm = {}
    for arm, number in tried.chosen.items():
        best, lines = tried.candidates[number - 1], []
        values = tried.scores[arm][number].values()
        if lost := sum(not math.isfinite(value) for value in values):
            lines.append(
                f"every value tried diverged on a tuning seed; the best did on {lost} of "
                f"{len(values)}"
            )
        outermost = [
            f"the {SIDES[side]} value tried ({in_words({key: best[key]})})"
            for key, side in open_edges(tried.candidates, best)
        ]
        if outermost:
            lines.append(f"the best is {' and '.join(outermost)}, so a better one may lie beyond")
        if lines:
            lines_by_arm[arm] = lines
    return lines_by_arm


@dataclass(frozen=True)
class Sensitivity(Result):
    """Learning-rate sensitivity of an arm (Wortsman et al. 2023), in nats/token: over the rates
    that it was tuned with, any other key as it was chosen.

    Attributes:
        values: by tuning seed; NaN where no rate of the seed learned anything, which leaves the
            seed out of `paired`.
        paired: against its reference at the same tuning seeds; None for fewer than two.
    """

    arm: str
    reference: str | None
    values: dict[int, float]
    paired: PairedContrast | None


def sensitivities(study: Study, tried: Tried) -> list[Sensitivity]:
    """Of every arm, over the rates that all were tuned with; empty where no rate was tuned, or
    something that changes the first loss, or by another metric than the loss that it is of."""
    tuning = study.tuning
    if tuning is None or LEARNING_RATE not in tuning.keys or tuning.select != study.format.loss:
        return []
    if not all(key.startswith("training.") for key in tuning.keys):
        return []
    over = {arm: _rates_at_chosen(tried, arm) for arm in study.arms}
    if min(map(len, over.values())) < 2:  # listed combinations may share no other key
        return []
    values = {arm: _sensitivity_by_seed(tried, arm, over[arm]) for arm in study.arms}
    by_arm = []
    for arm, ours in values.items():
        reference = study.reference(arm)
        theirs = values[reference] if reference else {}
        pairs = _finite_pairs(theirs, ours)
        paired = None
        if len(pairs) > 1:
            paired = paired_contrast(*zip(*pairs, strict=True), **registered(study))
        by_arm.append(Sensitivity(arm, reference, ours, paired))
    return by_arm


def _rates_at_chosen(tried: Tried, arm: str) -> list[int]:
    """Return the numbers of the candidates that differ from an arm's best in the rate alone."""
    best = tried.candidates[tried.chosen[arm] - 1]
    return [
        number
        for number, candidate in enumerate(tried.candidates, start=1)
        if candidate | {LEARNING_RATE: best[LEARNING_RATE]} == best
    ]


def _sensitivity_by_seed(tried: Tried, arm: str, over: Sequence[int]) -> dict[int, float]:
    """Sensitivity of the validation loss by tuning seed; a diverged trial learned nothing.

    NaN where no learning rate of a seed learned anything. Its best loss is the initial one, as are
    all others: the formula's value would be 0, which would flatter it.
    """
    by_seed = {}
    for seed, initial in tried.initial[arm].items():
        final = [[tried.scores[arm][number][seed] for number in over]]
        try:
            by_seed[seed] = float(learning_rate_sensitivity(final, [initial])[0])
        except StatisticsError:
            by_seed[seed] = math.nan
    return by_seed


def _finite_pairs(
    theirs: Mapping[int, float], ours: Mapping[int, float]
) -> list[tuple[float, float]]:
    """Return both values of each seed at which both are finite."""
    pairs = [(theirs.get(seed, math.nan), value) for seed, value in ours.items()]
    return [pair for pair in pairs if all(map(math.isfinite, pair))]


@dataclass(frozen=True)
class Point(Result):
    """An arm with one candidate.

    Attributes:
        candidate: its number, from 1.
        values: by tuning seed; NaN where the trial diverged.
        mean: over the seeds that did not diverge; NaN where all did.
        chosen: whether it is the arm's best.
        edges: of the chosen one, the keys with an outermost value of those tried, and where: -1 is
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
class SharedContrast(Result):
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
class Tuned(Result):
    """The tuning of a study.

    Attributes:
        metric: what chose.
        candidates: what every arm was tried with; the first has the number 1.
        points: arm by arm, each in the order of the candidates.
        shared: contrast by contrast, in the same order.
        chosen: the values of each arm: of its best candidate, or of the vertex beside it.
        caveats: by arm, what its choice leaves open.
        sensitivities: of every arm to its learning rate, where it is tuned.
    """

    metric: Metric
    candidates: tuple[Candidate, ...]
    points: tuple[Point, ...]
    shared: tuple[SharedContrast, ...]
    chosen: dict[str, Candidate]
    caveats: dict[str, list[str]]
    sensitivities: tuple[Sensitivity, ...] = ()

    def of(self, arm: str) -> list[Point]:
        """Return the tuning curve of `arm`."""
        return [point for point in self.points if point.arm == arm]

    def best(self, arm: str) -> Point:
        """Return the point that was chosen for `arm`."""
        return next(point for point in self.of(arm) if point.chosen)

    def values_of(self, point: Point | SharedContrast) -> Candidate:
        """Return the values that a point was trained with."""
        return self.candidates[point.candidate - 1]

    def extremes(self, arm: str) -> tuple[SharedContrast, SharedContrast] | None:
        """Return the least and the largest change of `arm` at a shared candidate; None without
        any."""
        finite = [c for c in self.shared if c.arm == arm and math.isfinite(c.mean)]
        if not finite:
            return None
        return min(finite, key=lambda c: c.mean), max(finite, key=lambda c: c.mean)

    def values_differ_untold(self, arm: str, reference: str, alpha: float) -> bool:
        """Return whether the two have different values that the tuning seeds do not tell apart."""
        ours, theirs = self.best(arm).candidate, self.best(reference).candidate
        if ours == theirs:
            return False
        prefers = self._prefers(arm, ours, theirs, alpha)
        return not (prefers and self._prefers(reference, theirs, ours, alpha))

    def _prefers(self, arm: str, own: int, theirs: int, alpha: float) -> bool:
        """Return whether an arm is better with candidate `own`, beyond chance."""
        values = {point.candidate: point.values for point in self.of(arm)}
        if any(
            math.isfinite(value) and not math.isfinite(values[theirs][seed])
            for seed, value in values[own].items()
        ):
            return True
        sign = -1.0 if self.metric.better == "higher" else 1.0
        worse = [sign * (b - a) for a, b in _finite_pairs(values[own], values[theirs])]
        if len(worse) < 2:
            return False
        test = paired_t(worse)
        return test.mean > 0 and test.p_value() <= alpha

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return super().to_dict() | {"metric": self.metric.name}


def tuned(results: Results) -> Tuned | None:
    """Return the tuning of `results`; None where nothing is tuned, or the tuning is not
    finished."""
    study, trials = results.study, results.tuning_trials
    if study.tuning is None or trials is None or trials.unfinished:
        return None
    tried = tried_in(study, trials)
    metric, candidates = trials.metrics[study.tuning.select], tried.candidates
    points = []
    for arm, by_number in tried.scores.items():
        for number, values in by_number.items():
            is_best = number == tried.chosen[arm]
            edges = dict(at_edges(candidates, candidates[number - 1])) if is_best else {}
            points.append(Point(arm, number, values, _mean(values.values()), is_best, edges))
    return Tuned(
        metric=metric,
        candidates=candidates,
        points=tuple(points),
        shared=tuple(_shared(study, tried, metric)),
        chosen=chosen_values(study, tried),
        caveats=caveats(tried),
        sensitivities=tuple(sensitivities(study, tried)),
    )


def why_not_these_values(study: Study, tuning: Tuned | None) -> str:
    """Why the values of the study's arms are not those that its tuning trials choose; empty where
    they are, and where nothing was chosen."""
    if study.tuning is None or not study.tuning.chosen:
        return ""
    if tuning is None:
        return "the tuning trials that chose the values of the arms are not there"
    for arm, values in study.tuning.chosen.items():
        best = tuning.chosen.get(arm)
        if best is None or not agree(values, best):
            text = in_words(best) if best else "nothing"
            return f"{arm} has {in_words(values)}, and the tuning trials choose {text}"
    return ""


def _shared(study: Study, tried: Tried, metric: Metric) -> Iterator[SharedContrast]:
    for arm, reference in study.contrasts:
        for number, ours in tried.scores[arm].items():
            theirs = tried.scores[reference][number]
            differences = {
                seed: metric.compared(value) - metric.compared(theirs[seed])
                for seed, value in ours.items()
                if math.isfinite(value) and math.isfinite(theirs[seed])
            }
            mean = _mean(differences.values())
            yield SharedContrast(arm, reference, number, differences, mean)


def _mean(values: Iterable[float]) -> float:
    """Return the mean of the finite ones; NaN without any."""
    finite = [value for value in values if math.isfinite(value)]
    return math.fsum(finite) / len(finite) if finite else math.nan
