"""Plans on paper: against hand-computed cases, models that are built, and memory as measured."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from paribus.cli import printed
from paribus.cli.options import Planned, show
from paribus.engine.data import load_dataset
from paribus.engine.machine import on_paper
from paribus.engine.machine.assembly import build_stack
from paribus.engine.machine.memory import most_held
from paribus.engine.machine.on_paper import (
    CARDS,
    GIB,
    flops_per_token,
    memory,
    plan_on_paper,
    sizes,
)
from paribus.engine.model import count_parameters, training_flops_per_token
from paribus.engine.ops import without_kernels
from paribus.errors import ParibusError
from paribus.study import Study, load_study

VOCABULARY = 50_257
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


def test_gpt3_xl_by_hand() -> None:
    """Brown et al. 2020, table 2.1: 24 layers of width 2,048; counted here by hand."""
    setting = study().setting("baseline")
    D, V, T, L = 2048, VOCABULARY, 2048, 24
    found = sizes(setting, V)
    # Attention 4 D^2 + 4 D, MLP 8 D^2 + 5 D, two norms 4 D; tables; the last norm 2 D.
    assert found.block == 12 * D**2 + 13 * D == 50_358_272
    assert found.all == L * 50_358_272 + V * D + T * D + 2 * D == 1_315_723_264
    assert sizes(study().setting("rmsnorm"), V).all == 1_315_723_264 + D
    untied = study({"model.head.tied": False}).setting("baseline")
    assert sizes(untied, V).all == 1_315_723_264 + V * D
    # 6 x (24 x 12 x 2048^2 + 50257 x 2048) + 12 x 24 x 2048 x 2048
    assert flops_per_token(setting, V) == 7_247_757_312 + 617_558_016 + 1_207_959_552


def test_a_plan_by_hand() -> None:
    plan = plan_on_paper(study(), "h100", count=64, price=2.5)
    assert plan.assumed and plan.vocabulary == VOCABULARY
    per_trial = 9_073_274_880 * 50_000_297_984
    assert plan.arms["baseline"].flops == per_trial
    hours = per_trial / (989.4e12 * 0.4) / 3600
    assert (
        plan.arms["baseline"].device_hours == pytest.approx(hours) == pytest.approx(318.4, abs=0.1)
    )
    assert plan.trials == 10 and plan.tokens == 10 * 50_000_297_984
    # Eight at once on eight devices each, then the last two.
    assert plan.hours == pytest.approx(2 * hours / 8, rel=1e-4)
    assert plan.cost == pytest.approx(2.5 * 10 * hours, rel=1e-4)
    weights = plan.fullest.weights
    assert weights == 4 * -(-sizes(study().setting("rmsnorm"), VOCABULARY).all // 8)
    assert plan.fullest.optimizer == pytest.approx(2 * weights, abs=8)
    # 4 windows of 2,048 tokens, logits in bfloat16, their log-probabilities and two gradients.
    assert plan.fullest.logits == 4 * 2048 * VOCABULARY * 14
    assert plan.weights_bytes == 4 * sum(5 * of.parameters for of in plan.arms.values())
    assert plan.fits and plan.fullest.total < 0.2 * CARDS["h100"].memory_bytes


@pytest.mark.parametrize("choice", ["propagated", "replicated"])
def test_tuning_is_of_each_arm_and_for_each_seed_where_it_is_anew(choice: str) -> None:
    """Of arms whose names begin alike too: `deep` and `deep-2`."""
    deep = {"deep": {"set": {"model.n_layer": 48}}, "deep-2": {"set": {"model.n_layer": 12}}}
    table = LARGE | {"arms": {"baseline": {}} | deep, "inference": {"choice": choice}}
    grid = {"training.optimizer.learning_rate": [1e-4, 2e-4]}
    plan = plan_on_paper(load_study(table | {"tuning": {"seeds": [11, 12], "grid": grid}}), "h100")
    each = sum(of.flops for of in plan.arms.values())
    anew = 5 if choice == "replicated" else 1
    assert plan.tuning_trials == anew * 12
    assert plan.flops == pytest.approx((5 + anew * 4) * each)


def test_more_devices_take_less_each_and_checkpointing_less_again() -> None:
    setting = study().setting("baseline")
    one, eight = (memory(setting, VOCABULARY, devices=n) for n in (1, 8))
    assert one.weights == pytest.approx(8 * eight.weights, abs=32)
    assert one.gathered == one.weights and 0 < eight.gathered < one.weights / 2
    assert memory(setting, VOCABULARY, sharded=False).gathered == 0
    lean = memory(setting, VOCABULARY, devices=8, checkpointing=True)
    assert lean.activations < eight.activations / 4 and lean.logits == eight.logits
    large = study({"training.micro_batch": 64, "resources.checkpoint_activations": False})
    plan = plan_on_paper(large, "h100", count=8)
    assert not plan.fits and plan.fullest.total > 80 * GIB


PLAIN = {"corpus": "text", "path": "x.txt", "tokenizer": "byte", "seq_len": 64}
PROBES = (
    *("attention_logits", "position_similarity", "embedding_similarity", "embedding_gain"),
    *("embedding_norm", "gradient_norm", "logits", "optimizer_slots", "below_eps"),
    *("residual_norm", "update_ratio"),
)


def small(folder: Path, overrides: Mapping[str, Any]) -> Study:
    (folder / "x.txt").write_text("the quick brown fox jumps over the lazy dog. " * 2000)
    table = {
        **LARGE,
        "data": PLAIN | {"path": str(folder / "x.txt")},
        "model": {"n_layer": 4, "n_head": 4, "d_model": 64},
        "training": {"iterations": 30, "batch_size": 32, "precision": "float32"},
        "resources": {},
        "probes": {"every": dict.fromkeys(PROBES, 0)},
    }
    return load_study(table, overrides)


SHAPES: list[dict[str, Any]] = [
    {},
    {"training.precision": "bfloat16"},
    {"model.mlp.kind": "swiglu", "model.n_layer": 8},
    {"training.batch_size": 64, "training.micro_batch": 32},
    {"training.batch_size": 2, "model.d_model": 256},
    {
        "training.batch_size": 16,
        "model.n_layer": 1,
        "model.d_model": 16,
        "data.seq_len": 128,
        "data.tokenizer": "pydoc-512",
    },
]


@pytest.mark.parametrize("overrides", SHAPES, ids=str)
def test_memory_is_what_is_measured(overrides: dict[str, Any], tmp_path: Path) -> None:
    """Within 12%: what blocks keep and what logits take is not at its largest at one time."""
    of = small(tmp_path, overrides)
    setting = of.setting("baseline")
    dataset = load_dataset(setting.data, of.folder)
    device = torch.device("cpu")
    with without_kernels():
        trainer = build_stack(of, setting, [0], dataset, device)
        trainer.step()
        _, held = most_held(trainer.step, device)
    paper = memory(setting, dataset.vocab_size, sharded=False)
    assert held is not None
    assert paper.total == pytest.approx(held, rel=0.12)


@pytest.mark.parametrize(
    "overrides",
    [
        {"model.preset": "llama"},
        {"model.mlp.match_parameters": False, "model.mlp.kind": "swiglu", "model.bias": False},
        {"model.norm.placement": "post", "model.head.tied": False},
        {"model.attention.qk_norm": "rmsnorm", "model.attention.n_kv_head": 2},
        {"model.positions.kind": "rotary", "model.embedding.norm": "center"},
    ],
    ids=str,
)
def test_sizes_are_those_of_the_model_that_is_built(
    overrides: dict[str, Any], tmp_path: Path
) -> None:
    setting = small(tmp_path, overrides).setting("baseline")
    for vocab_size in (257, 1000):
        assert sizes(setting, vocab_size).all == count_parameters(setting, vocab_size, tmp_path)
        known = training_flops_per_token(setting, vocab_size, tmp_path)
        assert flops_per_token(setting, vocab_size) == known


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"card": "h10"}, "did you mean 'h100'"),
        ({"count": 4}, "fewer than resources.devices_per_trial = 8"),
        ({"count": 0}, "at least 1"),
        ({"study": {"resources.devices_per_trial": 7}}, "cannot be shared alike"),
        ({"study": {"training.micro_batch": 48}}, "does not divide"),
        ({"utilisation": 0.0}, "0.4"),
        ({"price": -1.0}, "price"),
    ],
)
def test_bad_input_is_one_line(given: dict[str, Any], words: str) -> None:
    with pytest.raises(ParibusError, match=words) as caught:
        plan_on_paper(study(given.pop("study", None)), **{"card": "h100", **given})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("count", "seeds", "used"), [(12, 5, 8), (80, 5, 80), (88, 5, 80), (8, 1, 8), (64, 1, 16)]
)
def test_devices_that_no_trial_takes_are_told(
    count: int, seeds: int, used: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two arms, over eight devices a trial."""
    of = study({"seeds": list(range(seeds))})
    plan = plan_on_paper(of, "h100", count=count)
    assert plan.used == plan.record["used"] == used
    show(*printed.on_paper(of, [], plan, "large"))
    assert (f"{used} of {count} devices used" in capsys.readouterr().out) == (used < count)


