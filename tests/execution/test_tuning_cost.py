"""What tuning costs is counted before anything runs."""

from __future__ import annotations

from rich.console import Console

from paribus.cli import printed
from paribus.engine.execution.estimate import estimate

from ..conftest import Maker


def test_tuning_trials_are_counted_beside_the_verdicts(small_study: Maker) -> None:
    rates = {"training.optimizer.learning_rate": [1e-4, 1e-3]}
    plan = {"seeds": [101, 102, 103], "grid": rates, "iterations": 6}
    study = small_study(tuning=plan, tasks={"names": []})
    cost = estimate(study, workers=1, device="cpu")
    assert cost.tuning_trials == 3 * 2 * 3  # arms, candidates, seeds
    verdict = sum(cost.arms[arm].tokens for arm, _ in study.trials)
    assert cost.tokens == verdict + 18 * 6 * 4 * 16
    console = Console(width=120, record=True)
    console.print(*printed.cost(study, cost))
    assert "and 18 that tune before them" in console.export_text()
