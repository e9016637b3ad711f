"""Tasks run through the harness's evaluator, with a record of every answer.

The harness builds the prompts, requests log-likelihoods and judges the answers. Its standard errors
are not used, because the study's own statistics pair arms by item."""

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
        tasks: the harness's task objects, by name.
        fits: (task, shots) -> whether the task can run with that many solved examples.
        pins: names of the tasks that ran -> their versions and digests for the records.
        unknown: for items with characters unknown to the tokenizer, "skip" drops the item and
            "replace" reads stand-ins.
    """

    tasks: dict[str, Any]
    fits: Callable[[str, int], bool]
    pins: Callable[[Iterable[str]], dict[str, Any]]
    unknown: Literal["skip", "replace"]


def find_offered(asked: Asked, shots: Sequence[int]) -> Pairs:
    """Return every (task, shots) that can run. Raises ParibusError if none can."""
    pairs = [(name, n) for n in dict.fromkeys(shots) for name in asked.tasks]
    offered = [pair for pair in pairs if asked.fits(*pair)]
    if not offered:
        raise ParibusError(
            f"none of {', '.join(asked.tasks)} can run with {list(shots)} solved examples; use as "
            "few examples as the task's data and the window allow, for example 0"
        )
    return offered


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Restore the global generators after the context, and write nothing to the terminal.

    The harness and the library that loads its data write progress and advice.
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
    """Run tasks on a model, with each of the numbers of `shots` that fits.

    `n_items` limits every task to its first items; None means all. The global generators of Python,
    NumPy and PyTorch are restored.
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
    """Return the index of the right choice; a task may give it as text."""
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0
    # Where choices are contexts (WinoGrande), the harness keeps the answer as the "text".
    right = task.doc_to_text(sample["doc"]) if task.multiple_input else sample["target"]
    return task.doc_to_choice(sample["doc"]).index(right) if isinstance(right, str) else right


def item_row(sample: dict[str, Any], answer: int) -> dict[str, Any]:
    """Return the row of ITEMS for a sample that the harness logged, without task and shots.

    `answer` is the index of the right choice, 0 for an item without choices.
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
    """Return the named tasks of a suite; None means all. Raises ParibusError for an unknown
    name."""
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
    """Return the harness's task object, built once per process."""
    key = (suite.digest, name)
    if key not in _built:
        import datasets
        from lm_eval.api.task import ConfigurableTask

        rows = suite.rows(name).items()
        splits = {split: datasets.Dataset.from_list(of_split) for split, of_split in rows}
        keys = configuration(name, suite.tasks[name].version, suite.delimiter)
        keys |= {"task": name, "custom_dataset": lambda **_: splits}
        _built[key] = ConfigurableTask(config=keys)
    return _built[key]