@pytest.mark.parametrize(
    ("data", "is_read"),
    [
        ({"data.path": "x.txt"}, True),
        ({"data.path": "gone.txt"}, False),
        ({"data.corpus": "pydoc", "data.path": None}, True),
        ({"data.corpus": "fineweb-edu", "data.path": None, "data.revision": "0" * 40}, False),
        ({"data.corpus": "own.py:texts", "data.path": None}, False),
        ({"data.path": "x.txt", "data.validation_path": "y.txt"}, True),
        (
            {"data.path": "x.txt", "data.mixture": {"corpus": 0.5, "other": 0.5}}
            | {"data.sources": {"other": {"path": "y.txt"}}},
            True,
        ),
    ],
    ids=str,
)
def test_characters_are_those_of_a_text_at_hand(
    data: dict[str, Any], is_read: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARIBUS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "y.txt").write_text("JACKDAWS love my big sphinx of quartz. " * 2000)
    (tmp_path / "own.py").write_text("def texts(data, folder):\n    raise AssertionError\n")
    of = small(tmp_path, {"data.tokenizer": "character", **data})
    plan = plan_on_paper(of, "h100")
    assert plan.assumed is not is_read
    if is_read:
        built = load_dataset(of.data, of.folder).vocab_size
        assert plan.vocabulary == built
        for arm, paper in plan.arms.items():
            assert paper.parameters == count_parameters(of.setting(arm), built, tmp_path)
    else:
        assert plan.vocabulary == VOCABULARY


