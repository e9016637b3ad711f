"""SDs of paired differences in earlier studies, used to plan a study that has no pilot.

`spreads.json` was computed from the studies in commit 846b38b8; studies/README.md lists them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

from paribus.study import Study
from paribus.study.trainer import STACKED

FILE = Path(__file__).with_name("spreads.json")


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

    @property
    def median(self) -> float:
        """The SD that half of the contrasts have at most."""
        return float(np.median(self.sds))

    @property
    def middle_half(self) -> tuple[float, float]:
        """The quartiles of the SDs."""
        low, high = np.quantile(self.sds, [0.25, 0.75])
        return float(low), float(high)


def kind_of(study: Study, arm: str) -> tuple[str, ...]:
    """Return the sections in which `arm` differs from its reference, whatever is tuned; the
    optimizer counts as one.
    """
    tuned = study.tuning.keys if study.tuning else ()
    sections = set()
    for key in study.differences(arm).keys() - set(tuned):
        head, _, rest = key.partition(".")
        sections.add("optimizer" if rest.split(".")[0] == "optimizer" else head)
    return tuple(sorted(sections))


def like(study: Study, arm: str, metric: str) -> Spread | None:
    """Return the SDs of kept contrasts that change the same sections; None where there are none.

    Of another trainer's study there are none: nobody knows that its metrics are the same.
    """
    if study.trainer != STACKED:
        return None
    return _all().get((metric, kind_of(study, arm)))


@cache
def _all() -> dict[tuple[str, tuple[str, ...]], Spread]:
    rows = json.loads(FILE.read_text("utf-8"))["spreads"]
    lists = ("kind", "sds", "pairs", "studies")
    spreads = [Spread(**row | {name: tuple(row[name]) for name in lists}) for row in rows]
    return {(spread.metric, spread.kind): spread for spread in spreads}
