"""Whatever is chosen by name says, of a name that is none, the nearest and where they are."""

from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.decision import find_rule
from paribus.engine.data.corpora import find_corpus
from paribus.engine.model.parts import find_part
from paribus.engine.setting import Data
from paribus.engine.tasks.generators import find_tasks
from paribus.engine.training.optimizers import find_optimizer
from paribus.study import Study

from ..tools import refused

HERE = Path(__file__).parent


CHOICES: dict[str, tuple[str, Callable[[Study, str], object]]] = {
    "rule 'equivalance'": (
        "equivalence",
        lambda study, name: find_rule(
            study.model_copy(update={"decision": study.decision.model_copy(update={"rule": name})})
        ),
    ),
    "corpus 'shakespear'": (
        "shakespeare",
        lambda _, name: find_corpus(Data(corpus=name), HERE),
    ),
    "task 'typoo'": ("typo", lambda _, name: find_tasks([name])),
    "norm 'layer_norm'": (
        "layernorm",
        lambda _, name: find_part("norms", name, "model.norm.kind"),
    ),
    "optimizer 'adam'": (
        "adamw",
        lambda _, name: find_optimizer(name, "training.optimizer.name", HERE),
    ),
}


@pytest.mark.parametrize("wrong", CHOICES)
def test_unknown_names_corrected(small_study, wrong):
    right, find = CHOICES[wrong]
    with refused("unknown") as told:
        find(small_study(), wrong.split("'")[1])
    assert f"{wrong}; did you" in str(told.value) and f"'{right}'" in str(told.value)
    assert " custom " in str(told.value)