def test_a_long_text_is_not_read_for_its_characters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    of = small(tmp_path, {"data.tokenizer": "character"})
    monkeypatch.setattr(on_paper, "MOST_READ", (tmp_path / "x.txt").stat().st_size - 1)
    assert plan_on_paper(of, "h100").assumed


@pytest.mark.parametrize(
    ("planned", "given"),
    [
        (Planned(device="h100"), {"workers": 3}),
        (Planned(device="h100"), {"stack": 5}),
        (Planned(device="h100", backend="slurm"), {}),
        (Planned(device="h100", backend_option=["foo=1"]), {}),
    ],
)
def test_what_is_measured_is_not_asked_on_paper(planned: Planned, given: dict[str, int]) -> None:
    with pytest.raises(ParibusError, match=r"h100 is planned on paper, which takes no --\S+;"):
        planned.require_used(**given)
    replace(planned, device="auto").require_used(**given)
    Planned(device="h100", count=3, price=2.0).require_used(workers=None, stack=None)


def test_own_parts_have_no_size_on_paper() -> None:
    own = study({"model.modules.mlp": "mine.py:MLP"})
    with pytest.raises(ParibusError, match=r"mine\.py:MLP"):
        plan_on_paper(own, "h100")


def test_resources_are_no_part_of_a_study_and_of_one_trainer_alone() -> None:
    assert study().digest == study({"resources.devices_per_trial": 2}).digest
    assert study().is_same(study({"resources.devices_per_trial": None,
                                  "resources.checkpoint_activations": False}))  # fmt: skip
    with pytest.raises(ParibusError, match="devices_per_trial"):
        study({"resources.devices_per_trial": None})


def test_the_command_asks_no_engine(tmp_path: Path) -> None:
    """A billion parameters are planned without PyTorch, in the time that a command takes."""
    (tmp_path / "large.toml").write_text(
        'name = "large"\nseeds = [1, 2, 3]\n[data]\ncorpus = "pydoc"\n'
        "[training]\niterations = 100\n[arms.baseline]\n"
        '[arms.b]\nset."model.embedding.norm" = "layernorm"\n'
    )
    code = (
        "import sys; from paribus.cli import main; "
        "sys.argv[1:] = ['plan', 'large.toml', '--device', 'h100', '--count', '64', '--json']; "
        "code = main(); assert 'torch' not in sys.modules; sys.exit(code)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, env=os.environ
    )
    assert done.returncode == 0, done.stderr
    assert '"assumed": false' in done.stdout
