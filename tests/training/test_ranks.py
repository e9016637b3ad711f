"""One trial over several processes: the batches, initial values and losses of one process.

Tolerances: losses agree to 1e-5 nats, and weights to 2e-5 after 12 steps at a rate of 3e-3.
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.engine.data import Dataset, load_dataset
from paribus.engine.probes import study_probes
from paribus.engine.setting import rows_of
from paribus.engine.training import Trainer
from paribus.engine.training.ranks import Ranks
from paribus.errors import ParibusError
from paribus.study import Study, load_study

from ..tools import disabled_kernels
from .ranks_here import CPU, run_ranks

pytestmark = pytest.mark.skipif(os.name != "posix", reason="ranks are forks")
STEPS = 12
PROBES = (
    *("attention_logits", "position_similarity", "embedding_similarity", "embedding_gain"),
    *("embedding_norm", "gradient_norm", "logits", "optimizer_slots", "below_eps"),
    *("residual_norm", "update_ratio"),
)
OF_WEIGHTS = ("embedding_similarity", "embedding_gain", "gradient_norm", "optimizer_slots")
# Odd sizes: 257 tokens, 3 layers, 6 channels a head, and a head whose matrix is its own.
TABLE: dict[str, Any] = {
    "name": "ranks",
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
    "probes": {"every": dict.fromkeys(PROBES, 5)},
    "arms": {"baseline": {}},
}


def study(overrides: Mapping[str, Any] | None = None, **tables: Any) -> Study:
    return load_study({**TABLE, **tables}, overrides)


@pytest.fixture(scope="module")
def dataset():
    return load_dataset(study().data, Path())


def trainer(study: Study, dataset: Dataset, ranks: Ranks | None = None, **options: Any) -> Trainer:
    options = {"probes": study_probes(study), "folder": study.folder, **options}
    devices = ranks.size if ranks else 1
    setting = study.setting("baseline")
    return Trainer(setting, [1], dataset, device=CPU, ranks=ranks, devices=devices, **options)


def trained(
    study: Study,
    dataset: Dataset,
    ranks: Ranks | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Train a trial, and return all that is compared of it."""
    with disabled_kernels():
        trial = trainer(study, dataset, ranks, **options)
        while trial.t < trial.setting.iterations:
            trial.step()
        return {
            "columns": [*trial.columns, *(column.name for column in trial.probe_columns)],
            "weights": trial.parameters(0),
            "initial": trial.replicas.initial_records[0],
            "state": trial.state(0),
        }


@pytest.fixture(scope="module")
def alone(dataset):
    return trained(study(), dataset)


def require_equal(ranks: list[dict[str, Any]], alone: dict[str, Any]) -> None:
    first = ranks[0]
    assert first["state"].batch_digest == alone["state"].batch_digest
    assert first["initial"] == alone["initial"]
    assert first["columns"] == alone["columns"]
    for rank in ranks[1:]:  # every rank has the same weights, losses and norms, to the bit
        for name, weights in first["weights"].items():
            np.testing.assert_array_equal(rank["weights"][name], weights)
        measured = rank["state"].measured[:, :3]
        np.testing.assert_array_equal(measured, first["state"].measured[:, :3])
    ours, theirs = first["state"].measured, alone["state"].measured
    np.testing.assert_allclose(ours[:, :2], theirs[:, :2], rtol=1e-5, atol=1e-5)
    assert first["weights"].keys() == alone["weights"].keys()
    for name, weights in alone["weights"].items():
        np.testing.assert_allclose(first["weights"][name], weights, atol=2e-5, err_msg=name)


@pytest.mark.parametrize("size", [2, 4])
def test_ranks_train_what_one_process_trains(size, alone, dataset):
    ranks = run_ranks(size, partial(trained, study(), dataset))
    require_equal(ranks, alone)
    ours, theirs = ranks[0]["state"].measured, alone["state"].measured
    for c, name in enumerate(alone["columns"]):
        if name.startswith(OF_WEIGHTS):
            np.testing.assert_allclose(
                ours[:, c], theirs[:, c], rtol=2e-4, atol=1e-6, equal_nan=True, err_msg=name
            )


VARIANTS: dict[str, dict[str, Any]] = {
    "bfloat16": {"training.precision": "bfloat16", "training.dropout": 0.0},
    "llama": {"model.preset": "llama", "model.n_head": 2, "model.d_model": 16},
    "muon": {"training.optimizer.name": "muon", "training.optimizer.learning_rate": 1e-3},
    "average": {"training.average": {"kind": "ema"}, "training.micro_batch": None},
}


@pytest.mark.slow
@pytest.mark.parametrize("changes", VARIANTS.values(), ids=VARIANTS)
def test_variants_on_two_ranks(changes, dataset):
    variant = study({**changes, "training.iterations": 25})
    alone = trained(variant, dataset)["state"].measured[:, 0]
    allowed = 5e-3 if "float16" in str(changes) else 1e-4
    for checkpointing in (False, True):
        ranks = run_ranks(2, partial(trained, variant, dataset, checkpointing=checkpointing))
        np.testing.assert_allclose(ranks[0]["state"].measured[:, 0], alone, atol=allowed)


def test_recomputed_blocks_change_no_bit(dataset):
    changed = study({"training.precision": "bfloat16", "training.iterations": 5})
    states = []
    for checkpointing in (False, True):
        states.append(trained(changed, dataset, checkpointing=checkpointing)["state"])
    for name, values in states[0].arrays.items():
        np.testing.assert_array_equal(states[1].arrays[name], values, err_msg=name)


def test_divergence_ends_all_ranks_at_the_step_of_one_process(dataset):
    wild = study({"training.optimizer.learning_rate": 1e30, "training.iterations": 23})

    def diverged_at(ranks: Ranks | None) -> int | None:
        trial = trainer(wild, dataset, ranks, probes=())
        for _ in range(4):
            trial.step()
        return trial.history(0).diverged_at

    expected = diverged_at(None)
    assert expected is not None
    assert run_ranks(2, diverged_at) == [expected, expected]


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"training.batch_size": 9, "training.micro_batch": None}, "training.batch_size = 9"),
        ({"training.batch_size": 12, "training.micro_batch": 4}, "training.micro_batch = 4"),
        ({"training.batch_size": {"from": 4, "to": 8, "until": 0.5}}, "training.batch_size"),
    ],
)
def test_a_batch_that_devices_cannot_share_is_refused(changes, key):
    with pytest.raises(ParibusError) as error:
        rows_of(study(changes).setting("baseline"), 2)
    assert key in str(error.value)
