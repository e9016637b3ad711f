"""Costs: against numbers counted by hand, models that are built, and memory as measured."""

from collections.abc import Mapping
from typing import Any

import pytest

from paribus.engine.cost import (
    ASSUMED_VOCABULARY,
    flops_per_token,
    stated_rate,
    study_cost,
    trial_bytes,
    vocabularies_of,
)
from paribus.engine.model import count_parameters
from paribus.study import Study, load_study

from ..tools import refused

LARGE: dict[str, Any] = {
    "name": "large",
    "seeds": [1, 2, 3, 4, 5],
    "data": {"corpus": "text", "path": "x.txt", "tokenizer": "gone.json", "seq_len": 2048},
    "model": {"n_layer": 24, "n_head": 16, "d_model": 2048},
    "training": {
        "tokens": 50_000_297_984,
        "batch_size": 512,
        "micro_batch": 4,
        "precision": "bfloat16",
    },
    "resources": {"devices_per_trial": 8, "checkpoint_activations": True},
    "arms": {"baseline": {}, "rmsnorm": {"set": {"model.embedding.norm": "rmsnorm"}}},
}


def study(overrides: Mapping[str, Any] | None = None) -> Study:
    return load_study(LARGE, overrides)


def test_gpt3_xl_by_hand():
    """Brown et al. 2020, table 2.1: 24 layers of width 2,048; counted here by hand."""
    setting = study().setting("baseline")
    D, V, T, L = 2048, ASSUMED_VOCABULARY, 2048, 24
    # Attention 4 D^2 + 4 D, MLP 8 D^2 + 5 D, two norms 4 D; tables; the last norm 2 D.
    block = 12 * D**2 + 13 * D
    assert L * block + V * D + T * D + 2 * D == 1_315_723_264
    assert count_parameters(setting, V) == 1_315_723_264
    assert count_parameters(study().setting("rmsnorm"), V) == 1_315_723_264 + D
    untied = study({"model.head.tied": False}).setting("baseline")
    assert count_parameters(untied, V) == 1_315_723_264 + V * D
    # 6 x (24 x 12 x 2048^2 + 50257 x 2048) + 12 x 24 x 2048 x 2048
    assert flops_per_token(setting, V) == 7_247_757_312 + 617_558_016 + 1_207_959_552


def test_a_plan_by_hand():
    of = study()
    rate = stated_rate(of, 989.4, utilisation=0.4, count=64)
    cost = study_cost(of, vocabularies_of(of), rate=rate, price=2.5)
    assert cost.vocabulary is None
    per_trial = 9_073_274_880 * 50_000_297_984
    assert cost.arms["baseline"].flops == per_trial
    hours = per_trial / (989.4e12 * 0.4) / 3600
    assert hours == pytest.approx(318.4, rel=1e-3)
    assert cost.tokens == 10 * 50_000_297_984
    assert cost.device_hours == pytest.approx(10 * hours, rel=1e-4)
    # Eight at once on eight devices each, then the last two.
    assert cost.hours == pytest.approx(2 * hours / 8, rel=1e-4)
    assert cost.price == pytest.approx(2.5 * 10 * hours, rel=1e-4)
    assert stated_rate(of, 989.4, utilisation=0.4, count=None).workers == 1
    with refused("value", match="uses 8 devices"):
        stated_rate(of, 989.4, utilisation=0.4, count=7)


def test_tuning_is_of_each_arm():
    """Of arms whose names begin alike too: `deep` and `deep-2`."""
    deep = {"deep": {"set": {"model.n_layer": 48}}, "deep-2": {"set": {"model.n_layer": 12}}}
    table = LARGE | {"arms": {"baseline": {}} | deep}
    grid = {"training.optimizer.learning_rate": [1e-4, 2e-4]}
    of = load_study(table | {"tuning": {"seeds": [11, 12], "grid": grid}})
    cost = study_cost(of, vocabularies_of(of))
    each = sum(arm.flops for arm in cost.arms.values())
    assert cost.flops == pytest.approx((5 + 4) * each)


def test_more_devices_and_checkpointing_take_less_memory_each():
    setting = study({"training.micro_batch": None}).setting("baseline")
    one, eight = (trial_bytes(setting, 257, devices=n) for n in (1, 8))
    state = 20 * (24 * 12 * 2048**2 + 257 * 2048)
    assert one - state == 8 * (eight - state)
    lean = trial_bytes(setting, 257, devices=8, checkpointing=True)
    assert lean - state < (eight - state) / 4
