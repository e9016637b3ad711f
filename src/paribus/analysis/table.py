"""Scores of all finished trials, and which of them count for a contrast.

Without looks and stages, all seeds count. With looks, the seeds up to the contrast's last look
count, whatever was trained since; before the first look nothing is compared. An endpoint
resolved at a look keeps that look's seeds, and so its rejection (Maurer and Bretz 2013), even
if the contrast continues for another endpoint or for events. With a second stage, the seeds of
both stages count.
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
    """The seeds that count for one contrast.

    Attributes:
        seeds: the seeds that count.
        look: the number of the last look at the contrast, from 1; 0 before the first look, None
            without a plan of looks.
        decision: the decision at that look, or "" without a plan.
        stage_seeds: the seeds of the first stage; None if there is only one.
    """

    study: Study = field(repr=False)
    seeds: tuple[int, ...]
    look: int | None = None
    decision: str = ""
    stage_seeds: tuple[int, ...] | None = None

    @property
    def is_open(self) -> bool:
        """True if the contrast continues to another look."""
        return self.decision in ("", GOES_ON)

    def design(self, seeds: Collection[int]) -> Design:
        """Return the look or stages by which pairs at `seeds` were sampled, or None.

        Args:
            seeds: a subset of `self.seeds`.
        """
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            return Stages(first, stage_weights(self.study.inference.first_stage_weight))
        plan = plan_of(self.study)
        return OneLook(plan, self.look - 1) if plan and self.look else None

    def why_not(self, seeds: Collection[int]) -> str:
        """Return why pairs at these seeds cannot be tested, or "" if they can."""
        if self.look == 0:
            assert self.study.plan is not None
            return f"the first look, at {self.study.plan.looks[0]} seeds, has not been taken"
        n, where = len(seeds), ""
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            n, where = min(first, n - first), " in a stage"
        pairs = "pair" if n == 1 else "pairs"
        return "" if n >= 2 else f"{n} comparable seed {pairs}{where}; inference needs two"

    def _in_first_stage(self, seeds: Collection[int]) -> int:
        return sum(seed in (self.stage_seeds or ()) for seed in seeds)


def sampling_of(
    study: Study, looks: Sequence[dict[str, Any]], arm: str, metric: str | None = None
) -> Sampling:
    """Return the seeds that count for a contrast after these looks.

    Args:
        metric: an endpoint, which may have been resolved at an earlier look; by default the
            contrast as a whole.
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
    """Return the study's plan of looks, or None if it has none."""
    return None if study.plan is None else Looks(study.plan.looks)


@dataclass(frozen=True)
class Table:
    """Scores of all finished trials, and their training events.

    Attributes:
        metrics: every metric of `values` by name; the accuracy on a task is `task_accuracy/task`.
        values: {(arm, seed, metric): value}, NaN if a trial has no value.
        events: {(arm, seed): divergence and spikes} of every finished trial that did not fail.
        looks: records of the looks taken so far; () without a plan of looks.
        controls: controls between arms, checked on these trials.
        tuning: the table of the tuning trials; None if nothing was tuned.
        lost: {(arm, seed): reason} for trials that diverged or failed, and cannot be compared.
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
    def of(cls, results: Results) -> Table:
        """Build the table of a study's finished trials."""
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
        tuning = cls.of(trials) if trials is not None else None
        metrics, controls = tasks | results.metrics, tuple(results.controls)
        return cls(results, metrics, values, events, results.looks, controls, tuning, lost)

    def sampling(self, arm: str, metric: str | None = None) -> Sampling:
        """Return the seeds that count for an arm's contrast, or for one of its endpoints."""
        return sampling_of(self.results.study, self.looks, arm, metric)

    def broken(self, arm: str) -> list[Control]:
        """Return controls between `arm` and its reference that did not hold."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def why_unusable(self, arm: str, seed: int, metric: str) -> str:
        """Return why a trial has no value to compare, or "" if it has one."""
        if why := self.why_diverged(arm, seed):
            return why
        value, declared = self.values[arm, seed, metric], self.metrics.get(metric)
        if not math.isfinite(value):
            return f"{arm} has no finite value"
        if declared and not math.isfinite(declared.compared(value)):
            return f"{arm} has {declared.label} {value:g}, which cannot be compared as a ratio"
        return ""

    def why_diverged(self, arm: str, seed: int) -> str:
        """Return why a trial failed, diverged or is unfinished, or "" if none applies."""
        if (arm, seed) in self.lost or (arm, seed) in self.events:
            return self.lost.get((arm, seed), "")
        is_absent = seed in self.results.study.arm_facts(arm).absent
        return f"{arm} has no such run" if is_absent else f"{arm} is not finished"

    def usable(self, arm: str, metric: str, seeds: Sequence[int] | None = None) -> dict[int, float]:
        """Return {seed: value} for an arm's comparable trials.

        Args:
            seeds: by default all seeds of the study.
        """
        return {
            seed: self.values[arm, seed, metric]
            for seed in (self.results.study.seeds if seeds is None else seeds)
            if not self.why_unusable(arm, seed, metric)
        }


def events_in(losses: np.ndarray, study: Study) -> StabilityEvents:
    """Detect divergence and spikes in training losses of shape (T,), by the study's rule."""
    rule = study.stability.model_dump(exclude={"unstable_above"})
    return stability_events(losses, **rule)
