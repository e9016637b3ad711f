"""Budgets in FLOPs and seconds: the steps that follow, what proves them, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

import paribus
from paribus.engine.controls import _matched_costs as matched_costs
from paribus.engine.data import load_dataset
from paribus.engine.execution.timing import budgets
from paribus.engine.execution.timing.budgets import settled_budgets
from paribus.engine.execution.workers.messages import CountModel, MeasureStep, Ready
from paribus.engine.machine.speed import measure, model_size
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.results import ResultsFolder
from paribus.study import Study, tuning_study
from paribus.study.tuning_study import require_tunable

OWN = """
from torch import nn

class Twice(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model.d_model, model.d_model)

    def forward(self, x):
        return self.up(self.up(x))

class Asks(nn.Identity):
    def __init__(self, model):
        super().__init__()

    def forward(self, x):
        return x * float(x.mean() > -9)
"""
DEEP = {"baseline": {}, "deep": {"set": {"model.n_layer": 4}}}
SMALL = {"iterations": 8, "batch_size": 4}
COSTS = {"baseline": 0.002, "deep": 0.003}


def own(name: str) -> dict[str, Any]:
    return {"baseline": {}, "own": {"set": {"model.modules.mlp": f"own.py:{name}"}}}


@pytest.fixture
def code(small_study: Callable[..., Study]) -> Path:
    folder = small_study().folder
    (folder / "own.py").write_text(OWN)
    return folder


def stated(costs: dict[str, float]) -> dict[str, Any]:
    return {
        arm: {"set": DEEP[arm].get("set", {}) | {"training.step_cost": cost}}
        for arm, cost in costs.items()
    }


class InProcess:
    """Answers what workers are asked, without any."""

    asked: ClassVar[list[object]] = []

    def __init__(self, study: Study, *_: object, **__: object) -> None:
        self.study = study

    def __enter__(self) -> InProcess:
        return self

    def __exit__(self, *_: object) -> None: ...

    def start(self) -> None: ...

    def ready(self, worker: None) -> Ready:
        return Ready("cpu", 1, "float32")

    def worker_for(self, setting: Setting) -> None: ...

    def ask(self, worker: None, task: CountModel | MeasureStep, doing: str) -> object:
        self.asked.append(task)
        dataset = load_dataset(self.study.data, self.study.folder)
        if isinstance(task, CountModel):
            return model_size(self.study, task.arm, dataset)
        return measure(self.study, task.arm, dataset, torch.device("cpu"), task.stack)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """What is counted and measured, here and not in workers."""
    monkeypatch.setattr(budgets, "Pool", InProcess)
    monkeypatch.setattr(InProcess, "asked", [])
    return InProcess.asked


@pytest.mark.parametrize("unit", ["flops", "seconds"])
def test_steps_follow_from_what_is_stated_and_nothing_is_measured(
    small_study: Callable[..., Study], asked: list[object], unit: str
) -> None:
    settled = settled_budgets(small_study(training=SMALL | {"budget": unit}, arms=stated(COSTS)))
    # 8 steps of 0.002 are 5.33 of 0.003.
    assert [settled.setting(arm).iterations for arm in DEEP] == [8, 5]
    assert settled_budgets(settled) == settled and not asked


def test_arms_match_in_flops_and_the_records_prove_it(
    small_study: Callable[..., Study], tmp_path: Path
) -> None:
    training = SMALL | {"budget": "flops", "iterations": 20}
    study = small_study({"tasks.names": []}, training=training, arms=DEEP, seeds=[1])
    results = paribus.run(study, tmp_path / "r", workers=1, device="cpu")
    settled, d, T = results.study, 16, 16
    vocab_size = results.trials["baseline", 1]["data"]["vocab_size"]
    # A block has 12 d^2 weights, and a tied head V d.
    each = {"baseline": 2, "deep": 4}
    each = {arm: 6 * (12 * L * d * d + vocab_size * d) + 12 * L * d * T for arm, L in each.items()}
    for arm, flops in each.items():
        assert settled.setting(arm).training.step_cost == flops * 64
        assert results.trials[arm, 1]["flops"] == {"per_token": flops, "by": "formula"}
    wanted = round(20 * each["baseline"] / each["deep"])
    assert settled.setting("deep").iterations == results.trials["deep", 1]["iterations"] == wanted
    control = next(c for c in results.controls if c.name == "budget")
    assert control.state == "held" and "FLOPs against" in control.detail
    assert {c.state for c in results.controls if c.name == "batches"} == {"declared"}
    assert paribus.verify(results.path).findings == ()
    # The study as its file states it: what was settled stands, and nothing is counted again.
    assert settled_budgets(study, ResultsFolder(results.path)).digest == settled.digest


def test_products_of_own_modules_are_counted_or_refused(
    small_study: Callable[..., Study], code: Path, asked: list[object]
) -> None:
    training = SMALL | {"budget": "flops", "iterations": 20}
    settled = settled_budgets(small_study(training=training, arms=own("Twice")))
    base, mine = (settled.setting(arm).training.step_cost or 0 for arm in ("baseline", "own"))
    # 8 d^2 weights of an MLP against one matrix of d^2 that is used twice; 64 tokens, 2 blocks.
    assert base - mine == 64 * 2 * 6 * (8 - 2) * 16**2
    assert settled.setting("own").iterations == round(20 * base / mine)
    study = small_study(training=SMALL | {"iterations": 20}, arms=own("Twice"))
    size = model_size(study, "own", load_dataset(study.data, study.folder))  # as `show` says it
    assert size.flops_per_token * study.setting("own").tokens_per_step == mine
    with pytest.raises(ParibusError) as told:
        settled_budgets(small_study(training=training, arms=own("Asks")))
    assert "arm 'own': the FLOPs of its own modules cannot be counted" in str(told.value)
    assert "\n" not in str(told.value)


def test_seconds_are_measured_once_and_kept(
    small_study: Callable[..., Study],
    tmp_path: Path,
    asked: list[object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Arms that compute the same share what is measured: noise would give one more steps."""
    arms = DEEP | {"hot": {"set": {"training.optimizer.learning_rate": 0.01}}}
    monkeypatch.setattr(budgets, "ROUNDS", 1)
    study = small_study(training=SMALL | {"budget": "seconds", "iterations": 200}, arms=arms)
    settled = settled_budgets(study)
    costs = {arm: settled.setting(arm).training.step_cost or 0.0 for arm in arms}
    assert all(0 < cost < 10 for cost in costs.values())
    assert costs["hot"] == costs["baseline"] and settled.setting("hot").iterations == 200
    wanted = max(round(200 * costs["baseline"] / costs["deep"]), 1)
    assert settled.setting("deep").iterations == wanted
    assert len(asked) == 2 * budgets.ROUNDS
    folder = ResultsFolder(tmp_path / "r")
    folder.create(settled)
    assert settled_budgets(study, folder) == settled
    assert len(asked) == 2 * budgets.ROUNDS


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        ({"training.step_cost": 3.0}, "step_cost = 3 has no effect on a budget in tokens"),
        ({"training.budget": "flops", "training.step_cost": 0.0}, "training.step_cost"),
        ({"training.budget": "FLOPs"}, "training.budget"),
    ],
)
def test_costs_of_no_budget_are_refused(
    small_study: Callable[..., Study], overrides: dict[str, Any], words: str
) -> None:
    with pytest.raises(ParibusError, match=words):
        small_study(overrides)


