"""What the paper is written from."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paribus.analysis import Analysis
from paribus.decision import Verdict
from paribus.report.figures import Figure, names
from paribus.results import Results
from paribus.study import Setting, Study


@dataclass(frozen=True)
class Material:
    """The records, what was inferred and decided, and the figures that they gave."""

    results: Results
    analysis: Analysis
    verdicts: list[Verdict]
    figures: list[Figure]

    @property
    def study(self) -> Study:
        return self.results.study

    @cached_property
    def setting(self) -> Setting:
        """Of the baseline."""
        return self.study.setting(self.study.baseline)

    @cached_property
    def trial(self) -> dict[str, Any]:
        """trial.json of a finished trial, of the baseline where there is one; else empty."""
        trials = self.results.trials
        own = [trial for (arm, _), trial in trials.items() if arm == self.study.baseline]
        return next(iter([*own, *trials.values()]), {})

    @property
    def parameters(self) -> int | None:
        """Of the baseline; None before one of its trials is finished."""
        own = self.trial.get("arm") == self.study.baseline
        return self.trial.get("parameters") if own else None

    @cached_property
    def called(self) -> dict[str, str]:
        return names(self.study)

    @cached_property
    def drawn(self) -> dict[str, Figure]:
        return {figure.name: figure for figure in self.figures}

    def sets(self, prefix: str) -> bool:
        """Whether some arm changes a key that starts so."""
        return any(key.startswith(prefix) for arm in self.study.arms.values() for key in arm.set)
