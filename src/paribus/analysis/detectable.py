"""Before a run: the smallest effect that a design can detect, and whether it sees what matters.

A study without a pilot is planned by SDs that earlier ones measured: `spreads.json` was computed
from the studies in commit 846b38b8; studies/README.md lists them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from paribus.analysis.choice import Choice
from paribus.analysis.looks import least_effect
from paribus.analysis.schema import Analysis
from paribus.errors import ParibusError
from paribus.statistics import DESCRIPTIVE_BELOW, Result, required_pairs
from paribus.study import Endpoint, Study
from paribus.study.trainer import STACKED

FILE = Path(__file__).with_name("spreads.json")
Pair = tuple[str, str]  # an arm and its reference


@dataclass(frozen=True)
class Spread:
    """SDs of paired differences that kept studies measured for one metric and kind of change.

    Attributes:
        kind: the sections of the study that the arms changed.
        sds: of each contrast, ascending, in the unit of its changes.
        pairs: the fewest and the most seed pairs of a contrast.
        studies: those with such a contrast.
    """

    metric: str
    kind: tuple[str, ...]
    sds: tuple[float, ...]
    pairs: tuple[int, int]
    studies: tuple[str, ...]


@cache
def _spreads() -> dict[tuple[str, tuple[str, ...]], Spread]:
    rows = json.loads(FILE.read_text("utf-8"))["spreads"]
    lists = ("kind", "sds", "pairs", "studies")
    spreads = [Spread(**row | {name: tuple(row[name]) for name in lists}) for row in rows]
    return {(spread.metric, spread.kind): spread for spread in spreads}


def like(study: Study, arm: str, metric: str) -> Spread | None:
    """Return the SDs of kept contrasts that change the same sections, or None without any. The
    optimizer counts as one section.

    Of another trainer's study there are none: nobody knows that its metrics are the same.
    """
    if study.trainer != STACKED:
        return None
    sections, tuned = set(), study.tuning.keys if study.tuning else ()
    for key in study.differences(arm).keys() - set(tuned):
        head, *rest = key.split(".")
        sections.add("optimizer" if rest[:1] == ["optimizer"] else head)
    return _spreads().get((metric, tuple(sorted(sections))))


@dataclass(frozen=True)
class Detectable(Result):
    """The effects that a primary endpoint can show for one contrast, in the metric's unit.

    Attributes:
        sd: of the paired differences, and `source` says from where.
        effect: the least difference detected at the registered power with the study's seeds.
        pairs_for_margin: seed pairs that would detect a difference as large as the margin; None
            where no number would, as the choice of tuned values is too uncertain.
        smallest_effect: worth detecting; None where none is registered.
        choice: SD of the difference from choosing tuned values, with the study's tuning seeds.
        one_more: the effect with one more verdict seed, and with one more tuning seed; None where
            nothing is tuned.
        kept: SDs of like contrasts in the kept studies, where `sd` is their median.
        instead: what would detect such a difference where no number of pairs does, "more tuning
            seeds" or "a finer grid around the optimum"; empty otherwise.
    """

    metric: str
    contrast: str
    source: str
    sd: float
    effect: float
    margin: float
    pairs_for_margin: int | None
    smallest_effect: float | None
    choice: float
    one_more: tuple[float, float] | None
    kept: Spread | None
    instead: str

    @property
    def exceeds_margin(self) -> bool:
        """Return whether what can be detected is larger than what is too small to matter."""
        return self.effect > self.margin

    @property
    def could_miss(self) -> bool:
        """Return whether the smallest effect worth detecting is likelier missed than registered."""
        return self.smallest_effect is not None and self.effect > self.smallest_effect


@dataclass(frozen=True)
class Sight:
    """The spread up to which a design detects the smallest effect worth detecting.

    Attributes:
        sd: the largest SD of paired differences at which it does; None where nothing is tested.
        why_not: why it cannot, whatever the spread; empty where it can.
    """

    metric: str
    smallest_effect: float
    sd: float | None
    why_not: str = ""


def sights(study: Study) -> list[Sight]:
    """Return one for every primary endpoint with a smallest effect, by the registered test."""
    asked = [(e.metric, e.smallest_effect) for e in study.judged if e.smallest_effect is not None]
    if not asked or not study.contrasts or not study.is_paired:  # these are SDs of differences
        return []
    if len(study.seeds) < DESCRIPTIVE_BELOW:
        why = f"fewer than {DESCRIPTIVE_BELOW} seeds are described, not tested"
        return [Sight(metric, smallest, None, why) for metric, smallest in asked]
    in_sds = least_effect(study, study.inference.alpha / study.family)
    return [Sight(metric, smallest, smallest / in_sds) for metric, smallest in asked]


def detectable(
    study: Study, *, pilot: Analysis | None = None, sd: float | None = None
) -> list[Detectable]:
    """Return the smallest detectable change for each primary endpoint and contrast. The SD is
    `sd` if given (first endpoint only), else from `pilot`, else the median over similar
    contrasts of kept studies.

    Of the registered test, at the level of Holm's first step: alpha over the family, which a
    contrast must reach whatever the others do. A contrast that the pilot lacks takes the largest SD
    among those it has. Raises ParibusError where the SD is not positive, or the pilot measured no
    difference of a primary endpoint.
    """
    if len(study.seeds) < 2:
        raise ParibusError(f"the study has {len(study.seeds)} seed; a contrast needs two")
    if sd is not None and not 0 < sd < math.inf:
        raise ParibusError(f"sd = {sd} must be a number greater than 0")
    if not study.contrasts:
        raise ParibusError("the study has one arm; a contrast needs two")
    smallest, rows = least_effect(study, study.inference.alpha / study.family), []
    for endpoint in study.judged if sd is None else [study.primary]:
        sds, choices = ({}, {}) if pilot is None else _pilot_rows(study, pilot, endpoint)
        largest = max(choices.values(), key=lambda choice: choice.error, default=None)
        for pair in study.contrasts:
            choice = choices.get(pair, largest)
            if sd is not None:
                rows.append(_row(study, smallest, endpoint, pair, sd, "stated"))
            elif pilot is not None:
                source = "pilot" if pair in sds else "pilot's largest"
                pair_sd = sds.get(pair, max(sds.values()))
                rows.append(_row(study, smallest, endpoint, pair, pair_sd, source, choice=choice))
            elif kept := like(study, pair[0], endpoint.metric):
                median = float(np.median(kept.sds))
                rows.append(
                    _row(study, smallest, endpoint, pair, median, "kept studies", kept=kept)
                )
    return rows


def _pilot_rows(
    study: Study, pilot: Analysis, endpoint: Endpoint
) -> tuple[dict[Pair, float], dict[Pair, Choice]]:
    """Return by contrast of a pilot the SD of its paired differences, and what the choice of tuned
    values would add here. Raises ParibusError where the pilot has no SD."""
    contrasts = {(c.arm, c.reference): c for c in pilot.contrasts if c.metric == endpoint.metric}
    sds = {pair: c.paired.sd for pair, c in contrasts.items() if c.paired and c.paired.sd > 0}
    if not sds:
        raise ParibusError(
            f"the pilot '{pilot.study.name}' has no contrast of {endpoint.metric} with "
            "two seed pairs; state --sd instead"
        )
    if study.tuning is None or study.inference.choice == "fixed":
        return sds, {}
    n_seeds = len(study.tuning.seeds)
    known = {pair: c.choice for pair, c in contrasts.items() if c.choice and c.choice.how}
    return sds, {pair: choice.with_seeds(n_seeds) for pair, choice in known.items()}


def _row(
    study: Study,
    smallest: float,
    endpoint: Endpoint,
    pair: Pair,
    sd: float,
    source: str,
    *,
    choice: Choice | None = None,
    kept: Spread | None = None,
) -> Detectable:
    margin, inference, contrast = endpoint.margin, study.inference, f"{pair[0]} against {pair[1]}"
    assert margin is not None
    n, chosen = len(study.seeds), choice.error if choice else 0.0
    level = inference.alpha / study.family
    pairs = required_pairs(margin, sd, lasting=chosen, power=inference.power, alpha=level)
    if pairs is None and not chosen:
        raise ParibusError(f"{contrast}: no number of pairs detects {margin:g} at an SD of {sd:g}")

    def effect(pairs: int, error: float) -> float:
        # In units of the SD of a mean: the spread shrinks with pairs, the choice does not.
        return smallest * math.sqrt(n) * math.hypot(sd / math.sqrt(pairs), error)

    one_more = None
    if choice:
        tuned_more = choice.with_seeds(choice.n_seeds + 1).error
        one_more = effect(n + 1, chosen), effect(n, tuned_more)
    return Detectable(
        metric=endpoint.metric,
        contrast=contrast,
        source=source,
        sd=sd,
        effect=effect(n, chosen),
        margin=margin,
        pairs_for_margin=pairs,
        smallest_effect=endpoint.smallest_effect,
        choice=chosen,
        one_more=one_more,
        kept=kept,
        instead=choice.remedy if choice and pairs is None else "",
    )