def test_an_arm_that_states_other_steps_is_refused(small_study: Callable[..., Study]) -> None:
    arms = stated(COSTS)
    arms["deep"]["set"]["training.iterations"] = 9
    study = small_study(training=SMALL | {"budget": "flops"}, arms=arms)
    with pytest.raises(ParibusError, match="states 9 iterations, and the flops of its reference"):
        settled_budgets(study)


@pytest.mark.parametrize("unit", ["flops", "seconds"])
def test_shorter_tuning_trials_match_in_the_same_unit(
    small_study: Callable[..., Study], asked: list[object], unit: str
) -> None:
    """12 steps of 0.002 are 8 of 0.003: of arms whose own 20 are 13.33 of these."""
    rate = "training.optimizer.learning_rate"
    tuning = {"seeds": [101, 102], "grid": {rate: [1e-3, 1e-2]}, "iterations": 12}
    training = SMALL | {"budget": unit, "iterations": 20}
    study = settled_budgets(small_study(training=training, arms=stated(COSTS), tuning=tuning))
    require_tunable(study)
    made = tuning_study(study, study.tuning.candidates if study.tuning else [])
    assert study.setting("deep").iterations == 13
    steps = {arm: made.setting(arm).iterations for arm in made.arms}
    assert steps == {"baseline-1": 12, "deep-1": 8, "baseline-2": 12, "deep-2": 8}
    assert settled_budgets(made) == made and not asked


@pytest.mark.parametrize("unit", ["flops", "seconds"])
def test_costs_that_cannot_be_are_refused_before_anything_runs(
    small_study: Callable[..., Study], asked: list[object], unit: str
) -> None:
    """One cost for arms of other depths, and one so small that no number of steps follows."""
    alike = SMALL | {"budget": unit, "step_cost": 1.0}
    with pytest.raises(ParibusError, match="stated for arms 'baseline' and 'deep' alike"):
        settled_budgets(small_study(training=alike, arms=DEEP))
    for tiny in (1e-8, 5e-324):
        costs = stated({"baseline": 1e300 if tiny < 1e-9 else 1.0, "deep": tiny})
        with pytest.raises(ParibusError, match=r"10,000,000 are the most; see training.step_cost"):
            settled_budgets(small_study(training=SMALL | {"budget": unit}, arms=costs))
    assert not asked


def trial(unit: str, cost: float | None, steps: int, counted: int | None = None) -> dict[str, Any]:
    return {
        "setting": {"training": {"budget": unit, "step_cost": cost}},
        "iterations": steps,
        "tokens": 64 * steps,
        "flops": {"per_token": counted, "by": "formula"} if counted else {},
    }


@pytest.mark.parametrize(
    ("own", "other", "state"),
    [
        (trial("flops", 640.0, 12, 10), trial("flops", 1280.0, 6, 20), "held"),
        (trial("flops", 640.0, 13, 10), trial("flops", 1280.0, 6, 20), "held"),  # half a step
        (trial("flops", 640.0, 15, 10), trial("flops", 1280.0, 6, 20), "broken"),
        (trial("flops", 640.0, 12, 11), trial("flops", 1280.0, 6, 20), "broken"),
        (trial("flops", 640.0, 12), trial("flops", 1280.0, 6, 20), "not proven"),
        (trial("flops", None, 12), trial("flops", 1280.0, 6, 20), "not proven"),
        (trial("seconds", 0.2, 12), trial("seconds", 0.4, 6), "held"),
        (trial("seconds", 0.2, 12), trial("seconds", 0.4, 8), "broken"),
    ],
)
def test_the_control_holds_budgets_against_the_records(own: dict, other: dict, state: str) -> None:
    assert matched_costs(own, other, "words")[0] == state
