"""A trainer that draws numbers: three metrics, one of them by item, one seed that diverges."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from paribus.extend import Declaration, Metric, Study, TrialRecord
from paribus.rng import stream

METRICS = (
    Metric("loss", "toy loss", "nats", "lower", "evaluation", uniform=""),
    Metric("hits", "toy accuracy", "", "higher", "evaluation"),
    Metric("size", "size", "MiB", "neither", "evaluation"),
)


class Toy:
    """Loss falls by `shift`, best at rate 1; seed 3 of the arm `hot` diverges."""

    def declare(self, study: Study) -> Declaration:
        """Return its metrics, and what is equal in both trials of a pair."""
        controls = {"text": ("toy.text",), "rate": ("toy.rate",), "weights": ()}
        return Declaration(METRICS, controls, frozenset({"hits"}), "loss")

    def run(
        self, study: Study, trials: Sequence[tuple[str, int]]
    ) -> Iterator[tuple[tuple[str, int], TrialRecord]]:
        """Draw every trial: the noise of a seed is the same in all arms."""
        for arm, seed in trials:
            toy = study.setting(arm).toy
            rng = stream(seed, "toy")
            base = 2.0 + 0.1 * rng.standard_normal() - toy["shift"] + math.log(toy["rate"]) ** 2
            base += 0.002 * stream(seed, f"toy/{arm}").standard_normal()
            hits = (rng.random(40) < 0.4 + toy["shift"]).astype(float)
            broken = toy["shift"] > 1 and seed == 3
            scores = {"loss": math.nan if broken else base, "hits": float(hits.mean()), "size": 1.0}
            controls = {"text": str(toy["text"]), "rate": toy["rate"]}  # nothing of "weights"
            losses = [base + 1 / step for step in range(1, 31)]
            yield (
                (arm, seed),
                TrialRecord(scores, {"hits": hits}, losses, controls, 5 if broken else None, 1.0),
            )
