"""Own optimizers, losses and probes that cannot work: the check of an arm names them."""

import re

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.errors import ParibusError

from ..tools import refused

CPU = torch.device("cpu")

HEAD = """
import torch
import torch.nn.functional as F
from paribus.engine.probes import probe
from paribus.engine.training import loss, optimizer

def plain(update):
    update.weights.sub_(update.rates * update.gradients)

def entropy(logits, targets):
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return losses.view(targets.shape)
"""


MODULE = """
class Own(torch.nn.Module):
    residual_projections = ()

    def __init__(self, model):
        super().__init__()
        self.up = torch.nn.Linear(model.d_model, model.d_model)

    def forward(self, x):
        x = self.up(x)
        return x

"""
LOSS = """
@loss("mine")
def mine(logits, targets, options):
    """


@pytest.fixture
def says(small_study, small_dataset, tmp_path):
    """What the dry run says of own code at a key; empty where it has no objection."""

    def of(key: str, code: str, R: int = 2) -> str:
        (tmp_path / "ideas.py").write_text(HEAD + code)
        own = ["ideas.py:mine"] if key == "probes.own" else "ideas.py:mine"
        study = small_study({key: own, "model.n_layer": 1})
        try:
            check_arm(study, "baseline", small_dataset, CPU, R)
        except ParibusError as error:
            return str(error)
        return ""

    return of


# How an optimizer is declared, what it does, and what is said of it.
OPTIMIZERS = {
    "a norm over all replicas": (
        '"mine"',
        "update.weights.sub_(update.rates * update.gradients / update.gradients.norm())",
        r"own code \(ideas.py:mine\) .*mixes replicas",
    ),
    "a NaN of others": (
        '"mine"',
        "update.weights.sub_(update.rates * update.gradients + 0 * update.weights.sum())",
        "mixes replicas",
    ),
    "a name that ships": ('"adamw"', "plain(update)", "is named 'adamw', as one that ships"),
    "weights for a slot": ('"mine", slots=("weights",)', "", r"slots = \('weights',\)"),
    "corrections of nothing": (
        '"mine", slots=("m",), corrections=lambda options, t: {"n": 1.0}',
        "plain(update)",
        r"\(ideas.py:mine\) fails in a dry run of one step: KeyError: 'n'",
    ),
}
LOSSES = {
    "without a gradient": (
        "return entropy(logits.detach(), targets)",
        "RuntimeError: .*require grad",
    ),
    "other sizes": ("return (logits @ torch.ones(3, 3)).sum(-1)", "RuntimeError: mat1"),
}


@pytest.mark.parametrize(("declared", "body", "words"), OPTIMIZERS.values(), ids=OPTIMIZERS)
def test_odd_optimizers(says, declared, body, words):
    code = f"@optimizer({declared})\ndef mine(update):\n    {body or 'pass'}\n"
    refusal = says("training.optimizer.name", code)
    assert re.search(words, refusal), refusal
    assert "\n" not in refusal


@pytest.mark.parametrize("R", [1, 2])
def test_nan_weights_are_refused(says, R):
    code = '@optimizer("mine")\ndef mine(update):\n    update.weights.div_(0 * update.gradients)\n'
    message = says("training.optimizer.name", code, R)
    assert "weights/" in message
    assert "arm 'baseline'" in message


def test_an_optimizer_that_changes_no_weight_is_warned_of(small_study, small_dataset, tmp_path):
    (tmp_path / "ideas.py").write_text(HEAD + '@optimizer("mine")\ndef mine(update):\n    pass\n')
    study = small_study({"training.optimizer.name": "ideas.py:mine", "model.n_layer": 1})
    (warning,) = check_arm(study, "baseline", small_dataset, CPU, 2)
    assert "'mine'" in warning
    plain = small_study({"model.n_layer": 1})
    assert check_arm(plain, "baseline", small_dataset, CPU, 2) == []


@pytest.mark.parametrize(("axes", "mixes"), [("", True), ("dim=(1, 2), keepdim=True", False)])
@pytest.mark.parametrize("with_module", [False, True])
def test_a_loss_over_all_replicas_is_refused(
    small_study, small_dataset, tmp_path, axes, mixes, with_module
):
    body = f"losses = entropy(logits, targets); return losses / losses.detach().mean({axes})"
    own = {"training.loss.name": "ideas.py:mine"}
    if with_module:
        own |= {"model.modules.mlp": "ideas.py:Own"}
    (tmp_path / "ideas.py").write_text(HEAD + MODULE + LOSS + body)
    study = small_study(own | {"model.n_layer": 1})
    if mixes:
        with refused("own_code", match=r"ideas.py:mine\).*mixes replicas"):
            check_arm(study, "baseline", small_dataset, CPU, 2)
    else:
        assert check_arm(study, "baseline", small_dataset, CPU, 2) == []


@pytest.mark.parametrize(("body", "words"), LOSSES.values(), ids=LOSSES)
def test_impossible_losses_are_named(says, body, words):
    code = f'@loss("mine")\ndef mine(logits, targets, options):\n    {body}\n'
    refusal = says("training.loss.name", code)
    assert re.search(words, refusal), refusal
    assert "\n" not in refusal


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("torch.zeros(len(step.tokens), dtype=torch.complex64)", "real numbers"),
        (
            'step.weights["blocks.0.mlp.up.weight"].mean().expand(len(step.tokens))',
            r"other bits \(measured\).*ideas.py:mine.*mixes replicas",
        ),
    ],
)
def test_impossible_probes_are_named(says, body, words):
    refusal = says("probes.own", f'@probe("mine", unit="1")\ndef mine(step):\n    return {body}\n')
    assert re.search(words, refusal), refusal
