"""Scores of all finished trials, and selection of the seeds for each contrast.

With interim analyses (looks), a contrast includes the seeds up to its last look, even if more seeds
have been trained. An endpoint that was resolved at a look keeps the seeds of that look, and so its
rejection (Maurer and Bretz 2013), even if the contrast continues for other reasons. Without looks,
all seeds are included, also those of a second stage.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from paribus.metric import QUESTIONS, SHARE, Metric
from paribus.results import Control, Results
from paribus.results.look_record import GOES_ON, look_of, resolved_at
from paribus.statistics import (
    Design,
    Looks,
    OneLook,
    StabilityEvents,
    Stages,
    stability_events,
    stage_weights,
)
from paribus.study import Study


@dataclass(frozen=True)
class Sampling:
    """Seeds that are included in the analysis of one contrast.

    Attributes:
        seeds: the included seeds.
        look: 1-based number of the last look at the contrast; 0 before the first look, and None
            without interim analyses.
        decision: decision at that look, or "" without interim analyses.
        stage_seeds: seeds of the first stage; None for a study with one stage.
    """

    study: Study = field(repr=False)
    seeds: tuple[int, ...]
    look: int | None = None
    decision: str = ""
    stage_seeds: tuple[int, ...] | None = None

    @property
    def is_open(self) -> bool:
        """True if the contrast has not been stopped at an interim analysis."""
        return self.decision in ("", GOES_ON)

    def design(self, seeds: Collection[int]) -> Design:
        """Return the sequential or two-stage design at `seeds`, or None for a fixed design.

        Args:
            seeds: a subset of `self.seeds`.
        """
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            return Stages(first, stage_weights(self.study.inference.first_stage_weight))
        plan = plan_of(self.study)
        return OneLook(plan, self.look - 1) if plan and self.look else None

    def why_not(self, seeds: Collection[int]) -> str:
        """Return why pairs at these seeds cannot be tested, or "" if they can be."""
        if self.look == 0:
            assert self.study.plan is not None
            return f"the first look, at {self.study.plan.looks[0]} seeds, is not complete"
        n, where = len(seeds), ""
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            n, stage = min((first, "first"), (n - first, "second"))
            where = f" in the {stage} stage"
        count = "1 comparable seed pair" if n else "no finished seed pair"
        return "" if n >= 2 else f"{count}{where}; inference needs two"

    def _in_first_stage(self, seeds: Collection[int]) -> int:
        return sum(seed in (self.stage_seeds or ()) for seed in seeds)


def sampling_of(
    study: Study, looks: Sequence[dict[str, Any]], arm: str, metric: str | None = None
) -> Sampling:
    """Return the seeds that a contrast includes after the completed interim analyses.

    Args:
        study: the study.
        looks: records of the completed looks.
        arm: arm of the contrast.
        metric: an endpoint, which may have been resolved at an earlier look than the contrast; None
            for the contrast as a whole.
    """
    if study.plan is None:
        first = study.seeds[: study.stages[0]] if study.stages else None
        return Sampling(study, study.seeds, stage_seeds=first)
    if not looks:
        return Sampling(study, (), 0)
    number = min(look_of(study, looks, arm), len(looks) - 1)
    decision = looks[number]["contrasts"][arm]["decision"]
    if metric is not None and (resolved := resolved_at(looks, arm, metric)) is not None:
        number = resolved
        decision = looks[number]["contrasts"][arm]["endpoints"][metric]["resolved"]
    return Sampling(study, study.seeds[: study.plan.looks[number]], number + 1, decision)


def plan_of(study: Study) -> Looks | None:
    """Return the study's group-sequential design, or None if it has no interim analyses."""
    return None if study.plan is None else Looks(study.plan.looks)


