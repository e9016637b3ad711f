"""Running tasks through the LM Evaluation Harness and keeping every item's answer.

The harness builds the prompts, asks for log-likelihoods and judges the answers; nothing of that is
done over. Its standard errors are left out, as the study's own statistics pair arms by item.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError
from paribus.evaluation.harness.outcome import ITEMS, TaskResults
from paribus.evaluation.harness.pins import harness_pins
from paribus.tasks import TASK_PREFIX, WrittenSuite, read_suite

if TYPE_CHECKING:
    from torch import nn

    from paribus.evaluation.harness.adapter import Tokenizer, Unknown


def evaluate_tasks(
    model: nn.Module,
    tokenizer: Tokenizer,
    seq_len: int,
    folder: Path,
    *,
    tasks: Sequence[str] | None = None,
    shots: Sequence[int] = (0,),
    n_items: int | None = None,
    unknown: Unknown = "skip",
) -> TaskResults:
    """`model` on the suite that `write_suite` wrote to `folder`.

    Args:
        model: tokens [B, T] -> logits [B, T, V]; left in the mode it was in.
        tokenizer: the one it was trained with.
        seq_len: tokens in its window.
        folder: the suite.
        tasks: names; None is every task of the suite.
        shots: solved examples before each item. A number that does not fit before every item of a
            task is not run for that task, and told in `not_offered`.
        n_items: the first so many items of every task; None is all.
        unknown: what to do with characters outside the vocabulary (see `ParibusLM`).

    The global random states of Python, NumPy and PyTorch are what they were afterwards. Raises
    ParibusError for an unknown task, a file that was changed, more items than there are, and where
    no task can be run.
    """
    suite = read_suite(folder)
    wanted = suite.find(tasks)
    for task in wanted:
        if n_items is not None and not 0 < n_items <= task.n_items:
            raise ParibusError(
                f"{n_items} items of task '{task.name}' cannot be run; "
                f"it has {task.n_items}: use 1 to {task.n_items}"
            )
    pairs = [(task.name, n) for n in shots for task in wanted]
    offered = [(task.name, n) for n in shots for task in wanted if n in task.shots]
    if not offered:
        raise ParibusError(
            f"no task of {folder} can be run with {list(shots)} solved examples; "
            "use a number that fits the window, 0 for one"
        )
    rows: list[dict[str, Any]] = []
    skipped: set[tuple[str, int, int]] = set()
    replaced: set[tuple[str, int, int]] = set()
    with untouched_generators(), quiet():
        from paribus.evaluation.harness.adapter import ParibusLM

        for n in dict.fromkeys(shots):
            names = [name for name, count in offered if count == n]
            lm = ParibusLM(model, tokenizer, seq_len, unknown=unknown)
            rows += _run(lm, suite, names, n, n_items)
            skipped |= {(name, n, item) for name, item in lm.skipped}
            replaced |= {(name, n, item) for name, item in lm.replaced}
    return TaskResults(
        items=pa.Table.from_pylist(rows, schema=ITEMS),
        chance={task.name: task.chance for task in wanted},
        not_offered=tuple(pair for pair in pairs if pair not in offered),
        skipped=_by_task(skipped),
        replaced=_by_task(replaced),
        pins=harness_pins(suite),
    )


def _run(
    lm: Any, suite: WrittenSuite, names: list[str], shots: int, n_items: int | None
) -> Iterator[dict[str, Any]]:
    """A row per item of these tasks, as the harness judged it."""
    if not names:
        return
    from lm_eval.evaluator import evaluate

    built = {TASK_PREFIX + name: _harness_task(suite.folder, suite.digest, name) for name in names}
    for task in built.values():
        task.set_config("num_fewshot", shots)
    results: Any = evaluate(lm, {"tasks": built}, limit=n_items, bootstrap_iters=0)
    skipped = set(lm.skipped)
    for name in names:
        for sample in results["samples"][TASK_PREFIX + name]:
            if (TASK_PREFIX + name, sample["doc_id"]) not in skipped:
                yield {"task": name, "shots": shots} | item_row(sample)


def item_row(sample: dict[str, Any]) -> dict[str, Any]:
    """What is kept of a multiple-choice sample that the harness logged."""
    loglikelihoods = np.array([float(response[0]) for response in sample["filtered_resps"]])
    finite = bool(np.isfinite(loglikelihoods).all())
    weights = np.exp(loglikelihoods - loglikelihoods.max())
    prompt = json.dumps([list(arguments) for arguments in sample["arguments"]], ensure_ascii=False)
    return {
        "item": sample["doc_id"],
        "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
        "answer": sample["target"],
        "predicted": int(np.argmax(loglikelihoods)),
        "correct": finite and sample["acc"] == 1.0,
        "correct_per_character": finite and sample.get("acc_norm", sample["acc"]) == 1.0,
        "loglikelihood": loglikelihoods.tolist(),
        "probability": (weights / weights.sum()).tolist(),
    }


@lru_cache(maxsize=256)
def _harness_task(folder: Path, digest: str, name: str) -> Any:
    """The harness's task object. Built once a process: the trials of a study share it.

    `digest` is that of the suite, so that another suite in the same folder is built anew.
    """
    from lm_eval.tasks import TaskManager

    manager = TaskManager(include_path=str(folder), include_defaults=False)
    return manager.load([TASK_PREFIX + name])["tasks"][TASK_PREFIX + name]


def _by_task(items: set[tuple[str, int, int]]) -> dict[str, int]:
    counts = Counter(name.removeprefix(TASK_PREFIX) for name, _, _ in items)
    return dict(sorted(counts.items()))


@contextlib.contextmanager
def untouched_generators() -> Iterator[None]:
    """The global generators of Python, NumPy and PyTorch are afterwards what they were before."""
    import torch

    before = random.getstate(), np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        try:
            yield
        finally:
            random.setstate(before[0])
            np.random.set_state(before[1])


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """No progress bars and no advice: the harness writes both to the terminal."""
    logger = logging.getLogger("lm_eval")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        # tqdm looks up sys.stderr when a bar begins.
        with contextlib.redirect_stderr(io.StringIO()):
            yield
    finally:
        logger.setLevel(level)
