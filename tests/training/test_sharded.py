"""One model over several processes: the same losses, weights and records as in one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.evaluation import evaluate_on
from paribus.engine.model import build_model, load_parameters
from paribus.engine.ops import without_kernels
from paribus.engine.probes import study_probes
from paribus.engine.training import Trainer
from paribus.engine.training.ranks import Ranks
from paribus.errors import ParibusError
from paribus.study import Study, load_study

from .ranks_here import CPU, run_ranks

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ranks are forks")
STEPS = 24
PROBES = (
    *("attention_logits", "position_similarity", "embedding_similarity", "embedding_gain"),
    *("embedding_norm", "gradient_norm", "logits", "optimizer_slots", "below_eps"),
    *("residual_norm", "update_ratio"),
)
# Quantiles of a sample of the slots: the sample is another one where they lie on several ranks.
SAMPLED = tuple(f"/{q}" for q in ("q05", "q25", "q50", "q75", "q95"))
# Odd sizes: 257 tokens, 3 layers, 6 channels a head, and a head whose matrix is its own.
TABLE: dict[str, Any] = {
    "name": "sharded",
    "seeds": [1, 2],
    "data": {"corpus": "pydoc", "tokenizer": "byte", "seq_len": 24},
    "model": {
        "n_layer": 3,
        "n_head": 3,
        "d_model": 18,
        "embedding": {"norm": "layernorm"},
        "head": {"tied": False},
    },
    "training": {
        "iterations": STEPS,
        "batch_size": 8,
        "micro_batch": 2,
        "dropout": 0.1,
        "schedule": {"kind": "cosine", "warmup": 5},
        "optimizer": {"learning_rate": 3e-3},
    },
    "probes": {"every": dict.fromkeys(PROBES, 7)},
    "arms": {"baseline": {}},
}


def study(overrides: Mapping[str, Any] | None = None, **tables: Any) -> Study:
    return load_study({**TABLE, **tables}, overrides)


@pytest.fixture(scope="module")
def dataset() -> Dataset:
    return load_dataset(study().data, Path())


def trainer(of: Study, dataset: Dataset, ranks: Ranks | None = None, **given: Any) -> Trainer:
    about = {"probes": study_probes(of), "folder": of.folder, "ranks": ranks, **given}
    return Trainer(of.setting("baseline"), [1], dataset, device=CPU, **about)


def trained(
    of: Study, dataset: Dataset, ranks: Ranks | None = None, **given: Any
) -> dict[str, Any]:
    """All that is compared of a trial, after its last step."""
    with without_kernels():
        one = trainer(of, dataset, ranks, **given)
        for _ in range(of.setting("baseline").iterations):
            one.step()
        found = {
            "measured": one.history(0).measured,
            "columns": [*one.columns, *(column.name for column in one.probe_columns)],
            "weights": one.parameters(0),
            "initial": one.initial_records[0],
            "batches": one.batch_digests[0],
        }
        if ranks is not None:
            replica: Any = one.replicas
            with replica.evaluating():
                reader = replica.reader()
                scores = evaluate_on(reader, dataset, dataset.validation[:700], 24).scores
            found |= {
                "scores": scores,
                "held": sum(x.numel() for x in one.replicas.weights.values()),
            }
    return found


@pytest.fixture(scope="module")
def alone(dataset: Dataset) -> dict[str, Any]:
    return trained(study(), dataset)


@pytest.fixture(scope="module")
def of_two(dataset: Dataset) -> list[dict[str, Any]]:
    return run_ranks(2, partial(trained, study(), dataset))


def require_equal(found: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    """Losses to 1e-5 nats, weights to 1e-4 of a learning rate's 3e-3 x 24 steps."""
    first = found[0]
    assert first["batches"] == alone["batches"]
    assert first["initial"] == alone["initial"]
    assert first["columns"] == alone["columns"]
    for one in found[1:]:  # every rank has the same clock, and knows the same numbers
        np.testing.assert_array_equal(one["measured"], first["measured"])
        assert one["scores"] == first["scores"]
    losses = slice(0, 2)
    np.testing.assert_allclose(
        first["measured"][:, losses], alone["measured"][:, losses], atol=1e-5
    )
    assert first["weights"].keys() == alone["weights"].keys()
    for name, weights in alone["weights"].items():
        np.testing.assert_allclose(first["weights"][name], weights, atol=2e-5, err_msg=name)


