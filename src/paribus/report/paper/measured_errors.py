"""Error rates that a study of the baseline against itself measured: what `paribus null` counted."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError
from paribus.report.table_model import Table
from paribus.results import Results
from paribus.untrusted_io import read_json

FILE = "null.json"
SALT = "model.init.salt"
MOST_RATES, MOST_NAME = 20, 200


@dataclass(frozen=True)
class ErrorRate:
    """How often something was claimed, and how often it may be: shares."""

    name: str
    nominal: float
    rate: float
    low: float
    high: float


@dataclass(frozen=True)
class MeasuredErrors:
    """Of so many replicates, each of so many contrasts and seed pairs."""

    replicates: int
    contrasts: int
    pairs: int
    rates: tuple[ErrorRate, ...]

    @property
    def sentence(self) -> str:
        """Without a full stop."""
        told = [
            f"{one.name}: {_share(one.rate)} (nominal {_share(one.nominal)})" for one in self.rates
        ]
        return f"of {self.replicates} studies of nothing, {'; '.join(told)}"

    @property
    def first(self) -> str:
        """The first rate alone, without a full stop."""
        one = self.rates[0]
        return (
            f"Measured on {self.replicates} studies of the baseline against itself: {one.name} "
            f"{_share(one.rate)} (nominal {_share(one.nominal)})"
        )

    def table(self, name: str) -> Table:
        """Every rate with its interval."""
        rows = tuple(
            (one.name, _share(one.nominal), f"{_share(one.rate)} [{_share(one.low)}, "
             f"{_share(one.high)}]")
            for one in self.rates
        )  # fmt: skip
        caption = (
            f"{name}: how often the whole pipeline claimed something of the baseline against "
            f"itself, in {self.replicates} replicates of {self.contrasts} contrasts and "
            f"{self.pairs} seed pairs, with 95% intervals."
        )
        head = ("how often", "nominal", "measured")
        return Table("errors", caption, head, rows, frozenset({"how often"}))


def measured_errors(results: Results) -> MeasuredErrors | None:
    """What `null.json` counts; None of a study that is no such one, or where it is not there.

    Raises ParibusError where it is something else.
    """
    study, path = results.study, results.path / FILE
    differences = [study.differences(arm) for arm, _ in study.contrasts]
    if not differences or any(set(one) != {SALT} for one in differences):
        return None
    return _read(path) if os.path.lexists(path) else None


def _read(path: Path) -> MeasuredErrors:
    record = read_json(path)
    try:
        counts = (record["replicates"], record["contrasts"], record["pairs"])
        rates = tuple(_rate(one) for one in record["rates"][:MOST_RATES])
        if not all(isinstance(n, int) and n > 0 for n in counts) or not rates:
            raise ValueError("a count")
    except (KeyError, TypeError, ValueError) as error:
        raise ParibusError(
            f"{path} is not what `paribus null` writes ({error}); run it again"
        ) from None
    return MeasuredErrors(*counts, rates)


def _rate(one: dict[str, Any]) -> ErrorRate:
    interval = one["interval"]
    stated = (one["nominal"], one["rate"], interval["low"], interval["high"])
    nominal, rate, low, high = (float(number) for number in stated)
    name = one["name"]
    if not all(math.isfinite(n) and 0 <= n <= 1 for n in (nominal, rate, low, high)):
        raise ValueError("a rate")
    if not isinstance(name, str) or not name.isprintable() or len(name) > MOST_NAME:
        raise ValueError("a name")
    return ErrorRate(name, nominal, rate, low, high)


def _share(value: float) -> str:
    return f"{100 * value:.1f}%"
