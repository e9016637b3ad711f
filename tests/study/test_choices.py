"""Whatever is chosen by name says, of a name that is none, the nearest and where they are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.decision import find_rule
from paribus.engine.data.corpora import find_corpus
from paribus.engine.model.parts import find_part
from paribus.engine.setting import Data
from paribus.engine.tasks.generators import find_tasks
from paribus.engine.training.losses import find_loss
from paribus.engine.training.optimizers import find_optimizer
from paribus.study import Study

from ..tools import refused

HERE = Path(__file__).parent
PACKAGE = Path(__file__).parents[2] / "src"


def of(study: Study, name: str) -> dict[str, Callable[[], object]]:
    """The choice of `name` at every site."""
    decision = study.decision.model_copy(update={"rule": name})
    loss = study.training.loss.model_copy(update={"name": name})
    return {
        "rule 'equivalance'": lambda: find_rule(study.model_copy(update={"decision": decision})),
        "corpus 'shakespear'": lambda: find_corpus(Data(corpus=name), HERE),
        "task 'typoo'": lambda: find_tasks([name]),
        "norm 'layer_norm'": lambda: find_part("norms", name, "model.norm.kind"),
        "loss 'cross-entropy'": lambda: find_loss(loss, HERE),
        "optimizer 'adam'": lambda: find_optimizer(name, "training.optimizer.name", HERE),
    }


@pytest.mark.parametrize(
    ("wrong", "right", "folder"),
    [
        ("rule 'equivalance'", "equivalence", "decision"),
        ("corpus 'shakespear'", "shakespeare", "engine/data/corpora"),
        ("task 'typoo'", "typo", "engine/tasks/generators"),
        ("norm 'layer_norm'", "layernorm", "engine/model/norms"),
        ("loss 'cross-entropy'", "cross_entropy", "engine/training/losses"),
        ("optimizer 'adam'", "adamw", "engine/training/optimizers"),
    ],
)
def test_unknown_names_corrected(small_study, wrong, right, folder):
    name = wrong.split("'")[1]
    with refused("unknown") as told:
        of(small_study(), name)[wrong]()
    assert f"{wrong}: did you" in str(told.value) and f"'{right}'" in str(told.value)
    assert f"paribus/{folder}" in str(told.value) and "; your own " in str(told.value)
    assert (PACKAGE / "paribus" / folder).exists()
