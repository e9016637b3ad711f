"""Budgets in FLOPs: the steps that follow, what proves them, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

import paribus
from paribus.engine.data import load_dataset
from paribus.engine.execution.start import settled_budgets
from paribus.engine.records import matched
from paribus.study import Study, tuning_study

pytestmark = pytest.mark.usefixtures("one_process")

DEEP = {"baseline": {}, "deep": {"set": {"model.n_layer": 4}}}
FLOPS = {"iterations": 20, "batch_size": 4, "budget": "flops"}


def by_hand(study: Study, layers: int) -> int:
    """FLOPs per token: a block has 12 d^2 weights, and a tied head V d."""
    d, T = 16, 16
    vocab_size = load_dataset(study.data, study.folder).vocab_size
    return 6 * (12 * layers * d * d + vocab_size * d) + 12 * layers * d * T


def test_arms_match_in_flops_and_the_records_prove_it(small_study, tmp_path):
    study = small_study({"tasks.names": []}, training=FLOPS, arms=DEEP, seeds=[1])
    results = paribus.run(study, tmp_path / "r", workers=1, device="cpu")
    settled = results.study
    each = {arm: by_hand(study, layers) for arm, layers in {"baseline": 2, "deep": 4}.items()}
    for arm, flops in each.items():
        assert results.trials[arm, 1]["flops"] == {"per_token": flops}
    wanted = round(20 * each["baseline"] / each["deep"])
    assert settled.setting("deep").iterations == results.trials["deep", 1]["iterations"] == wanted
    control = next(c for c in results.controls if c.name == "budget")
    assert control.state == "held" and "flops vs." in control.detail
    assert {c.state for c in results.controls if c.name == "batches"} == {"declared"}
    assert paribus.verify(results.path).findings == []
    assert settled_budgets(study).digest == settled.digest == settled_budgets(settled).digest


def test_shorter_tuning_trials_match_in_the_same_unit(small_study):
    rate = "training.optimizer.learning_rate"
    tuning = {"seeds": [101, 102], "grid": {rate: [1e-3, 1e-2]}, "iterations": 12}
    study = settled_budgets(small_study(training=FLOPS, arms=DEEP, tuning=tuning))
    made = tuning_study(study)
    full = round(20 * by_hand(study, 2) / by_hand(study, 4))
    assert study.setting("deep").iterations == full
    steps = {arm: made.setting(arm).iterations for arm in made.arms}
    deep = round(12 * full / 20)
    assert steps == {"baseline-1": 12, "deep-1": deep, "baseline-2": 12, "deep-2": deep}


def trial(steps: int, per_token: int | None) -> dict[str, Any]:
    return {
        "iterations": steps,
        "tokens": 64 * steps,
        "flops": {"per_token": per_token} if per_token else {},
    }


@pytest.mark.parametrize(
    ("own", "other", "state"),
    [
        (trial(12, 10), trial(6, 20), "held"),
        (trial(13, 10), trial(6, 20), "held"),  # half a step
        (trial(15, 10), trial(6, 20), "broken"),
        (trial(12, None), trial(6, 20), "not proven"),
    ],
)
def test_the_control_holds_budgets_against_the_records(own, other, state):
    assert matched(own, other, "flops")[0] == state
