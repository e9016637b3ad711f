"""Every finished trial's scores, and which of them can be compared."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paribus.analysis.sampling import Sampling, sampling_of
from paribus.results import Control, Results
from paribus.statistics import StabilityEvents, stability_events
from paribus.study import Study


@dataclass(frozen=True)
class Table:
    """The scores of all finished trials, and what happened in their training.

    Attributes:
        values: {(arm, seed, metric): value}, NaN where a trial has none.
        events: divergence and spikes by (arm, seed), of every finished trial that did not fail.
        failed: how trials failed that the study leaves out, by (arm, seed).
        looks: those that were taken, of a study that has some.
        controls: between arms, as far as the trials here show.
        tuning: of the tuning trials; None if nothing was chosen by them.
    """

    results: Results
    values: dict[tuple[str, int, str], float]
    events: dict[tuple[str, int], StabilityEvents]
    looks: tuple[dict[str, Any], ...] = ()
    controls: tuple[Control, ...] = ()
    tuning: Table | None = None
    failed: Mapping[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def of(cls, results: Results) -> Table:
        """Every metric of every finished trial, and its events by the registered rule."""
        values: dict[tuple[str, int, str], float] = defaultdict(lambda: math.nan)
        for row in results.score_rows:
            for metric in results.metrics.keys() & row.keys():
                values[row["arm"], row["seed"], metric] = row[metric]
        events = {}
        failed = {
            key: why for key, record in results.trials.items() if (why := record.get("failed"))
        }
        for key, steps in results.trial_steps.items():
            if key in failed:  # nobody knows whether it would have diverged
                continue
            losses = steps["train_loss"].to_numpy() if len(steps) else np.empty(0)
            seen = events_in(losses, results.study)
            # The last step's gradient or update can be the one that diverges: no loss shows it.
            broken = results.trials[key]["diverged_at"] is not None
            needed = results.must_be_finite
            broken = broken or bool(needed and not math.isfinite(values[*key, needed]))
            events[key] = replace(seen, diverged=seen.diverged or broken)
        is_tuned = results.study.tuning is not None and results.study.tuning.chosen
        trials = results.tuning_trials if is_tuned else None
        tuning = cls.of(trials) if trials is not None else None
        return cls(results, values, events, results.looks, tuple(results.controls), tuning, failed)

    def sampling(self, arm: str, metric: str | None = None) -> Sampling:
        """Return the seeds that count for the contrast of `arm`, or one endpoint of it."""
        return sampling_of(self.results.study, self.looks, arm, metric)

    def broken(self, arm: str) -> list[Control]:
        """Return controls between `arm` and its reference that did not hold."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def why_unusable(self, arm: str, seed: int, metric: str) -> str:
        """Return why a trial has no value to compare; empty where it has one."""
        if why := self.why_diverged(arm, seed):
            return why
        value, declared = self.values[arm, seed, metric], self.results.metrics.get(metric)
        if not math.isfinite(value):
            return f"{arm} has no finite value"
        if declared and not math.isfinite(declared.compared(value)):
            return f"{arm} has {declared.label} {value:g}, of which no ratio can be taken"
        return ""

    def why_diverged(self, arm: str, seed: int) -> str:
        """Return why a trial is not finished, or learned nothing; empty where neither is so."""
        if why := self.failed.get((arm, seed)):
            return f"{arm} failed: {why}"
        if (arm, seed) not in self.events:
            study = self.results.study
            absent = seed in study.arm_facts(arm).absent
            return f"{arm} has no run of it" if absent else f"{arm} is not finished"
        events = self.events[arm, seed]
        frozen_at = self.results.trials[arm, seed]["diverged_at"]
        if frozen_at is not None:
            return f"{arm} diverged: not finite at step {frozen_at + 1}"
        needed = self.results.must_be_finite
        if needed and not math.isfinite(self.values[arm, seed, needed]):
            label = self.results.metrics[needed].label
            return f"{arm} diverged: its {label} is not finite"
        if events.diverged and events.final_smoothed_loss is None:
            return f"{arm} diverged: a training loss is not finite"
        if events.diverged:
            return f"{arm} diverged: final loss {events.final_smoothed_loss:.3f} above the first"
        return ""

    def is_measured(self, metric: str) -> bool:
        """Return True if some trial has a finite value of `metric`."""
        if metric in [endpoint.metric for endpoint in self.results.study.judged]:
            return True
        return any(math.isfinite(self.values[*trial, metric]) for trial in self.events)

    def usable(self, arm: str, metric: str, seeds: Sequence[int] | None = None) -> dict[int, float]:
        """{seed: value} of the trials that can be compared; of all seeds, or of these."""
        return {
            seed: self.values[arm, seed, metric]
            for seed in (self.results.study.seeds if seeds is None else seeds)
            if not self.why_unusable(arm, seed, metric)
        }

    def has_diverged(self, arm: str, seed: int) -> bool:
        """Return whether a finished run diverged."""
        return (arm, seed) in self.events and self.events[arm, seed].diverged


def events_in(losses: np.ndarray, study: Study) -> StabilityEvents:
    """Divergence and spikes of training losses of shape (T,), by the rule of `study`."""
    rule = study.stability.model_dump(exclude={"unstable_above"})
    return stability_events(losses, **rule)
