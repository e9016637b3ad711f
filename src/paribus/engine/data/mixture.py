"""Several texts, mixed: which of them each window is of, so that shares are exact at every step.

Windows are numbered over a run, and window j's source is a function of j alone: of the first j
windows, each source has its share of j, to within one window. Independent draws would be within
some square root of j, and every seed would train on another mixture than was registered.

Axes: B windows of a batch, S sources, M windows of a period.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import numpy as np

from paribus.engine.data.order import Windows
from paribus.study.bounds import MIXTURE_PARTS


@dataclass(frozen=True)
class Mixture:
    """The windows of several texts that lie one after the other in the training tokens.

    Attributes:
        windows: those of each text, by the name of its source.
        shares: the share of windows of each, adding up to 1.
        offsets: where each text begins in the training tokens.
    """

    windows: Mapping[str, Windows]
    shares: Mapping[str, float]
    offsets: Mapping[str, int]

    def __len__(self) -> int:
        """How many windows there are to choose from."""
        return sum(map(len, self.windows.values()))

    def starts(self, seed: int, t: int, batch_size: int, run: int | None = None) -> np.ndarray:
        """[B] where the windows of batch `t` of `seed` begin, int64; see `Windows.starts`."""
        sources = self.sources(t, batch_size)
        found = np.empty(batch_size, np.int64)
        before, whole = (self.counts(n * batch_size) for n in (t, run or 0))
        for s, (name, windows) in enumerate(self.windows.items()):
            here = np.flatnonzero(sources == s)
            items = before[s] + np.arange(len(here))
            total = int(whole[s]) if run is not None else None
            found[here] = windows.chosen(seed, items, t, total, name) + self.offsets[name]
        return found

    def sources(self, t: int, batch_size: int) -> np.ndarray:
        """[B] the source of each window of batch `t`, as an index into `windows`."""
        schedule = _schedule(self._parts)
        return schedule[(t * batch_size + np.arange(batch_size)) % len(schedule)]

    def counts(self, n: int) -> np.ndarray:
        """[S] how many of the first `n` windows are of each source."""
        schedule = _schedule(self._parts)
        periods, rest = divmod(n, len(schedule))
        size = len(self.windows)
        each = np.bincount(schedule, minlength=size)
        return periods * each + np.bincount(schedule[:rest], minlength=size)

    @property
    def _parts(self) -> tuple[int, ...]:
        return tuple(round(self.shares[name] * MIXTURE_PARTS) for name in self.windows)


@cache
def _schedule(parts: tuple[int, ...]) -> np.ndarray:
    """[M] sources in turn, so that of every first j each has its share of j to within one.

    Tijdeman 1980, The chairman assignment problem: among the sources that may be chosen without
    getting ahead by more than 1 - 1/(2 S - 2), the one that would be behind by as much the soonest.
    """
    total = sum(parts)
    if len(parts) == 1:
        return np.zeros(1, np.int64)
    # With what is behind counted in windows x `total`, all of it is whole numbers.
    scale = 2 * len(parts) - 2
    given = [0] * len(parts)
    schedule = np.empty(total // math.gcd(*parts), np.int64)
    for j in range(1, len(schedule) + 1):
        behind = [part * j - n * total for part, n in zip(parts, given, strict=True)]
        able = [s for s, one in enumerate(behind) if scale * one >= total]
        chosen = min(able, key=lambda s: (((scale - 1) * total - scale * behind[s]) / parts[s], s))
        given[chosen] += 1
        schedule[j - 1] = chosen
    return schedule
