"""How pairs were sampled, which decides what a test of them says.

Without a design all pairs are one sample, of a size that was fixed. `OneLook` is a look of a plan;
`Stages` are samples of which the second was planned when the first had been seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from paribus.statistics.conventions import Result
from paribus.statistics.deciding import DecidingTest
from paribus.statistics.proportions import paired_event_rates
from paribus.statistics.sequential.at_look import AtLook
from paribus.statistics.sequential.boundaries import Looks
from paribus.statistics.sequential.combination import InverseNormal, combined_mcnemar

# A test of some of the pairs.
TestOf = Callable[[slice], DecidingTest]


class Design(Protocol):
    """What turns tests of pairs into the one that decides."""

    def decide(self, test_of: TestOf) -> DecidingTest:
        """The test that decides, from `test_of` a part of the pairs."""
        ...

    def of_other(self, p: float) -> float | None:
        """Two-sided p of a test of all pairs under this design; None where it has none."""
        ...

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """Two-sided p of events by McNemar's exact test, entry s of both from pair s."""
        ...


@dataclass(frozen=True)
class OneLook(Result):
    """Pairs up to look `look` (from 0) of a plan."""

    looks: Looks
    look: int

    def decide(self, test_of: TestOf) -> DecidingTest:
        """The test of all pairs, over all looks."""
        return AtLook(test_of(slice(None)), self.looks, self.look)

    def of_other(self, p: float) -> float:
        """The p over all looks of a test with a nominal p of `p` at this one."""
        return min(1.0, 2 * self.one_sided(p / 2))

    def one_sided(self, p: float) -> float:
        """The same of a one-sided test."""
        return float(self.looks.level(self.look, p))

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """McNemar's p over all looks."""
        return self.of_other(paired_event_rates(baseline, treatment).p_value)


@dataclass(frozen=True)
class Stages(Result):
    """Two stages.

    Attributes:
        first: pairs of the first stage, of those there are.
        weights: of both stages, as they were fixed before the first was seen.
        look: of a plan, in which the first stage ended; None where its size was fixed.
    """

    first: int
    weights: tuple[float, float]
    look: OneLook | None = None

    def decide(self, test_of: TestOf) -> DecidingTest:
        """The inverse-normal combination of a test of each stage."""
        before, after = slice(None, self.first), slice(self.first, None)
        if self.look is None:
            return InverseNormal((test_of(before), test_of(after)), self.weights)
        ended = AtLook(test_of(before), self.look.looks, self.look.look)
        return InverseNormal((ended, test_of(after)), self.weights)

    def of_other(self, p: float) -> float | None:
        """None: one p of all pairs is not one of stages."""
        return None

    def of_events(self, baseline: Sequence[bool], treatment: Sequence[bool]) -> float:
        """The inverse-normal combination of McNemar's test of each stage."""
        ours, theirs = np.asarray(treatment, dtype=bool), np.asarray(baseline, dtype=bool)
        counts = [
            (int((theirs[part] & ~ours[part]).sum()), int((ours[part] & ~theirs[part]).sum()))
            for part in (slice(None, self.first), slice(self.first, None))
        ]
        return combined_mcnemar(counts, self.weights, self.look.one_sided if self.look else None)
