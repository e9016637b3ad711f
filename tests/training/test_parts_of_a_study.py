"""Optimizers, parameter groups, losses and micro-batches as a study names them, in a trainer."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paribus.declared import declared
from paribus.engine.check import check_arm
from paribus.engine.data import load_dataset
from paribus.engine.probes import shipped_probes
from paribus.engine.setting.setting import Loss as LossSpec
from paribus.engine.training import Trainer
from paribus.engine.training.losses import find_loss
from paribus.engine.training.optimizers import Optimizer
from paribus.engine.training.step_metrics import COLUMNS
from paribus.errors import ParibusError
from paribus.study import Study

from .measured import require_resumes, train

OPTIMIZERS = declared("paribus.engine.training.optimizers", Optimizer)
each_optimizer = pytest.mark.parametrize("name", OPTIMIZERS)
PROBES = list(shipped_probes().values())
LOSS = list(COLUMNS).index("train_loss")
OPTIMIZER = "training.optimizer"

OWN = """
from typing import Annotated
from pydantic import Field
import torch
import torch.nn.functional as F
from paribus.engine.training import loss, optimizer
from paribus.study.choices import Options

class Beta(Options):
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.9

@optimizer("signum", slots=("momentum_buffer",), options=Beta)
def signum(update):
    momentum = update.slots["momentum_buffer"].lerp_(update.gradients, 1 - update.options.beta)
    update.weights.sub_(update.rates * momentum.sign())

class Power(Options):
    gamma: float = 2.0

@loss("focal", options=Power)
def focal(logits, targets, options):
    ce = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return ((1 - (-ce).exp()) ** options.gamma * ce).view(targets.shape)
