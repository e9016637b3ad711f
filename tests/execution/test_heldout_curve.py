"""Held-out loss along training: measured, recorded, read back, and what cannot be measured."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from paribus.engine.cost import flops_per_token
from paribus.engine.data import load_dataset
from paribus.engine.evaluation import evaluate_on
from paribus.engine.execution.trial.record import HeldOutCurve
from paribus.engine.machine.steps import build_stack
from paribus.engine.model import build_model, load_parameters
from paribus.errors import ParibusError
from paribus.results import ResultsFolder

from .conftest import SEEDS

CPU = torch.device("cpu")


def test_every_trial_has_its_points(trained):
    results = trained.results
    assert set(results.trial_curves) == {(arm, s) for arm in trained.study.arms for s in SEEDS}
    for (arm, seed), curve in results.trial_curves.items():
        assert curve.step.tolist() == [0, 3, 6, 8]
        setting = trained.study.setting(arm)
        assert curve.tokens.tolist() == [t * setting.tokens_per_step for t in (0, 3, 6, 8)]
        vocab_size = results.trials[arm, seed]["data"]["vocab_size"]
        each = flops_per_token(setting, vocab_size)
        assert curve.flops is not None and curve.flops[-1] == each * setting.tokens
        assert curve.seconds[0] < 0.1 and (np.diff(curve.seconds) > 0).all()
        (speed,) = (
            row["tokens"] / row["seconds"]
            for row in results.throughput.to_pylist()
            if (row["arm"], row["seed"], row["kind"]) == (arm, seed, "training")
        )
        assert curve.seconds[-1] == pytest.approx(setting.tokens / speed)
        # The whole of a short text: the last point is the loss that endpoints are judged on.
        final = results.trials[arm, seed]["data"]["validation_tokens"] - 1
        assert curve.predicted == final
        scores = ResultsFolder(results.path).trial(arm, seed).read_json("evaluation.json")
        assert curve.final == pytest.approx(scores["validation_loss"], rel=1e-6)
        # Before training a model knows no more than a uniform guess.
        assert curve.loss[0] == pytest.approx(np.log(vocab_size), rel=0.05)
    table = results.curve
    assert table.column_names == ["arm", "seed", "step", "tokens", "flops", "seconds", "loss"]
    assert len(table) == 4 * len(results.finished)


def test_points_are_what_a_whole_evaluation_says(small_study):
    study = small_study(
        {"evaluation.every": 2, "evaluation.curve_tokens": 100, "training.dropout": 0.2},
        arms={"baseline": {}, "hot": {"set": {"training.optimizer.learning_rate": 0.1}}},
    )
    dataset = load_dataset(study.data, study.folder)
    settings = [study.setting(arm) for arm in study.arms]
    stack = build_stack(study, settings, [1, 1], dataset, CPU)
    bare = build_stack(study, settings, [1, 1], dataset, CPU)
    curve = HeldOutCurve(study, study.baseline, dataset, CPU)
    for t in range(5):
        if curve.is_due(t):
            curve.measure(stack)
        assert not curve.is_due(t)
        stack.step()
        bare.step()
    # Nothing of it reaches the training.
    for r in range(2):
        ours, theirs = stack.state(r), bare.state(r)
        assert all(
            np.array_equal(ours.arrays[n], a, equal_nan=True) for n, a in theirs.arrays.items()
        )
    assert [point["step"] for point in curve.points] == [0, 2, 4]
    stack.step()
    stack.step()
    curve.measure(stack)
    part = dataset.validation[:101]
    for r, setting in enumerate(settings):
        model = build_model(setting, dataset.vocab_size)
        load_parameters(model, stack.parameters(r))
        scores = evaluate_on(model, dataset, part, setting.data.seq_len).scores
        nats = curve.points[-1]["nats"][r]
        assert nats is not None and nats / 100 == pytest.approx(scores["validation_loss"], rel=1e-6)


@pytest.mark.parametrize(
    ("key", "overrides"),
    [
        ("target", {"evaluation.target": 2.0}),  # without a curve
        ("target", {"evaluation.every": 2, "evaluation.target": float("nan")}),
        ("curve_tokens", {"evaluation.every": 2, "evaluation.curve_tokens": 0}),
    ],
)
def test_impossible_curves_are_one_line(small_study, overrides, key):
    with pytest.raises(ParibusError, match=f"evaluation.{key}"):
        small_study(overrides)
