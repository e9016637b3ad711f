"""Whether a finding changes with training budget, output matrix, size, text or tuning.

Only verdicts on the same treatment and endpoint are set side by side whose references have the
same setting but for what the comparison is along.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from paribus import numbers
from paribus.digests import flatten
from paribus.report.paper.judged import IN_WORDS, TOLD, Judged, judged, judged_on
from paribus.report.paper.material import Material
from paribus.report.table_model import Table
from paribus.report.words import listed
from paribus.study import LEARNING_RATE

BUDGET = ("training.iterations", "training.tokens", "training.batch_size")
WARMUP = "training.schedule.warmup"
SIZE = ("model.n_layer", "model.n_head", "model.d_model", "model.mlp.ratio", "model.preset")
SCHEDULE = ("training.schedule.", LEARNING_RATE)
# What is scored, and where models are kept: nothing that a model is trained with.
NOT_TRAINED_WITH = ("data.test_", "data.validation_", "training.keep")
TUNED = "tuned"
BY_SETTING = "by-setting"
REPLICAS = re.compile(r",? [\d to]+ replicas? side by side")  # how many at once is no other machine
BEST_OF_TRIED = "each arm at the best learning rate tried for it"


@dataclass(frozen=True)
class Axis:
    """What verdicts may differ in.

    Attributes:
        title: what it is called.
        keys: beginnings of the keys of a setting that belong to it.
        within: whether only verdicts of one study are compared, which it set side by side itself.
    """

    title: str
    keys: tuple[str, ...]
    within: bool = False


BY_BUDGET = Axis("training budget", (*BUDGET, WARMUP))
BY_SIZE = Axis("model size", SIZE)
BY_SIZE_AND_BUDGET = Axis("model size and the tokens with it", (*SIZE, *BUDGET, WARMUP), True)
BY_TEXT = Axis("text", ("data.",))
BY_TUNING = Axis("learning rate and its schedule", SCHEDULE)
BY_OUTPUT_MATRIX = Axis("output matrix", ("model.head.tied",))
AXES = (BY_BUDGET, BY_OUTPUT_MATRIX, BY_SIZE, BY_SIZE_AND_BUDGET, BY_TEXT, BY_TUNING)


@dataclass(frozen=True)
class Point:
    """A verdict at its place on an axis; `place` orders points, `words` say where it is."""

    one: Judged
    material: Material
    place: tuple[Any, ...]
    words: str

    @property
    def iterations(self) -> int:
        """Of the reference."""
        return self.material.study.setting(self.one.contrast.reference).iterations

    @property
    def mean(self) -> float:
        """The change that decided."""
        assert self.one.contrast.decided is not None
        return self.one.contrast.decided.mean


@dataclass(frozen=True)
class Trend:
    """The verdicts on one treatment along an axis, in its order; at two places or more."""

    axis: Axis
    called: str
    points: tuple[Point, ...]

    @property
    def changes(self) -> bool:
        """Whether the finding is not the same everywhere."""
        return len({point.one.state for point in self.points}) > 1

    @property
    def tuned(self) -> bool:
        """Whether every arm is at its best learning rate."""
        return all(_rate_is_tuned(point.material) for point in self.points)

    @property
    def same_steps(self) -> bool:
        """Whether an iteration has as many tokens everywhere, so that iterations compare."""
        settings = (p.material.study.setting(p.one.contrast.reference) for p in self.points)
        return len({setting.tokens_per_step for setting in settings}) == 1

    @property
    def apart(self) -> bool:
        """Whether the intervals of the least and of the largest change do not overlap."""
        ends = [point.one.contrast.decided for point in sorted(self.points, key=lambda p: p.mean)]
        least, largest = ends[0], ends[-1]
        assert least is not None and largest is not None
        return least.interval.high < largest.interval.low


def trends(studies: Sequence[Material]) -> list[Trend]:
    """Along every axis, of every treatment, on the first endpoint that the studies judge."""
    known = [
        (material, one)
        for material in studies
        for one in judged_on(judged(material), studies[0].study.primary.metric)
        if one.state in TOLD and one.contrast.decided is not None
    ]
    found: list[Trend] = []
    for axis in AXES:
        groups: dict[tuple[Any, ...], list[Point]] = {}
        for material, one in known:
            rest = tuple((k, v) for k, v in _setting(material, one) if not k.startswith(axis.keys))
            key = (one.treatment, one.against, rest, material.name if axis.within else "")
            groups.setdefault(key, []).append(_point(axis, material, one))
        for (treatment, against, *_), points in groups.items():
            at = tuple(sorted(points, key=lambda p: (p.place, TOLD.index(p.one.state))))
            if axis is BY_TUNING and len({_rates_of(point) for point in at}) < 2:
                continue  # tuning chose the rate that the other study has
            if len({point.place for point in at}) > 1:
                same = (treatment, against)
                alike = [(m, j) for m, j in known if (j.treatment, j.against) == same]
                found.append(Trend(axis, _called(alike, at), at))
    return [_told_apart(trend, found) for trend in found]


def _told_apart(trend: Trend, found: Sequence[Trend]) -> Trend:
    """With the length of its training in its name, where another of that name has another."""
    alike = [one for one in found if (one.axis, one.called) == (trend.axis, trend.called)]
    lengths = {point.iterations for point in trend.points}
    if len(lengths) > 1 or all({p.iterations for p in one.points} == lengths for one in alike):
        return trend
    return replace(trend, called=f"{trend.called} after {lengths.pop():,} iterations")


def _called(alike: Sequence[tuple[Material, Judged]], points: Sequence[Point]) -> str:
    """What a treatment is called: the shortest of its names, and with it the output matrix where
    all points have one of their own and other verdicts on the treatment have not."""
    name = min((one.called for _, one in alike), key=len)
    own = all(_has_own_matrix(point.material, point.one) for point in points)
    if own and not all(_has_own_matrix(*pair) for pair in alike):
        return f"{name} with an output matrix of its own"
    return name


def _has_own_matrix(material: Material, one: Judged) -> bool:
    return not material.study.setting(one.contrast.reference).model.head.tied


def _setting(material: Material, one: Judged) -> list[tuple[str, str]]:
    """What the reference was trained with; values that tuning chose are no part of it."""
    study = material.study
    stated = flatten(study.setting(one.contrast.reference).model_dump())
    for key in study.tuning.keys if study.tuning else ():
        stated[key] = TUNED
    known = ((k, str(v)) for k, v in stated.items() if v not in (None, {}, []))
    return sorted((k, v) for k, v in known if not k.startswith(NOT_TRAINED_WITH))


def _point(axis: Axis, material: Material, one: Judged) -> Point:
    """Where a verdict is on an axis."""
    setting = material.study.setting(one.contrast.reference)
    if axis is BY_BUDGET:
        tokens = setting.tokens
        return Point(one, material, (tokens,), f"{tokens:,}")
    if axis in (BY_SIZE, BY_SIZE_AND_BUDGET):
        size = material.parameters_of.get(one.contrast.reference, 0)
        return Point(one, material, (size,), f"{size:,}")
    if axis is BY_TEXT:
        return Point(one, material, (material.facts.text,), f"in {material.name}")
    if axis is BY_OUTPUT_MATRIX:
        tied = setting.model.head.tied
        words = "where the token matrix is the output matrix" if tied else "where it is not"
        return Point(one, material, (not tied,), words)
    tuned = _rate_is_tuned(material)
    rate = numbers.compact(setting.training.optimizer.learning_rate)
    words = "with each arm at its best learning rate" if tuned else f"at the learning rate {rate}"
    return Point(one, material, (tuned, "" if tuned else rate), words)


def _rates_of(point: Point) -> tuple[str, ...]:
    """The learning rates that arm and reference were trained with."""
    study, tuned = point.material.study, point.material.analysis.tuned
    of = (point.one.contrast.arm, point.one.contrast.reference)
    if tuned is not None and _rate_is_tuned(point.material):
        return tuple(str(tuned.values_of(tuned.best(arm))) for arm in of)
    rates = (study.setting(arm).training.optimizer.learning_rate for arm in of)
    return tuple(str({LEARNING_RATE: rate}) for rate in rates)


def _rate_is_tuned(material: Material) -> bool:
    tuning = material.study.tuning
    return tuning is not None and LEARNING_RATE in tuning.keys


def where(points: Iterable[Point], trend: Trend) -> str:
    """`after 150 and 300 iterations`: each place once, in the order of the axis; with the names of
    studies where others found otherwise at the same place."""
    points = list(points)
    place = _place(points, trend)
    ours = {point.place for point in points}
    named = trend.axis is BY_TEXT  # its places are studies
    if named or all(point in points or point.place not in ours for point in trend.points):
        return place
    names = [p.material.name for p in trend.points if p.place in ours and p in points]
    return f"{place} in {listed(list(dict.fromkeys(names)))}"


def _place(points: Iterable[Point], trend: Trend) -> str:
    steps = trend.axis is BY_BUDGET and trend.same_steps
    known = dict.fromkeys(f"{p.iterations:,}" if steps else p.words for p in points)
    words = listed(list(known))
    if trend.axis is BY_BUDGET:
        return f"after {words} {'iterations' if steps else 'training tokens'}"
    return f"at {words} parameters" if trend.axis in (BY_SIZE, BY_SIZE_AND_BUDGET) else words


def along(trend: Trend) -> str:
    """`worse after 150 iterations (+0.3) and open after 1,500 iterations (+0.1)`."""
    told = [
        f"{IN_WORDS[group[0].one.state]} {where(group, trend)} ({listed(_changes(group))})"
        for group in _runs(trend.points)
    ]
    return listed(told)


def in_short(found: Sequence[Trend]) -> str:
    """`A and B are worse at each of 5 values of it (+0.1 to +0.2)`; where a finding changes,
    `A is worse after 150 iterations (+0.3) and open after 1,500 iterations (+0.1)`."""
    alike: dict[tuple[str, ...], list[Trend]] = {}
    for trend in found:
        runs = _runs(trend.points)
        said = [f"{IN_WORDS[run[0].one.state]} {where(run, trend)}" for run in runs]
        if not trend.changes:
            n = len({point.place for point in trend.points})
            said = [f"{IN_WORDS[trend.points[0].one.state]} at each of {n} values of it"]
        alike.setdefault(tuple(said), []).append(trend)
    return "; ".join(_together(said, of) for said, of in alike.items())


def _together(said: Sequence[str], found: Sequence[Trend]) -> str:
    """What is said of several trends, a clause for each run of neighbours, with their changes."""
    runs = zip(*(_runs(trend.points) for trend in found), strict=True)
    clauses = []
    for clause, points in zip(said, runs, strict=True):
        ordered = _changes(sorted((p for run in points for p in run), key=lambda p: p.mean))
        clauses.append(f"{clause} ({' to '.join(dict.fromkeys((ordered[0], ordered[-1])))})")
    names = listed([trend.called for trend in found])
    return f"{names} {'are' if len(found) > 1 else 'is'} {listed(clauses)}"


def _changes(points: Iterable[Point]) -> list[str]:
    return [numbers.signed(p.mean, p.one.contrast.declared.change_digits) for p in points]


def _runs(points: Sequence[Point]) -> list[list[Point]]:
    """Neighbours of the same state together; apart from these where others at the same place have
    another state."""
    states = {p.place: {q.one.state for q in points if q.place == p.place} for p in points}
    runs = groupby(points, key=lambda p: (p.one.state, len(states[p.place]) > 1))
    return [list(run) for _, run in runs]


def finding_by_setting(studies: Sequence[Material]) -> list[str]:
    """A paragraph for each axis along which there is something to compare: what is the same, what
    differs, and whether the finding does. The findings are in `setting_table`."""
    found, told = trends(studies), []
    for axis in AXES:
        mine = [trend for trend in found if trend.axis is axis]
        if mine:
            told.append(_told(axis, mine))
    return told


def _told(axis: Axis, found: Sequence[Trend]) -> str:
    points = [point for trend in found for point in trend.points]
    text = f"Finding by {axis.title}. Settings of {_alike(found)} share all but "
    text += listed(differing(axis, points))
    text += f"{f', {BEST_OF_TRIED}' if all(one.tuned for one in found) else ''}. "
    too = differing_too(points)
    text += f"{listed(too).capitalize()} differ too. " if too else ""
    text += _opening(found)
    if axis is BY_TEXT and _tokenizers(points) > 1:
        text += " Losses per token of different tokenizers do not compare in size."
    return text


def setting_table(studies: Sequence[Material]) -> Table | None:
    """A row for each treatment on each axis: where it was found what; None without any trend."""
    found = trends(studies)
    if not found:
        return None
    rows: list[tuple[str, ...]] = []
    for axis in AXES:
        mine = [trend for trend in found if trend.axis is axis]
        if mine:
            rows.append((f"By {axis.title}: {_labels(mine)}", "", ""))
        rows += [(trend.called, _sentence(along(trend)), _ends(trend)) for trend in mine]
    unit = found[0].points[0].one.contrast.declared.change_unit
    caption = (
        "What was found of the same treatment in settings that share all but what is named, and "
        "but seeds, warmup, rates tried and machine where the text says so, with the "
        f"changes{f' in {unit}' if unit else ''}, and whether the intervals of the least and of "
        "the largest change overlap."
    )
    head = ("treatment", "what was found, and where", "intervals")
    return Table(BY_SETTING, caption, head, tuple(rows), frozenset(head), wide=True)


def _labels(found: Sequence[Trend]) -> str:
    points = [point for trend in found for point in trend.points]
    return " or ".join(dict.fromkeys(point.one.contrast.declared.label for point in points))


def _ends(trend: Trend) -> str:
    return "apart" if trend.apart else "overlap"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _alike(found: Sequence[Trend]) -> str:
    """`a and b, and of c and d,`: the studies whose settings are the same but for the axis."""
    groups: list[list[str]] = []
    for trend in found:
        names = list(dict.fromkeys(point.material.name for point in trend.points))
        joined = [group for group in groups if set(group) & set(names)]
        groups = [group for group in groups if group not in joined]
        groups.append(list(dict.fromkeys(name for group in (*joined, names) for name in group)))
    return ", and of ".join(map(listed, groups)) + ("," if len(groups) > 1 else "")


def differing(axis: Axis, points: Sequence[Point]) -> list[str]:
    """`the training budget`, `the warmup`: what the settings of these points do not share."""
    found = [f"the {axis.title}"]
    settings = [point.material.study.setting(point.one.contrast.reference) for point in points]
    if WARMUP in axis.keys and len({one.training.schedule.warmup for one in settings}) > 1:
        found.append("the warmup")
    if axis is BY_TEXT and _tokenizers(points) > 1:
        found.append("the tokenizer, whose vocabulary changes the number of parameters")
    return found


def _tokenizers(points: Sequence[Point]) -> int:
    return len({point.material.facts.tokenizer for point in points})


def differing_too(points: Sequence[Point]) -> list[str]:
    """What is no part of a setting: seeds, the values that tuning tried, hardware and software."""
    studies = {point.material.name: point.material for point in points}.values()
    seeds = {tuple(one.study.seeds) for one in studies}
    tried = {
        frozenset(map(str, one.analysis.tuned.candidates))
        for one in studies
        if one.analysis.tuned is not None
    }
    machines = {REPLICAS.sub("", one.facts.machine) for one in studies}
    found = [("seeds", seeds), ("learning rates that were tried", tried), ("machines", machines)]
    return [words for words, of in found if len(of) > 1]


def _opening(found: Sequence[Trend]) -> str:
    turned = sum(trend.changes for trend in found)
    if turned == len(found):
        return "The finding changes with it."
    if turned:
        return f"The finding changes with it in {turned} of {len(found)} rows."
    signs = {point.mean > 0 for trend in found for point in trend.points}
    same = ", and so is the sign of the change" if len(signs) == 1 else ""
    return f"The finding is the same throughout{same}."
