"""Custom code of a study: what is kept and compared of it, and what it may leave behind."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import paribus
from paribus.engine.data import FIRST_DIGEST, batch, extend_digest, load_dataset
from paribus.engine.execution.trial.trial import identity
from paribus.engine.machine.steps import build_stack

from ..tools import in_one_process

OWN = """
from helper import rate

def descend(update):
    update.weights.sub_(rate * update.gradients)

def loss(logits):
    return logits * 1.0
"""


@pytest.fixture
def trained(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text(OWN)
    (tmp_path / "helper.py").write_text("rate = 1.0\n")
    own = {"training.optimizer.name": "ideas.py:descend", "training.loss.name": "ideas.py:loss"}
    return small_study(arms={"baseline": {}, "own": {"set": own}})


def test_a_checkpoint_is_of_one_loss(trained):
    def now() -> str:
        dataset = cast("Any", SimpleNamespace(digests={}))
        return identity(trained, ["own"], dataset, torch.device("cpu"))

    before = now()
    assert now() == before
    (trained.folder / "ideas.py").write_text(OWN.replace("1.0", "1.5"))
    assert now() != before


@pytest.mark.parametrize("pack", ["stream", "documents"])
@pytest.mark.parametrize("order", ["sampled", "epoch"])
def test_batches_can_be_drawn_again(small_study, order, pack):
    study = small_study({"data.order": order, "data.pack": pack, "data.path": "texts"})
    (study.folder / "texts").mkdir()
    for number in range(12):
        text = f"{number} quick brown foxes jump over a lazy dog.\n" * (9 + number)
        (study.folder / "texts" / f"{number}.txt").write_text(text)
    setting, dataset = study.setting("baseline"), load_dataset(study.data, study.folder)
    stack = build_stack(study, setting, [5], dataset, torch.device("cpu"))
    for _ in range(setting.iterations):
        stack.step()
    running = FIRST_DIGEST
    for t in range(setting.iterations):
        size, seq_len = setting.training.batch_size, setting.data.seq_len
        drawn = batch(dataset.train, 5, t, size, seq_len, dataset.windows)
        running = extend_digest(running, drawn)
    assert running == stack.state(0).batch_digest


# It keeps the last weights of a trial, and starts the next one from them.
WARM = """
from paribus.engine.training import optimizer

LAST, CALLS = {}, {}

@optimizer("warm", slots=("m",))
def warm(update):
    mean, key = update.slots["m"], tuple(update.weights.shape)
    CALLS[key] = CALLS.get(key, 0) + 1
    if not mean.any():
        CALLS[key] = 0
        if key in LAST:
            update.weights.copy_(LAST[key])
    mean.lerp_(update.gradients, 0.1)
    update.weights.sub_(update.rates * mean.sign())
    if CALLS[key] >= 8:  # a dry run makes fewer steps from one state
        LAST[key] = update.weights.clone()
"""


def test_a_trial_with_own_code_has_a_process_of_its_own(small_study, tmp_path):
    (tmp_path / "ideas.py").write_text(WARM)
    changed = {
        "training.optimizer.name": "ideas.py:warm",
        "tasks.names": [],
        "training.iterations": 20,
        "decision.unreachable": "accept",
    }
    small = {"baseline": {}}
    both = small_study(changed, seeds=[1, 2], arms=small)
    alone = small_study(changed, seeds=[2], arms=small)
    first = paribus.run(both, tmp_path / "both", workers=1)
    with in_one_process():
        second = paribus.run(alone, tmp_path / "alone", workers=1)
    name = "trials/baseline/seed-2/weights.safetensors"
    assert (first.path / name).read_bytes() == (second.path / name).read_bytes()
