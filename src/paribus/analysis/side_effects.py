"""What an arm does besides changing its endpoints: events, costs, a delicate learning rate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

from paribus.statistics import Interval, PairedContrast, PairedRates

BudgetState = Literal["within", "over", "not shown"]


@dataclass(frozen=True)
class Stabilities:
    """Events of an arm against its reference, over the seeds that both have finished.

    Attributes:
        holm_p: McNemar's p of `any_event`, over looks and stages, adjusted over the contrasts; None
            for fewer than five pairs.
    """

    arm: str
    reference: str
    diverged: PairedRates
    spiked: PairedRates
    any_event: PairedRates
    holm_p: float | None = None


@dataclass(frozen=True)
class Cost:
    """A mean over seed pairs with its interval.

    Attributes:
        interval: of level 1 - alpha.
        bounds: of level 1 - 2 alpha, on which a budget is judged.
        state: against the registered budget; None where there is none. Fewer than five pairs show
            nothing.
    """

    mean: float
    interval: Interval
    bounds: Interval
    state: BudgetState | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return {
            "mean": self.mean,
            "interval": self.interval.to_dict(),
            "bounds": self.bounds.to_dict(),
            "state": self.state,
        }


@dataclass(frozen=True)
class Costs:
    """What an arm costs besides quality, over seed pairs; None for fewer than two.

    Attributes:
        calibration: rise of the expected calibration error.
        throughput: share of training tokens per second that is lost.
        in_turn: whether the arms took turns for it. Where they have not yet, trials are compared as
            they were timed while training, and load on the machine is in it.
        prefill, decoding: share of tokens per second that is lost when reading full windows and
            when writing token by token, measured in turn.
        in_bytes: whether bytes per second are compared, as the arms have other tokenizers.
    """

    arm: str
    reference: str
    calibration: Cost | None
    throughput: Cost | None
    in_turn: bool
    prefill: Cost | None
    decoding: Cost | None
    in_bytes: bool = False

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return {
            "arm": self.arm,
            "reference": self.reference,
            "calibration": self.calibration.to_dict() if self.calibration else None,
            "throughput": self.throughput.to_dict() if self.throughput else None,
            "in_turn": self.in_turn,
            "prefill": self.prefill.to_dict() if self.prefill else None,
            "decoding": self.decoding.to_dict() if self.decoding else None,
            "in_bytes": self.in_bytes,
        }


@dataclass(frozen=True)
class Sensitivity:
    """Learning-rate sensitivity of an arm (Wortsman et al. 2023), in nats/token: over the rates
    that it was tuned with.

    Attributes:
        values: by tuning seed; NaN where no rate of the seed learned anything, which leaves the
            seed out of `paired`.
        paired: against its reference at the same tuning seeds; None for fewer than two.
    """

    arm: str
    reference: str | None
    values: dict[int, float]
    paired: PairedContrast | None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json; null where a seed learned at no rate."""
        return {
            "arm": self.arm,
            "reference": self.reference,
            "values": {
                str(seed): value if math.isfinite(value) else None
                for seed, value in self.values.items()
            },
            "paired": self.paired.to_dict() if self.paired else None,
        }
