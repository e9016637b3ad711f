"""The harness's own model class, on an exported folder, answers every item as our adapter does."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.engine.evaluation.harness import evaluate_tasks
from paribus.engine.tasks import WrittenSuite, build_suite, write_suite

from .conftest import WINDOW, Trained

SHOTS, N_ITEMS = 1, 12


@pytest.fixture(scope="module")
def suite(trained: Trained, tmp_path_factory: pytest.TempPathFactory) -> WrittenSuite:
    made = build_suite(trained.dataset, 0, WINDOW, n_items=N_ITEMS)
    return write_suite(tmp_path_factory.mktemp("suite"), made)


@pytest.mark.parametrize("arm", ["baseline", "layernorm"])
def test_every_item_is_answered_alike(
    arm: str,
    trained: Trained,
    exported: Callable[[str], Path],
    suite: WrittenSuite,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from lm_eval import simple_evaluate
    from lm_eval.models.huggingface import HFLM
    from lm_eval.tasks import TaskManager

    caplog.set_level(logging.ERROR, logger="lm_eval")
    names = [name for name, task in suite.tasks.items() if SHOTS in task.shots]
    assert len(names) >= 4
    theirs: Any = simple_evaluate(
        model=HFLM(pretrained=str(exported(arm)), trust_remote_code=True, device="cpu"),
        tasks=[f"paribus_{name}" for name in names],
        task_manager=TaskManager(include_path=str(suite.folder), include_defaults=False),
        num_fewshot=SHOTS,
        bootstrap_iters=0,
    )
    ours = evaluate_tasks(
        trained.model(arm),
        trained.dataset.tokenizer,
        WINDOW,
        suite.folder,
        tasks=names,
        shots=[SHOTS],
        n_items=None,
    ).items.to_pylist()
    answers = set()
    samples = [s for name in names for s in theirs["samples"][f"paribus_{name}"]]
    for our, their in zip(ours, samples, strict=True):
        got = np.array([float(response[0]) for response in their["filtered_resps"]])
        np.testing.assert_allclose(got, our["loglikelihood"], rtol=0, atol=1e-3)
        assert got.argmax() == our["predicted"]
        assert (their["acc"] == 1.0) == our["correct"]
        answers.add(our["predicted"])
    assert len(answers) > 1  # a model that always takes the first would prove little