def test_two_ranks_train_what_one_process_trains(
    of_two: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    require_equal(of_two, alone)
    whole = sum(values.size for values in alone["weights"].values())
    assert sum(one["held"] for one in of_two) == whole
    assert max(one["held"] for one in of_two) < 0.52 * whole
    assert not of_two[1]["weights"]  # rank 0 alone gathers them


def test_probes_are_exact_over_shards(of_two: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    ours, theirs = of_two[0]["measured"], alone["measured"]
    assert np.array_equal(np.isnan(ours), np.isnan(theirs))
    for c, name in enumerate(alone["columns"]):
        if name.startswith("optimizer_slots/") and name.endswith(SAMPLED):
            continue  # an estimate, from another sample
        np.testing.assert_allclose(
            ours[:, c], theirs[:, c], rtol=2e-4, atol=1e-6, equal_nan=True, err_msg=name
        )


def test_an_evaluation_over_ranks_is_that_of_the_whole_model(
    of_two: list[dict[str, Any]], dataset: Dataset
) -> None:
    of = study()
    model = build_model(of.setting("baseline"), dataset.vocab_size, of.folder)
    load_parameters(model, of_two[0]["weights"])
    with without_kernels():
        scores = evaluate_on(model, dataset, dataset.validation[:700], 24).scores
    for name, value in scores.items():
        assert of_two[0]["scores"][name] == pytest.approx(value, rel=1e-4), name


VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": {"training.precision": "bfloat16", "training.dropout": 0.0},
    "float16": {"training.precision": "float16", "training.loss_scale.initial": 2.0**24},
    "llama": {"model.preset": "llama", "model.n_head": 2, "model.d_model": 16},
    "sgd": {"training.optimizer.name": "sgd", "training.optimizer.learning_rate": 0.1},
    "lion": {"training.optimizer.name": "lion", "training.optimizer.learning_rate": 1e-4},
    "fixed scale": {"model.embedding.norm": "fixed_scale", "training.micro_batch": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_variants_on_two_ranks(changes: dict[str, Any], dataset: Dataset) -> None:
    of = study({**changes, "training.iterations": 25})
    one = trained(of, dataset)
    for checkpointing in (False, True):
        found = run_ranks(2, partial(trained, of, dataset, checkpointing=checkpointing))
        allowed = 5e-3 if "float16" in str(changes) else 2e-5
        losses = [each["measured"][:, 0] for each in (found[0], one)]
        np.testing.assert_allclose(*losses, atol=allowed)


@pytest.mark.slow
def test_four_ranks_where_a_rank_holds_nothing_of_some_parameters(
    alone: dict[str, Any], dataset: Dataset
) -> None:
    require_equal(run_ranks(4, partial(trained, study(), dataset)), alone)


@pytest.mark.slow
def test_divergence_ends_all_ranks_at_the_step_of_one_process(dataset: Dataset) -> None:
    of = study({"training.optimizer.learning_rate": 1e30, "training.optimizer.name": "sgd",
                "training.grad_clip": None, "training.iterations": 23})  # fmt: skip

    def at(ranks: Ranks | None) -> int | None:
        one = trainer(of, dataset, ranks, probes=())
        for _ in range(4):
            one.step()
        return one.history(0).diverged_at

    expected = at(None)
    assert expected is not None
    assert run_ranks(2, at) == [expected, expected]


OWN = """
import torch
from torch import nn
from paribus.extend import Options, optimizer

class Scaled(nn.Module):
    undecayed = ("scale",)
    def __init__(self, model):
        super().__init__()
        self.scale = nn.Parameter(torch.full((model.d_model,), 0.5))
    def forward(self, x):
        return x * self.scale

@optimizer("signed", slots=("seen",))
def signed(update):
    update.slots["seen"].add_(update.gradients.abs())
    update.weights.sub_(update.gradients.sign() * update.rates)

@optimizer("normed")
def normed(update):
    norms = update.gradients.norm(dim=-1, keepdim=True)
    update.weights.sub_(update.gradients / norms * update.rates)
"""


@pytest.mark.slow
def test_custom_parts_and_optimizers_train_alike(tmp_path: Path, dataset: Dataset) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    of = study(
        {
            "model.modules.block_norm": f"{tmp_path}/mine.py:Scaled",
            "training.optimizer.name": f"{tmp_path}/mine.py:signed",
            "training.optimizer.learning_rate": 1e-4,
            "training.iterations": 23,
        }
    )
    one, two = trained(of, dataset), run_ranks(2, partial(trained, of, dataset))
    assert one["initial"] == two[0]["initial"]
    np.testing.assert_allclose(two[0]["measured"][:, 0], one["measured"][:, 0], atol=2e-3)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"training.optimizer.name": "muon"}, "whole parameters"),
        ({"training.optimizer.name": "OWN:normed"}, "moves a number by what the others"),
        ({"training.batch_size": 9, "training.micro_batch": None}, "cannot be shared alike"),
        ({"training.batch_size": 12, "training.micro_batch": 4}, "micro_batch = 4 does not divide"),
    ],
)
def test_what_shards_cannot_do_is_one_line(
    changes: dict[str, Any], words: str, tmp_path: Path, dataset: Dataset
) -> None:
    (tmp_path / "mine.py").write_text(OWN)
    changes = {k: str(v).replace("OWN", f"{tmp_path}/mine.py") if "name" in k else v
               for k, v in changes.items()}  # fmt: skip
    of = study(changes)

    def refused(ranks: Ranks) -> str:
        try:
            trainer(of, dataset, ranks)
        except ParibusError as error:
            return str(error)
        return ""

    for said in run_ranks(2, refused):
        assert words in said and "\n" not in said


