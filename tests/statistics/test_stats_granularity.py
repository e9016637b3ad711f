"""The GRIM test against brute force, and against the example of Brown & Heathers (2017)."""

from __future__ import annotations

from decimal import ROUND_HALF_DOWN, ROUND_HALF_UP, Decimal

import pytest

from paribus.statistics import StatisticsError, granularity


def brute_force(share: str, items: int) -> tuple[int, ...]:
    """Counts whose share, to as many digits, is written like this, halves either way."""
    unit = Decimal(1).scaleb(-len(share.partition(".")[2]))
    return tuple(
        count
        for count in range(items + 1)
        if Decimal(share)
        in {
            (Decimal(count) / Decimal(items)).quantize(unit, rounding)
            for rounding in (ROUND_HALF_UP, ROUND_HALF_DOWN)
        }
    )


def test_the_published_example() -> None:
    """A mean of 5.19 over 28 whole numbers cannot be: 145 give 5.18, 146 give 5.21."""
    found = granularity(0.19, 28, 2)
    assert (found.possible, found.nearest) == (False, 5)
    assert granularity(0.18, 28, 2).counts == (5,)


@pytest.mark.parametrize("items", [1, 2, 7, 28, 128, 150, 1000])
@pytest.mark.parametrize("digits", [1, 2, 3, 4])
def test_counts_are_those_of_brute_force(items: int, digits: int) -> None:
    for step in range(0, 10**digits + 1, max(1, 10**digits // 97)):
        share = f"{step / 10**digits:.{digits}f}"
        found = granularity(float(share), items, digits)
        assert found.counts == brute_force(share, items), share
        assert abs(found.nearest / items - float(share)) <= 0.5 / items + 1e-12


@pytest.mark.parametrize(("share", "items", "digits"), [(1.1, 5, 2), (0.5, 0, 2), (0.5, 5, -1)])
def test_what_is_no_share_is_refused(share: float, items: int, digits: int) -> None:
    with pytest.raises(StatisticsError):
        granularity(share, items, digits)