@dataclass(frozen=True)
class Table:
    """Scores and training events of all finished trials.

    Attributes:
        metrics: metric definitions, keyed by name, including `task_accuracy/<task>`.
        values: scores, keyed by (arm, seed, metric); NaN for missing scores.
        events: divergence and loss spikes of finished trials, keyed by (arm, seed).
        looks: records of completed interim analyses; () if none are planned.
        controls: results of all checks that arms differ only in their declared settings.
        tuning: table of the tuning study; None without tuning.
        lost: reasons why trials diverged or failed, keyed by (arm, seed).
    """

    results: Results
    metrics: dict[str, Metric]
    values: dict[tuple[str, int, str], float]
    events: dict[tuple[str, int], StabilityEvents]
    looks: tuple[dict[str, Any], ...] = ()
    controls: tuple[Control, ...] = ()
    tuning: Table | None = None
    lost: Mapping[tuple[str, int], str] = field(default_factory=dict)

    @classmethod
    def from_results(cls, results: Results) -> Table:
        """Build a table from the results of a study."""
        values: dict[tuple[str, int, str], float] = defaultdict(lambda: math.nan)
        tasks = {}
        for trial, answered in results.trial_accuracy.items():
            for task, accuracy in answered.items():
                values[*trial, name := f"task_accuracy/{task}"] = accuracy
                tasks[name] = Metric(
                    name, task, SHARE, "higher", "tasks", column=task, items=QUESTIONS
                )
        for row in results.score_rows:
            for metric in results.metrics.keys() & row.keys():
                values[row["arm"], row["seed"], metric] = row[metric]
        events, lost = {}, {}
        for (arm, seed), steps in results.trial_steps.items():
            record = results.trials[arm, seed]
            if failed := record.get("failed"):  # nobody knows whether it would have diverged
                lost[arm, seed] = f"{arm} failed: {failed}"
                continue
            losses = steps["train_loss"].to_numpy() if len(steps) else np.empty(0)
            seen, needed = events_in(losses, results.study), results.must_be_finite
            why = ""
            # The last step's gradient or update can be the one that diverges: no loss shows it.
            if record["diverged_at"] is not None:
                why = f"not finite at step {record['diverged_at'] + 1}"
            elif needed and not math.isfinite(values[arm, seed, needed]):
                why = f"its {results.metrics[needed].label} is not finite"
            elif seen.diverged and seen.final_smoothed_loss is None:
                why = "a training loss is not finite"
            elif seen.diverged:
                why = f"final loss {seen.final_smoothed_loss:.3f} above the first"
            events[arm, seed] = replace(seen, diverged=bool(why))
            if why:
                lost[arm, seed] = f"{arm} diverged: {why}"
        is_tuned = results.study.tuning is not None and results.study.tuning.chosen
        trials = results.tuning_trials if is_tuned else None
        tuning = cls.from_results(trials) if trials is not None else None
        metrics, controls = tasks | results.metrics, tuple(results.controls)
        return cls(results, metrics, values, events, results.looks, controls, tuning, lost)

    def sampling(self, arm: str, metric: str | None = None) -> Sampling:
        """Return the seeds that are included in an arm's contrast, or in one of its endpoints."""
        return sampling_of(self.results.study, self.looks, arm, metric)

    def broken(self, arm: str) -> list[Control]:
        """Return all controls between `arm` and its reference whose state is "broken"."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def why_unusable(self, arm: str, seed: int, metric: str) -> str:
        """Return why a trial has no comparable value of a metric, or "" if it has one."""
        if why := self.why_diverged(arm, seed):
            return why
        value, declared = self.values[arm, seed, metric], self.metrics.get(metric)
        if not math.isfinite(value):
            return f"{arm} has no finite value"
        if declared and not math.isfinite(declared.compared(value)):
            return f"{arm} has {declared.label} {value:g}, which cannot be compared as a ratio"
        return ""

    def why_diverged(self, arm: str, seed: int) -> str:
        """Return why a trial failed, diverged or is missing, or "" if it finished normally."""
        if (arm, seed) in self.lost or (arm, seed) in self.events:
            return self.lost.get((arm, seed), "")
        is_absent = seed in self.results.study.arm_facts(arm).absent
        return f"{arm} has no such run" if is_absent else f"{arm} is not finished"

    def usable(self, arm: str, metric: str, seeds: Sequence[int] | None = None) -> dict[int, float]:
        """Return the comparable values of a metric in an arm, keyed by seed.

        Args:
            arm: name of the arm.
            metric: name of the metric.
            seeds: seeds to include; None for all seeds of the study.
        """
        return {
            seed: self.values[arm, seed, metric]
            for seed in (self.results.study.seeds if seeds is None else seeds)
            if not self.why_unusable(arm, seed, metric)
        }


def events_in(losses: np.ndarray, study: Study) -> StabilityEvents:
    """Detect divergence and spikes in training losses [T], using the study's criteria."""
    rule = study.stability.model_dump(exclude={"unstable_above"})
    return stability_events(losses, **rule)
