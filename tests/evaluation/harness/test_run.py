"""Whole evaluations: the harness judges, every item is kept, known models get known scores."""

import math
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from paribus.engine.evaluation.harness.outcome import (
    ITEMS,
    TaskResults,
    brier_score,
    calibration_error,
)

from ...tools import refused
from .conftest import evaluate_tasks

SEQ_LEN = 128


def test_uniform_models_guess(uniform, dataset, suite):
    results = evaluate_tasks(
        uniform, dataset.tokenizer, SEQ_LEN, suite, shots=(0, 1, 3), n_items=24
    )
    for cell in results.cells:
        k = round(1 / cell["chance"])
        assert cell["accuracy"] == cell["chance"]
        assert cell["brier_score"] == pytest.approx((1 - 1 / k) ** 2 + (k - 1) / k**2)
        assert cell["calibration_error"] == pytest.approx(0, abs=1e-12)
    for row in results.items.to_pylist():
        assert row["probability"] == [1 / len(row["probability"])] * len(row["probability"])


def test_anybodys_lm_eval_gives_the_same_items(make_model, dataset, suite):
    from lm_eval import simple_evaluate
    from lm_eval.tasks import TaskManager

    from paribus.engine.evaluation.harness.adapter import ParibusLM
    from paribus.engine.evaluation.harness.task_runs import item_row

    model, shots = make_model(dataset.vocab_size), 3
    names = [name for name, task in suite.tasks.items() if shots in task.shots]
    theirs: Any = simple_evaluate(
        model=ParibusLM(model, dataset.tokenizer, SEQ_LEN),
        tasks=[f"paribus_{name}" for name in names],
        task_manager=TaskManager(include_path=str(suite.folder), include_defaults=False),
        num_fewshot=shots,
        limit=4,
        bootstrap_iters=0,
    )
    ours = evaluate_tasks(
        model, dataset.tokenizer, SEQ_LEN, suite, tasks=names, shots=[shots], n_items=4
    )
    assert ours.items.to_pylist() == [
        {"task": name, "shots": shots} | item_row(sample, sample["target"])
        for name in names
        for sample in theirs["samples"][f"paribus_{name}"]
    ]
    for cell in ours.cells:
        assert cell["accuracy"] == theirs["results"][f"paribus_{cell['task']}"]["acc,none"]


def test_long_items_are_told(uniform, dataset, suite):
    run = lambda **options: evaluate_tasks(  # noqa: E731
        uniform, dataset.tokenizer, SEQ_LEN, suite, n_items=4, **options
    )
    results = run(tasks=["continuation", "typo"], shots=(0, 3))
    assert [(c["task"], c["shots"]) for c in results.cells] == [
        ("continuation", 0),
        ("typo", 0),
        ("typo", 3),
    ]
    with refused("value"):
        run(tasks=["continuation"], shots=(3,))


def test_unknown_characters(uniform, dataset, suite):
    class Without:
        """The tokenizer of a text that had no letter v."""

        end_of_document = dataset.tokenizer.end_of_document
        decode = dataset.tokenizer.decode

        encode = dataset.tokenizer.encode

        def unknown_in(self, text: str) -> set[str]:
            return set(text) & {"v"}

    results = evaluate_tasks(
        uniform, Without(), SEQ_LEN, suite, tasks=["typo"], shots=(0,),
        n_items=24,
    )  # fmt: skip
    assert 0 < len(results.items) < 24
    replaced = evaluate_tasks(
        uniform, Without(), SEQ_LEN, suite, tasks=["typo"], shots=(0,),
        n_items=24, unknown="replace",
    )  # fmt: skip
    assert len(replaced.items) == 24


def test_nan_answers(make_model, dataset, suite):
    model = make_model(dataset.vocab_size)
    with torch.no_grad():
        model.embedding.tokens.weight.fill_(math.nan)
    results = evaluate_tasks(
        model, dataset.tokenizer, SEQ_LEN, suite, tasks=["typo"], shots=(0,), n_items=8
    )
    assert results.cells[0]["accuracy"] == 0
    assert math.isnan(results.cells[0]["brier_score"])
    assert all(value == 0 or math.isnan(value) for value in results.headline.values())


def rows(*items: tuple[str, int, int, list[float]]) -> TaskResults:
    """Results by hand: (task, shots, answer, probabilities)."""
    table = pa.Table.from_pylist(
        [
            {
                "task": task,
                "shots": shots,
                "item": number,
                "prompt_sha256": "",
                "answer": answer,
                "predicted": int(np.argmax(p)),
                "correct": int(np.argmax(p)) == answer,
                "loglikelihood": [math.log(x) for x in p],
                "probability": p,
            }
            for number, (task, shots, answer, p) in enumerate(items)
        ],
        schema=ITEMS,
    )
    return TaskResults(table, {})


def test_macro_accuracy_counts_every_task_once():
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    four = [0.7, 0.1, 0.1, 0.1]
    results = rows(
        ("a", 0, 0, right), ("a", 0, 0, wrong), ("a", 3, 0, right), ("a", 3, 0, right),
        ("b", 0, 0, four), ("b", 0, 0, four), ("b", 0, 1, four), ("b", 0, 1, four),
    )  # fmt: skip
    macro = results.headline
    assert macro["macro_accuracy"] == pytest.approx(((0.5 + 1) / 2 + 0.5) / 2)


def test_wordings_of_a_task_count_as_one_task():
    right, wrong = [0.9, 0.1], [0.1, 0.9]
    one = rows(("a", 0, 0, right), ("b", 0, 0, wrong), ("b", 0, 0, wrong))
    table = one.items.set_column(0, "task", pa.array(["a", "b:x", "b:y"]))
    assert TaskResults(table, {}).headline["macro_accuracy"] == 0.5


def test_brier_score_and_calibration_error_by_hand():
    assert brier_score([[0.8, 0.2], [0.4, 0.6]], [0, 0]) == pytest.approx((0.08 + 0.72) / 2)
    # Confidences 0.8 and 0.6 lie in different bins: |1 - 0.8| and |0 - 0.6|, half each.
    assert calibration_error([[0.8, 0.2], [0.4, 0.6]], [0, 0]) == pytest.approx(0.4)
    # Both in (11/15, 12/15]: |1 - 1.55| / 2.
    assert calibration_error([[0.75, 0.25], [0.8, 0.2]], [0, 1]) == pytest.approx(0.275)
