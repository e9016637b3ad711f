"""Can a reported share be a share of so many items? The GRIM test.

Brown & Heathers (2017), "The GRIM test: A simple technique detects numerous anomalies in the
reporting of results in psychology": a mean of whole numbers over n items is a multiple of 1 / n, so
that of the values with so many digits few can occur where n is small.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from paribus.statistics.conventions import StatisticsError


@dataclass(frozen=True)
class Granularity:
    """What a share of `items` with so many digits can come from.

    Attributes:
        items: what the share is of.
        counts: whole numbers of items whose share is written so; empty where there is none.
        nearest: the whole number whose share is nearest to it.
    """

    items: int
    counts: tuple[int, ...]
    nearest: int

    @property
    def possible(self) -> bool:
        """Whether any count of items gives the share as it was written."""
        return bool(self.counts)


def granularity(share: float, items: int, digits: int) -> Granularity:
    """The GRIM test of a `share` that was reported with `digits` decimal digits.

    A count fits where it rounds to the share, halves upwards or downwards. Raises StatisticsError
    for fewer than one item, negative digits and what is no share.
    """
    if items < 1 or digits < 0 or not 0 <= share <= 1:
        raise StatisticsError(
            f"share = {share}, items = {items}, digits = {digits}: a share of at least one item is "
            "from 0 to 1"
        )
    unit = Fraction(1, 10**digits)
    reported = round(Fraction(share) / unit) * unit
    # Fractions are exact: half of a digit to either side, both ends included.
    low, high = (reported - unit / 2) * items, (reported + unit / 2) * items
    counts = range(max(0, -(-low.numerator // low.denominator)), high.__floor__() + 1)
    fitting = tuple(count for count in counts if count <= items)
    return Granularity(items, fitting, min(items, round(reported * items)))
