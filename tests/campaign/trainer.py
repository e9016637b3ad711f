"""A trainer that trains nothing: the loss follows from setting and seed, and calls are counted."""

from __future__ import annotations

import hashlib
from pathlib import Path

import numpy as np

from paribus.extend import Declaration, Metric, TrialRecord


class Toy:
    def declare(self, study):
        return Declaration(
            metrics=(Metric("loss", "loss", "nats", "lower", "evaluation"),), must_be_finite="loss"
        )

    def run(self, study, trials):
        for arm, seed in trials:
            toy = study.setting(arm).model_dump()["toy"]
            text = f"{sorted(toy.items())} {seed}"
            if toy["fails"]:
                raise RuntimeError("it fails")
            with Path("trained.txt").open("a") as file:
                file.write(f"{text}\n")
            rng = np.random.default_rng(list(hashlib.sha256(text.encode()).digest()))
            loss = 3.0 + np.random.default_rng(seed).normal() - toy["gain"]
            loss += toy["noise"] * rng.normal()
            diverges = toy["diverges"] and seed == 6
            yield (
                (arm, seed),
                TrialRecord(
                    {"loss": float("nan") if diverges else loss},
                    diverged_at=3 if diverges else None,
                ),
            )
