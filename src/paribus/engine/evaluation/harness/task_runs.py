"""Evaluation of models on tasks, with a record of every answer.

The harness builds prompts, requests log-likelihoods and scores answers. Its standard errors are
ignored, because the study's statistics pair arms by item.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib import metadata
from itertools import chain
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
import pyarrow as pa

from paribus.engine.evaluation.causality import seeded
from paribus.engine.evaluation.harness.outcome import ITEMS, TaskResults
from paribus.engine.tasks import Suite, configuration
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from torch import nn

    from paribus.engine.data import Tokenizer

# The harness's own seed of solved examples, so that anybody's lm_eval draws the same ones.
EXAMPLES_SEED = 1234

Pairs = list[tuple[str, int]]


class Asked(NamedTuple):
    """Tasks to run on a model.

    Attributes:
        tasks: `lm_eval` task objects, keyed by name.
        fits: maps (task, shots) to whether the task can run with that many few-shot examples.
        pins: maps names of tasks to the versions and digests to record.
        unknown: how to handle items with characters unknown to the tokenizer: "skip" the item, or
            "replace" these characters by a known one.
    """

    tasks: dict[str, Any]
    fits: Callable[[str, int], bool]
    pins: Callable[[Iterable[str]], dict[str, Any]]
    unknown: Literal["skip", "replace"]


def find_offered(asked: Asked, shots: Sequence[int]) -> Pairs:
    """Return the (task, shots) pairs that can run, or raise ParibusError if no pair can run."""
    pairs = [(name, n) for n in dict.fromkeys(shots) for name in asked.tasks]
    offered = [pair for pair in pairs if asked.fits(*pair)]
    if not offered:
        raise ParibusError(
            f"none of the tasks {', '.join(asked.tasks)} can run with {list(shots)} few-shot "
            "examples, because their data or the context window is too small; use fewer examples, "
            "such as 0"
        )
    return offered


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Suppress log messages and stderr inside the context, and restore global generators on exit.

    The harness and `datasets` print progress bars and advice.
    """
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    # tqdm looks up sys.stderr when a bar begins.
    with seeded(0), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        finally:
            logging.disable(disabled)


@undisturbed()
def run_tasks(
    model: nn.Module,
    tokenizer: Tokenizer,
    seq_len: int,
    asked: Asked,
    shots: Sequence[int] = (0,),
    n_items: int | None = None,
) -> TaskResults:
    """Evaluate a model on tasks, with each supported number of few-shot examples.

    Restores the global generators of Python, NumPy and PyTorch.

    Args:
        model: model to evaluate.
        tokenizer: tokenizer that the model was trained with.
        seq_len: the model's context length, in tokens.
        asked: tasks to run.
        shots: numbers of few-shot examples.
        n_items: number of items per task, taken from the start; None means all.
    """
    from lm_eval.evaluator import evaluate

    from paribus.engine.evaluation.harness.adapter import ParibusLM

    offered = find_offered(asked, shots)
    rows: list[dict[str, Any]] = []
    for n_shots in dict.fromkeys(n for _, n in offered):
        chosen = {name: asked.tasks[name] for name, n in offered if n == n_shots}
        for task in chosen.values():
            task.set_config("num_fewshot", n_shots)
            task.set_fewshot_seed(EXAMPLES_SEED)
        lm = ParibusLM(model, tokenizer, seq_len)
        results: Any = evaluate(lm, {"tasks": chosen}, limit=n_items, bootstrap_iters=0)
        for name, task in chosen.items():
            for sample in results["samples"][name]:
                text = "".join(chain.from_iterable(sample["arguments"]))
                if asked.unknown == "skip" and tokenizer.unknown_in(text):
                    continue
                row = item_row(sample, find_answer(task, sample))
                rows.append({"task": name, "shots": n_shots} | row)
    pins = asked.pins(dict.fromkeys(name for name, _ in offered))
    pins |= {"package": "lm_eval", "version": metadata.version("lm_eval")}
    return TaskResults(pa.Table.from_pylist(rows, schema=ITEMS), pins)


def find_answer(task: Any, sample: dict[str, Any]) -> int:
    """Return the index of the correct choice, or 0 for an item without choices."""
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0
    # Where choices are contexts (WinoGrande), the harness keeps the answer as the "text".
    right = task.doc_to_text(sample["doc"]) if task.multiple_input else sample["target"]
    return task.doc_to_choice(sample["doc"]).index(right) if isinstance(right, str) else right


def item_row(sample: dict[str, Any], answer: int) -> dict[str, Any]:
    """Convert a sample logged by the harness to a row of ITEMS, without `task` and `shots`.

    `answer` is the index of the correct choice, or 0 for an item without choices.
    """
    loglikelihoods = np.array([float(response[0]) for response in sample["filtered_resps"]])
    finite = bool(np.isfinite(loglikelihoods).all())
    weights = np.exp(loglikelihoods - loglikelihoods.max())
    predicted, probabilities = int(np.argmax(loglikelihoods)), weights / weights.sum()
    if len(loglikelihoods) == 1:
        predicted = 0 if sample["acc"] == 1.0 else None
        probabilities = np.exp(loglikelihoods)
    prompt = json.dumps([list(arguments) for arguments in sample["arguments"]], ensure_ascii=False)
    return {
        "item": sample["doc_id"],
        "prompt_sha256": hashlib.sha256(prompt.encode()).hexdigest(),
        "answer": answer,
        "predicted": predicted,
        "correct": finite and sample["acc"] == 1.0,
        "loglikelihood": loglikelihoods.tolist(),
        "probability": probabilities.tolist(),
    }


def suite_tasks(
    suite: Suite, names: Sequence[str] | None = None, unknown: Literal["skip", "replace"] = "skip"
) -> Asked:
    """Build the `lm_eval` task objects of a suite.

    Args:
        suite: suite on disk.
        names: names of the tasks to build; None means all.
        unknown: see `Asked`.

    Raises ParibusError for an unknown name.
    """
    wanted = suite.find(names)
    with undisturbed():
        built = {name: _harness_task(suite, name) for name in wanted}
    pins = {
        "suite_sha256": suite.digest,
        "tasks": {
            name: {"version": task.version, "sha256": task.files}
            for name, task in suite.tasks.items()
        },
    }
    return Asked(built, lambda name, n: n in wanted[name].shots, lambda _: pins, unknown)


_built: dict[tuple[str, str], Any] = {}


def _harness_task(suite: Suite, name: str) -> Any:
    """Build and cache the `lm_eval` task object of a suite's task."""
    key = (suite.digest, name)
    if key not in _built:
        import datasets
        from lm_eval.api.task import ConfigurableTask

        rows = suite.rows[name].items()
        splits = {split: datasets.Dataset.from_list(of_split) for split, of_split in rows}
        keys = configuration(name, suite.tasks[name].version, suite.delimiter)
        keys |= {"task": name, "custom_dataset": lambda **_: splits}
        _built[key] = ConfigurableTask(config=keys)
    return _built[key]
