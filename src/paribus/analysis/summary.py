"""One metric of one arm: its trials, their mean and SD."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Summary:
    """One metric of one arm over its finished, finite trials."""

    arm: str
    metric: str
    values: dict[int, float]

    @property
    def n(self) -> int:
        """Trials that have a finite value."""
        return len(self.values)

    @property
    def mean(self) -> float | None:
        """Over these trials, in the metric's unit; None without any."""
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD (n - 1); None for fewer than two trials."""
        return float(np.std(list(self.values.values()), ddof=1)) if self.n > 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types, as in analysis.json."""
        return {
            "arm": self.arm,
            "metric": self.metric,
            "n": self.n,
            "mean": self.mean,
            "sd": self.sd,
            "values": {str(seed): value for seed, value in self.values.items()},
        }
