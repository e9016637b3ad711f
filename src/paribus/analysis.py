"""From records to inference: every contrast, tested as the study registered it.

The unit is the seed pair: treatment minus baseline at the same seed. A pair that cannot be compared
is left out by name, never in silence; a contrast whose controls are broken is not analysed.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from paribus.results import Control, Results
from paribus.statistics import (
    PairedContrast,
    PairedRates,
    StabilityEvents,
    StabilityRule,
    holm,
    paired_contrast,
    paired_event_rates,
    stability_events,
)
from paribus.study import METRICS, Endpoint, Study


@dataclass(frozen=True)
class Summary:
    """One metric of one arm over its finished, finite trials."""

    arm: str
    metric: str
    values: dict[int, float]

    @property
    def n(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float | None:
        return float(np.mean(list(self.values.values()))) if self.values else None

    @property
    def sd(self) -> float | None:
        """Sample SD (n - 1); None for fewer than two trials."""
        return float(np.std(list(self.values.values()), ddof=1)) if self.n > 1 else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "metric": self.metric,
            "n": self.n,
            "mean": self.mean,
            "sd": self.sd,
            "values": {str(seed): value for seed, value in self.values.items()},
        }


@dataclass(frozen=True)
class LeftOut:
    """A seed that a contrast could not use, and why."""

    arm: str
    reference: str
    metric: str
    seed: int
    why: str


@dataclass(frozen=True)
class Contrast:
    """One metric of an arm against its reference.

    Attributes:
        seeds: those of the pairs, in the order of `paired.pairs`.
        paired: the inference; None where it does not exist, and `why_not` says why.
        holm_p: the gate p adjusted over the family of the primary endpoint; None outside of it.
        capped: the same with diverged trials kept at the metric's worst value, where there are any.
    """

    arm: str
    reference: str
    metric: str
    primary: bool
    seeds: tuple[int, ...]
    paired: PairedContrast | None
    why_not: str
    holm_p: float | None = None
    capped: PairedContrast | None = None

    def to_dict(self) -> dict[str, Any]:
        return {
            "arm": self.arm,
            "reference": self.reference,
            "metric": self.metric,
            "primary": self.primary,
            "seeds": list(self.seeds),
            "paired": self.paired.to_dict() if self.paired else None,
            "why_not": self.why_not,
            "holm_p": self.holm_p,
            "capped": self.capped.to_dict() if self.capped else None,
        }


@dataclass(frozen=True)
class Stabilities:
    """Events of an arm against its reference, over the seeds that both have finished."""

    arm: str
    reference: str
    diverged: PairedRates
    spiked: PairedRates
    any_event: PairedRates


@dataclass(frozen=True)
class Analysis:
    """All that is inferred from a study's records."""

    study: Study
    missing: tuple[str, ...]
    controls: tuple[Control, ...]
    summaries: tuple[Summary, ...]
    contrasts: tuple[Contrast, ...]
    events: dict[tuple[str, int], StabilityEvents]
    stabilities: tuple[Stabilities, ...]
    left_out: tuple[LeftOut, ...]

    def contrast(self, arm: str, metric: str) -> Contrast:
        return next(c for c in self.contrasts if (c.arm, c.metric) == (arm, metric))

    def summary(self, arm: str, metric: str) -> Summary:
        return next(s for s in self.summaries if (s.arm, s.metric) == (arm, metric))

    def broken(self, arm: str) -> list[Control]:
        """Controls between `arm` and its reference that did not hold."""
        return [c for c in self.controls if c.arm == arm and c.state == "broken"]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON types: the content of `analysis.json`."""
        return {
            "study": self.study.digest,
            "missing": list(self.missing),
            "controls": [vars(control) for control in self.controls],
            "summaries": [summary.to_dict() for summary in self.summaries],
            "contrasts": [contrast.to_dict() for contrast in self.contrasts],
            "events": [
                {"arm": arm, "seed": seed} | events.to_dict()
                for (arm, seed), events in self.events.items()
            ],
            "stability": [
                {
                    "arm": s.arm,
                    "reference": s.reference,
                    "diverged": s.diverged.to_dict(),
                    "spiked": s.spiked.to_dict(),
                    "any_event": s.any_event.to_dict(),
                }
                for s in self.stabilities
            ],
            "left_out": [vars(left_out) for left_out in self.left_out],
        }


def analyse(results: Results) -> Analysis:
    """Analyse the finished trials of `results` as their study says.

    Raises ParibusError where a record is missing or was changed.
    """
    study = results.study
    table = _Table.of(results)
    contrasts, left_out = [], []
    for endpoint in study.endpoints:
        for arm, reference in study.contrasts:
            contrast, out = _contrast(table, arm, reference, endpoint)
            contrasts.append(contrast)
            left_out += out
    return Analysis(
        study=study,
        missing=tuple(folder.label for folder in results.unfinished),
        controls=tuple(results.controls),
        summaries=tuple(
            Summary(arm, endpoint.metric, table.usable(arm, endpoint.metric))
            for endpoint in study.endpoints
            for arm in study.arms
        ),
        contrasts=tuple(_adjusted(contrasts)),
        events=table.events,
        stabilities=tuple(_stabilities(study, table.events)),
        left_out=tuple(left_out),
    )


@dataclass(frozen=True)
class _Table:
    """The scores of all finished trials, and what happened in their training.

    Attributes:
        values: {(arm, seed, metric): value}, NaN where a trial has none.
        events: divergence and spikes by (arm, seed), of every finished trial.
    """

    results: Results
    values: dict[tuple[str, int, str], float]
    events: dict[tuple[str, int], StabilityEvents]

    @classmethod
    def of(cls, results: Results) -> _Table:
        values = {
            (row["arm"], row["seed"], metric): row[metric]
            for row in results.scores.to_pylist()
            for metric in METRICS
        }
        stability = results.study.stability
        rule = StabilityRule(
            smoothing_steps=stability.smoothing_steps,
            median_steps=stability.median_steps,
            mad_multiplier=stability.mad_multiplier,
            spike_steps=stability.spike_steps,
        )
        events = {
            (folder.arm, folder.seed): _events(
                folder.read_columns("steps.parquet")["train_loss"].to_numpy(), rule
            )
            for folder in results.finished
        }
        return cls(results, values, events)

    def why_unusable(self, arm: str, seed: int, metric: str) -> str:
        """Why a trial has no value to compare; empty where it has one."""
        if (arm, seed) not in self.events:
            return f"{arm} is not finished"
        events = self.events[arm, seed]
        frozen_at = self.results.trials[arm, seed]["diverged_at"]
        if frozen_at is not None:
            return f"{arm} diverged: not finite at step {frozen_at + 1}"
        if events.diverged:
            return f"{arm} diverged: final loss {events.final_smoothed_loss:.3f} above the first"
        if not math.isfinite(self.values[arm, seed, metric]):
            return f"{arm} has no finite value"
        return ""

    def usable(self, arm: str, metric: str) -> dict[int, float]:
        """{seed: value} of the trials that can be compared."""
        return {
            seed: self.values[arm, seed, metric]
            for seed in self.results.study.seeds
            if not self.why_unusable(arm, seed, metric)
        }

    def capped(self, arm: str, metric: str) -> dict[int, float]:
        """The same with diverged trials given the score of a uniform guess over tokens."""
        trials = self.results.trials
        capped = self.usable(arm, metric)
        for seed in self.results.study.seeds:
            if seed not in capped and (arm, seed) in trials:
                guess = _uniform_guess(metric, trials[arm, seed]["data"]["vocab_size"])
                if guess is not None:
                    capped[seed] = guess
        return capped


def _events(losses: np.ndarray, rule: StabilityRule) -> StabilityEvents:
    if math.isfinite(losses[0]):
        return stability_events(losses, rule)
    return StabilityEvents(
        diverged=True,
        first_nonfinite_step=0,
        initial_loss=math.nan,
        final_smoothed_loss=None,
        spike_starts=(),
    )


def _uniform_guess(metric: str, vocab_size: int) -> float | None:
    return {
        "validation_loss": math.log(vocab_size),
        "validation_perplexity": float(vocab_size),
        "validation_accuracy": 1 / vocab_size,
    }.get(metric)


def _contrast(
    table: _Table, arm: str, reference: str, endpoint: Endpoint
) -> tuple[Contrast, list[LeftOut]]:
    study, metric = table.results.study, endpoint.metric
    ours, theirs = table.usable(arm, metric), table.usable(reference, metric)
    seeds = tuple(seed for seed in study.seeds if seed in ours and seed in theirs)
    left_out = [
        LeftOut(arm, reference, metric, seed, "; ".join(filter(None, why)))
        for seed in study.seeds
        if any(why := [table.why_unusable(name, seed, metric) for name in (reference, arm)])
    ]
    broken = [c for c in table.results.controls if c.arm == arm and c.state == "broken"]
    why_not = ""
    if broken:
        why_not = f"controls broken: {', '.join(control.name for control in broken)}"
    elif len(seeds) < 2:
        why_not = f"{len(seeds)} comparable seed pairs; inference needs two"
    paired = None if why_not else _infer(study, endpoint, theirs, ours)
    capped_ours, capped_theirs = table.capped(arm, metric), table.capped(reference, metric)
    more_pairs = len(capped_ours.keys() & capped_theirs.keys()) > max(len(seeds), 1)
    return (
        Contrast(
            arm=arm,
            reference=reference,
            metric=metric,
            primary=endpoint.primary,
            seeds=seeds,
            paired=paired,
            why_not=why_not,
            capped=_infer(study, endpoint, capped_theirs, capped_ours)
            if more_pairs and not broken
            else None,
        ),
        left_out,
    )


def _infer(
    study: Study, endpoint: Endpoint, baseline: dict[int, float], treatment: dict[int, float]
) -> PairedContrast:
    """The registered inference over the seeds that both have."""
    seeds = [seed for seed in study.seeds if seed in baseline and seed in treatment]
    return paired_contrast(
        [baseline[seed] for seed in seeds],
        [treatment[seed] for seed in seeds],
        seed=study.inference.seed,
        margin=endpoint.margin,
        alpha=study.inference.alpha,
        resamples=study.inference.resamples,
    )


def _adjusted(contrasts: list[Contrast]) -> list[Contrast]:
    """Holm over the registered family: the primary endpoint in every contrast.

    A contrast that could not be analysed stays in the family as p = 1, so that losing one never
    makes the others easier.
    """
    family = [contrast for contrast in contrasts if contrast.primary]
    if not family:
        return contrasts
    adjusted = holm([c.paired.gate_p if c.paired else 1.0 for c in family])
    by_arm = {c.arm: float(p) for c, p in zip(family, adjusted, strict=True) if c.paired}
    return [
        replace(c, holm_p=by_arm[c.arm]) if c.primary and c.arm in by_arm else c for c in contrasts
    ]


def _stabilities(study: Study, events: dict[tuple[str, int], StabilityEvents]) -> list[Stabilities]:
    found = []
    for arm, reference in study.contrasts:
        pairs = [
            (events[reference, seed], events[arm, seed])
            for seed in study.seeds
            if (arm, seed) in events and (reference, seed) in events
        ]
        if not pairs:
            continue

        def rates(kind: Any, pairs: Any = pairs) -> PairedRates:
            return paired_event_rates([kind(a) for a, _ in pairs], [kind(b) for _, b in pairs])

        found.append(
            Stabilities(
                arm,
                reference,
                diverged=rates(lambda e: e.diverged),
                spiked=rates(lambda e: e.spiked),
                any_event=rates(lambda e: e.diverged or e.spiked),
            )
        )
    return found