"""


@pytest.fixture
def trainer_of(small_study, small_dataset):
    def make(seeds: list[int], overrides: dict[str, Any], **options: Any) -> Trainer:
        study = small_study({"training.iterations": 40} | overrides)
        (study.folder / "ideas.py").write_text(OWN)
        setting = study.setting("layernorm")
        return Trainer(setting, seeds, small_dataset, folder=study.folder, **options)

    return make


@each_optimizer
def test_optimizers_learn_resume_and_agree_in_stacks(name, trainer_of):
    rate = 1e-2 if name == "schedule_free" else 3e-3
    overrides = {f"{OPTIMIZER}.name": name, f"{OPTIMIZER}.learning_rate": rate}
    straight, _ = require_resumes(lambda: trainer_of([1, 2], overrides), 8, 3)
    losses = np.stack([straight.state(r).measured[:, LOSS] for r in range(2)])
    assert (losses[:, -1] < losses[:, 0] - 0.02).all()
    alone = train(trainer_of([2], overrides), 8)[0, :, LOSS]
    # The sign and the orthogonalisation enlarge what rounds otherwise in batched products.
    np.testing.assert_allclose(losses[1], alone, rtol=0, atol=1e-2)
    kinds = {array.partition("/")[0] for array in straight.state(0).arrays}
    assert kinds == {"weights", "measured", *straight.replicas.slots}


def test_groups_have_their_own_optimizers(trainer_of):
    """Each group trains its parameters as a trainer that gives them to all parameters does.

    One step is compared: in later ones, gradients depend on all parameters.
    """
    groups = [
        {"match": "embedding.positions.*", "learning_rate_factor": 0.0},
        {"match": "blocks.0.mlp.*", "learning_rate": 0.01, "weight_decay": 0.5},
        {"match": "blocks.1.attention.*", "optimizer": "lion", "options": {"betas": [0.5, 0.9]}},
    ]
    base = {f"{OPTIMIZER}.learning_rate": 0.002}
    found = trainer_of([1, 2], base | {f"{OPTIMIZER}.groups": groups})
    start = found.parameters(1)
    found.step()
    lion = {f"{OPTIMIZER}.name": "lion", f"{OPTIMIZER}.options": {"betas": [0.5, 0.9]}}
    others = {
        "blocks.0.mlp.": {f"{OPTIMIZER}.learning_rate": 0.01, f"{OPTIMIZER}.weight_decay": 0.5},
        "blocks.1.attention.": lion,
        "": {},
    }
    expected = {}
    for prefix, overrides in others.items():
        other = trainer_of([1, 2], base | overrides)
        other.step()
        expected[prefix] = other.parameters(1)
    for name, values in found.parameters(1).items():
        if name.startswith("embedding.positions."):
            np.testing.assert_array_equal(values, start[name])
            continue
        prefix = next(p for p in others if name.startswith(p))
        np.testing.assert_allclose(values, expected[prefix][name], rtol=1e-6, atol=1e-8)


BAD = [
    ({"name": "adamv"}, "'adamv'.*'adamw'"),
    ({"name": "muon", "options": {"ns_step": 3}}, "'ns_step'.*'ns_steps'"),
    ({"groups": [{"match": "blocks.*.mpl.*", "learning_rate_factor": 2.0}]}, "no parameter that"),
    ({"groups": [{"match": "*.bias", "optimizer": "muon"}]}, "'muon' .*bias"),
    ({"groups": [{"match": "*", "options": {"beta": 1}}]}, r"groups\[0\].options of 'adamw'"),
    ({"name": "lion", "betas": [0.5, 0.5]}, "betas"),
    ({"eps": 1e-6, "options": {"eps": 1e-7}}, "eps"),
]


def tried(study: Study) -> str:
    """What the dry run, which goes before every run, says of the study."""
    (study.folder / "ideas.py").write_text(OWN)
    dataset = load_dataset(study.data, study.folder)
    with pytest.raises(ParibusError) as caught:
        check_arm(study, "baseline", dataset, torch.device("cpu"), 1)
    return str(caught.value)


@pytest.mark.parametrize(("options", "words"), BAD)
def test_bad_optimizers_are_named(options, words, small_study):
    said = tried(small_study({f"{OPTIMIZER}.{key}": value for key, value in options.items()}))
    assert re.search(words, said), said


@pytest.mark.parametrize(("R", "size"), [(1, 2), (3, 1)])
def test_micro_batches_match_the_whole_batch(R, size, trainer_of):
    """With dropout and every probe. Sums of float32 in another order: 1e-5 after 4 steps."""
    seeds = list(range(1, R + 1))
    overrides = {"training.dropout": 0.2, "training.loss.z_loss": 1e-3}
    probes = [replace(probe, every=1) for probe in PROBES]
    whole = trainer_of(seeds, overrides, probes=probes)
    parts = trainer_of(seeds, overrides | {"training.micro_batch": size}, probes=probes)
    np.testing.assert_allclose(train(parts, 4), train(whole, 4), rtol=1e-4, atol=1e-6)
    assert parts.batch_digests == whole.batch_digests
    for name, values in parts.parameters(0).items():
        np.testing.assert_allclose(values, whole.parameters(0)[name], rtol=0, atol=1e-5)


def logits_and_targets() -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(5)
    logits = 3 * torch.randn(2, 3, 4, 7, generator=generator)
    return logits, torch.randint(0, 7, (2, 3, 4), generator=generator)


@pytest.mark.parametrize("label_smoothing", [0.0, 0.4])
@pytest.mark.parametrize("z_loss", [0.0, 1e-2])
def test_cross_entropy_is_its_definition(label_smoothing, z_loss):
    logits, targets = logits_and_targets()
    found = find_loss(LossSpec(label_smoothing=label_smoothing, z_loss=z_loss), None)
    assert found.is_plain == (not label_smoothing and not z_loss)
    z = logits.double().numpy()
    log_partition = np.log(np.exp(z).sum(axis=-1))
    log_p = z - log_partition[..., None]
    smoothed = (1 - label_smoothing) * np.eye(7)[targets.numpy()] + label_smoothing / 7
    expected = -(smoothed * log_p).sum(axis=-1) + z_loss * log_partition**2
    np.testing.assert_allclose(found(logits, targets), expected, rtol=2e-6)
    theirs = F.cross_entropy(
        logits.flatten(0, 2), targets.flatten(), label_smoothing=label_smoothing
    )
    assert found(logits, targets).mean() - z_loss * np.mean(log_partition**2) == pytest.approx(
        theirs.item(), rel=1e-5
    )


@pytest.mark.parametrize(
    "overrides",
    [
        {"training.loss.z_loss": 0.01},
        {"training.loss.name": "ideas.py:focal", "training.loss.options": {"gamma": 1.0}},
    ],
)
@pytest.mark.parametrize("R", [1, 2])
def test_the_objective_is_learned_from_and_cross_entropy_recorded_beside_it(
    overrides, R, trainer_of
):
    seeds = list(range(1, R + 1))
    plain, other = trainer_of(seeds, {}), trainer_of(seeds, overrides)
    assert list(plain.columns) == list(COLUMNS)
    assert list(other.columns) == [*COLUMNS, "train_objective"]
    expected, found = train(plain, 2), train(other, 2)
    objective = found[:, :, list(other.columns).index("train_objective")]
    # The first step is from equal weights: the same cross-entropy, another objective.
    np.testing.assert_array_equal(found[:, 0, LOSS], expected[:, 0, LOSS])
    assert (objective[:, 0] != found[:, 0, LOSS]).all()
    assert (found[:, 1, LOSS] != expected[:, 1, LOSS]).all()
