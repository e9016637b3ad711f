"""Own parts that cannot work, or would fail late: the check of an arm refuses them by name."""

import pytest
import torch

from paribus.engine.check import check_arm

from ..tools import refused

CPU = torch.device("cpu")

HEAD = """
import torch
import torch.nn.functional as F
from torch import nn
from paribus.engine.probes import probe
from paribus.engine.training import loss, optimizer
from paribus.extend import average

def plain(update):
    update.weights.sub_(update.rates * update.gradients)

def entropy(logits, targets):
    losses = F.cross_entropy(logits.flatten(0, -2), targets.flatten(), reduction="none")
    return losses.view(targets.shape)

class Up(nn.Module):
    residual_projections = ()
    def __init__(self, model):
        super().__init__()
        self.up = nn.Linear(model.d_model, model.d_model)
    def forward(self, x):
        return self.up(x)

"""


def optimizer(declared: str, body: str) -> tuple[str, str]:
    """The key of an optimizer, and its code."""
    return "training.optimizer.name", f"@optimizer({declared})\ndef mine(update):\n    {body}\n"


def loss(body: str) -> tuple[str, str]:
    code = f'@loss("mine")\ndef mine(logits, targets, options):\n    {body}\n'
    return "training.loss.name", code


def probe(body: str, **declared: object) -> tuple[str, str]:
    options = "".join(f", {key}={value!r}" for key, value in declared.items())
    return "probes.own", f'@probe("mine", unit="1"{options})\ndef mine(step):\n    {body}\n'


OVER_REPLICAS = "losses = entropy(logits, targets); return losses / losses.detach().mean()"
MIXES = r"custom code \(.*ideas.py:mine.*\) .*mixes replicas"
ODD = {
    "a norm over all replicas": (
        *optimizer(
            '"mine"',
            "update.weights.sub_(update.rates * update.gradients / update.gradients.norm())",
        ),
        MIXES,
    ),
    "weights that are NaN": (
        *optimizer('"mine"', "update.weights.div_(0 * update.gradients)"),
        "weights/",
    ),
    "a name that ships": (
        *optimizer('"adamw"', "plain(update)"),
        "built-in optimizer 'adamw'",
    ),
    "weights for a slot": (
        *optimizer('"mine", slots=("weights",)', "pass"),
        r"slots = \('weights',\)",
    ),
    "a loss over all replicas": (*loss(OVER_REPLICAS), MIXES),
    "a probe of complex numbers": (
        *probe("return torch.zeros(len(step.tokens), dtype=torch.complex64)"),
        "real numbers",
    ),
    "a probe over all replicas": (
        *probe('return step.weights["blocks.0.mlp.up.weight"].mean().expand(len(step.tokens))'),
        r"different results \(measured\).*ideas.py:mine.*mixes replicas",
    ),
    "an average of another shape": (
        "training.average.kind",
        '@average("mine", give=lambda at: at.kept[0][:, :1])\ndef mine(at):\n    pass\n',
        "ideas.py:mine",
    ),
}


@pytest.fixture
def check(small_study, small_dataset, tmp_path):
    def of(key: str, code: str, R: int = 2, **more: str) -> list[str]:
        (tmp_path / "ideas.py").write_text(HEAD + code)
        own = ["ideas.py:mine"] if key == "probes.own" else "ideas.py:mine"
        study = small_study({key: own, "model.n_layer": 1, **more})
        return check_arm(study, "baseline", small_dataset, CPU, R)

    return of


@pytest.mark.parametrize(("key", "code", "words"), ODD.values(), ids=ODD)
def test_what_cannot_work_is_refused_by_name(check, key, code, words):
    with refused("own_code" if "built-in" not in words else "value", match=words) as caught:
        check(key, code)
    message = str(caught.value)
    assert "\n" not in message and "arm 'baseline'" in message


@pytest.mark.parametrize(("axes", "mixes"), [("", True), ("dim=(1, 2), keepdim=True", False)])
def test_a_loss_beside_an_own_module(check, axes, mixes):
    given = *loss(OVER_REPLICAS.replace("mean()", f"mean({axes})")), 2
    if mixes:
        with refused("own_code", match=MIXES):
            check(*given, **{"model.modules.mlp": "ideas.py:Up"})
    else:
        assert check(*given, **{"model.modules.mlp": "ideas.py:Up"}) == []


def test_an_optimizer_that_changes_no_weight_is_warned_of(check):
    (warning,) = check(*optimizer('"mine"', "pass"))
    assert "'mine'" in warning