def test_nothing_of_the_model_is_held_whole(dataset: Dataset) -> None:
    """Parameters are on meta until a rank's own part is given memory."""
    from paribus.engine.model.build import shapes_of

    model = shapes_of(study().setting("baseline"), dataset.vocab_size)
    assert all(parameter.is_meta for parameter in model.parameters())
    rotary = study({"model.preset": "llama", "model.n_head": 2, "model.d_model": 16})
    made = shapes_of(rotary.setting("baseline"), dataset.vocab_size)
    assert not any(buffer.is_meta for buffer in made.buffers())
    whole = build_model(rotary.setting("baseline"), dataset.vocab_size)
    for (name, ours), theirs in zip(made.named_buffers(), whole.buffers(), strict=True):
        assert torch.equal(ours, theirs), name


@pytest.mark.parametrize("precision", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("is_watched", [False, True])
def test_a_block_that_is_computed_again_has_the_same_gradients(
    precision: torch.dtype, is_watched: bool, dataset: Dataset
) -> None:
    """By compiled kernels too, where there are some: a block as one function, and part by part."""
    from torch.utils.checkpoint import checkpoint

    setting = study({"training.dropout": 0.0}).setting("baseline")
    model = build_model(setting, dataset.vocab_size)
    block: Any = model.blocks[0]
    if is_watched:  # then its parts are called one by one
        block.mlp.register_forward_hook(lambda *_: None)
    x = torch.randn(4, 24, 18, generator=torch.Generator().manual_seed(0)).requires_grad_()

    def gradients(call: Any) -> list[torch.Tensor]:
        with torch.autocast("cpu", dtype=precision, enabled=precision != torch.float32):
            y = call(x)
        return list(torch.autograd.grad(y.square().sum(), [x, *block.parameters()]))

    again = partial(checkpoint, block, use_reentrant=False, preserve_rng_state=False)
    for ours, theirs in zip(gradients(again), gradients(block), strict=True):
        assert torch.equal(ours, theirs)


# Checkpoints


def saved(of: Study, dataset: Dataset, path: Path, ranks: Ranks) -> dict[str, Any]:
    """Train half of a trial, save it while the other half is trained, and return its end."""
    from paribus.engine.execution.trial.checkpoints import StackCheckpoints
    from paribus.engine.execution.trial.sharded_checkpoints import ShardedCheckpoints
    from paribus.engine.training import MEASURED

    with without_kernels():
        one = trainer(of, dataset, ranks)
        replica: Any = one.replicas
        written = ShardedCheckpoints(StackCheckpoints(path, [("baseline", 1)]), ranks)
        for _ in range(STEPS // 2):
            one.step()
        history = one.history(0)
        told = {"batch_digest": history.batch_digest, "diverged_at": history.diverged_at}
        begun = {MEASURED: history.measured}
        written.begin(one.t, replica.tensors(), begun, identity={}, about={"replicas": [told]})
        for _ in range(STEPS // 2):  # what is written is of the step that it was begun at
            one.step()
            written.settle()
        written.settle(wait=True)
        return {"measured": one.history(0).measured, "weights": one.parameters(0)}


def resumed(of: Study, dataset: Dataset, path: Path, ranks: Ranks) -> dict[str, Any]:
    from paribus.engine.execution.trial.checkpoints import Checkpoint, StackCheckpoints
    from paribus.engine.execution.trial.sharded_checkpoints import ShardedCheckpoints
    from paribus.engine.training import MEASURED

    with without_kernels():
        one = trainer(of, dataset, ranks)
        replica: Any = one.replicas
        all_of = StackCheckpoints(path, [("baseline", 1)])
        found = next(iter(all_of.newest_first()))
        assert isinstance(found, Checkpoint)
        arrays = ShardedCheckpoints(all_of, ranks).load(found, replica.tensors())
        (told,) = found.about["replicas"]
        one.take_up(found.t, arrays[MEASURED], told["batch_digest"], told["diverged_at"], {})
        assert one.t == STEPS // 2
        while one.t < STEPS:
            one.step()
        return {
            "measured": one.history(0).measured,
            "weights": one.parameters(0),
            "batches": one.batch_digests[0],
        }


@pytest.fixture(scope="module")
def halfway(dataset: Dataset, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Any]:
    path = tmp_path_factory.mktemp("halfway")
    return path, run_ranks(2, partial(saved, study(), dataset, path))[0]


def test_a_checkpoint_is_plain_files_that_any_number_of_ranks_goes_on_from(
    halfway: tuple[Path, Any], alone: dict[str, Any], dataset: Dataset
) -> None:
    path, whole = halfway
    files = {file.suffix for file in path.rglob("*") if file.is_file()}
    assert files == {".safetensors", ".json"}  # nothing that has to be unpickled
    (found,) = run_ranks(1, partial(resumed, study(), dataset, path))
    assert found["batches"] == alone["batches"]
    np.testing.assert_allclose(found["measured"][:, 0], whole["measured"][:, 0], atol=1e-5)
    for name, weights in whole["weights"].items():
        np.testing.assert_allclose(found["weights"][name], weights, atol=2e-5, err_msg=name)


@pytest.mark.slow
def test_a_checkpoint_of_two_ranks_goes_on_with_four(
    halfway: tuple[Path, Any], dataset: Dataset
) -> None:
    path, whole = halfway
    found = run_ranks(4, partial(resumed, study(), dataset, path))[0]
    np.testing.assert_allclose(found["measured"][:, 0], whole["measured"][:, 0], atol=1e-5)


@pytest.mark.slow
def test_two_ranks_go_on_to_the_same_bits(halfway: tuple[Path, Any], dataset: Dataset) -> None:
    path, whole = halfway
    found = run_ranks(2, partial(resumed, study(), dataset, path))[0]
    np.testing.assert_array_equal(found["measured"], whole["measured"])
    for name, weights in whole["weights"].items():
        np.testing.assert_array_equal(found["weights"][name], weights)


@pytest.mark.slow
def test_a_damaged_checkpoint_is_told(halfway: tuple[Path, Any], dataset: Dataset) -> None:
    path, _ = halfway
    copy = path.with_name("damaged")
    shutil.copytree(path, copy)
    shard = next(copy.rglob("tensors/*.safetensors"))
    content = bytearray(shard.read_bytes())
    content[-1] ^= 1
    shard.write_bytes(content)

    def refused(ranks: Ranks) -> str:
        with pytest.raises(ParibusError) as caught:
            resumed(study(), dataset, copy, ranks)
        return str(caught.value)

    for said in run_ranks(2, refused):
        assert "is not what was written" in said
