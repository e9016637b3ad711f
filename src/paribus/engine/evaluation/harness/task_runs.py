"""The harness's task objects are run, those of a study's own suite too, and every answer is kept.

The harness builds the prompts, asks for log-likelihoods and judges the answers; nothing of that is
done over. Its standard errors are left out, as the study's own statistics pair arms by item."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import logging
import random
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from paribus.engine.evaluation.harness.outcome import ITEMS, TaskResults, harness_pins
from paribus.engine.tasks import TASK_PREFIX, WrittenSuite, copy_task, read_suite
from paribus.engine.tasks.written import WrittenTask
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from torch import nn

    from paribus.engine.data import Tokenizer
    from paribus.engine.evaluation.harness.adapter import Unknown


# The harness's own seed of solved examples, so that anybody's lm_eval draws the same ones.
EXAMPLES_SEED = 1234
# Those who talk to the terminal: the harness, and the two that fetch data for it.
LOGGERS = ("lm_eval", "datasets", "huggingface_hub")


@dataclass
class Ran:
    """All that was run so far.

    Attributes:
        rows: a row per item, of ITEMS.
        documents: {task: the records of its data set that became items}.
        uninformed: {task: for each item, the chance of equal logits to be right}.
        skipped, replaced, truncated: items (task, shots, item) that `ParibusLM` told of.
    """

    rows: list[dict[str, Any]] = field(default_factory=list)
    documents: dict[str, list[Any]] = field(default_factory=dict)
    uninformed: dict[str, list[float]] = field(default_factory=dict)
    skipped: set[tuple[str, int, int]] = field(default_factory=set)
    replaced: set[tuple[str, int, int]] = field(default_factory=set)
    truncated: set[tuple[str, int, int]] = field(default_factory=set)

    def results(
        self,
        chance: dict[str, float],
        not_offered: tuple[tuple[str, int], ...],
        pins: dict[str, Any],
    ) -> TaskResults:
        """Return it as one result; the arguments are those of the whole run."""
        return TaskResults(
            items=pa.Table.from_pylist(self.rows, schema=ITEMS),
            chance=chance,
            not_offered=not_offered,
            skipped=_by_task(self.skipped),
            replaced=_by_task(self.replaced),
            truncated=_by_task(self.truncated),
            pins=pins,
            uninformed={task: fmean(rows) for task, rows in self.uninformed.items() if rows},
        )


class SharedRequests:
    """Shares what replicas of a stack need that are asked the same, one after the other.

    That is texts as tokens, and in which batches these are read.
    """

    def __init__(self) -> None:
        self._lms: dict[Any, Any] = {}

    def lm(
        self, model: nn.Module, tokenizer: Tokenizer, seq_len: int, asked: Any, **options: Any
    ) -> Any:
        """Return `model` as the harness sees it.

        With what was prepared for another one of its structure that was `asked` the same.
        """
        from paribus.engine.evaluation.harness.adapter import ParibusLM

        key = (id(tokenizer), seq_len, asked, *options.items())
        lm = self._lms.get(key)
        if lm is None:
            lm = self._lms[key] = ParibusLM(model, tokenizer, seq_len, **options)
        lm.model = model
        return lm


def run_tasks(
    model: nn.Module,
    tokenizer: Tokenizer,
    seq_len: int,
    tasks: Mapping[str, Any],
    offered: Sequence[tuple[str, int]],
    *,
    n_items: int | None,
    unknown: Unknown,
    truncate: bool = False,
    shared: SharedRequests | None = None,
) -> Ran:
    """Run `tasks` (the harness's objects by our names) with the numbers of shots in `offered`."""
    ran, shared = Ran(), shared or SharedRequests()
    for shots in dict.fromkeys(n for _, n in offered):
        chosen = {name: tasks[name] for name, n in offered if n == shots}
        names = {task.task_name: name for name, task in chosen.items()}
        asked = (shots, n_items, *chosen)
        lm = shared.lm(model, tokenizer, seq_len, asked, unknown=unknown, truncate=truncate)
        samples = _samples(lm, chosen, shots, n_items)
        for kind in ("skipped", "replaced", "truncated"):
            told = {(names[task], shots, item) for task, item in getattr(lm, kind)}
            setattr(ran, kind, getattr(ran, kind) | told)
        for name in chosen:
            ran.documents[name] = [sample["doc"] for sample in samples[name]]
            kept = [s for s in samples[name] if (name, shots, s["doc_id"]) not in ran.skipped]
            answers = [answer(chosen[name], sample) for sample in kept]
            ran.uninformed[name] = list(map(partial(_uninformed, lm), kept, answers))
            ran.rows += [
                {"task": name, "shots": shots} | item_row(*pair)
                for pair in zip(kept, answers, strict=True)
            ]
    return ran


def _samples(
    lm: Any, tasks: Mapping[str, Any], shots: int, n_items: int | None
) -> dict[str, list[dict[str, Any]]]:
    """Return what the harness logged of every item, by our names."""
    from lm_eval.evaluator import evaluate

    for task in tasks.values():
        task.set_config("num_fewshot", shots)
        task.set_fewshot_seed(EXAMPLES_SEED)
    built = {task.task_name: task for task in tasks.values()}
    results: Any = evaluate(lm, {"tasks": built}, limit=n_items, bootstrap_iters=0)
    return {name: results["samples"][task.task_name] for name, task in tasks.items()}


def answer(task: Any, sample: dict[str, Any]) -> int:
    """Return the place of the right choice, which the harness looks up where the task says it."""
    if task.OUTPUT_TYPE != "multiple_choice":
        return 0
    # Where choices are contexts (WinoGrande), the harness keeps the answer as the "text".
    right = task.doc_to_text(sample["doc"]) if task.multiple_input else sample["target"]
    return task.doc_to_choice(sample["doc"]).index(right) if isinstance(right, str) else right


def item_row(sample: dict[str, Any], answer: int) -> dict[str, Any]:
    """Return the row of a sample that the harness logged, of ITEMS without task and shots.

    `answer` is the place of the right choice, 0 where there is one text to foretell.
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
        "correct_per_character": finite and sample.get("acc_norm", sample["acc"]) == 1.0,
        "loglikelihood": loglikelihoods.tolist(),
        "probability": probabilities.tolist(),
    }


def _uninformed(lm: Any, sample: dict[str, Any], answer: int) -> float:
    """Return how often equal logits are right: they take a choice of the fewest tokens."""
    tokens = [lm.n_tokens(*arguments) for arguments in sample["arguments"]]
    if len(tokens) == 1:
        return 0.0
    return (tokens[answer] == min(tokens)) / tokens.count(min(tokens))


def _by_task(items: set[tuple[str, int, int]]) -> dict[str, int]:
    return dict(sorted(Counter(name for name, _, _ in items).items()))


@contextlib.contextmanager
def undisturbed() -> Iterator[None]:
    """Leave the global generators as they were, and write nothing to the terminal.

    The generators are those of Python, NumPy and PyTorch; the harness writes progress and advice.
    """
    import torch

    states = random.getstate(), np.random.get_state()
    levels = {name: logging.getLogger(name).level for name in LOGGERS}
    for name in LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    # tqdm looks up sys.stderr when a bar begins.
    with torch.random.fork_rng(devices=[]), contextlib.redirect_stderr(io.StringIO()):
        try:
            yield
        finally:
            random.setstate(states[0])
            np.random.set_state(states[1])
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


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
    suite_sha256: str | None = None,
    shared: SharedRequests | None = None,
) -> TaskResults:
    """Evaluate `model` on the suite that `write_suite` wrote to `folder`.

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
        suite_sha256: the digest that the suite must have; None takes any.
        shared: what models of one structure on one device share that are asked the same in turn.

    What the harness reads and imports is written from our own templates, into a folder of its own;
    of `folder` only the items are used.

    The global random states of Python, NumPy and PyTorch are what they were afterwards. Raises
    ParibusError for an unknown task, a file that was changed, more items than there are, and where
    no task can be run.
    """
    suite = _read_suite(folder, suite_sha256)
    wanted = suite.find(tasks)
    _require_items(wanted, n_items)
    pairs = [(task.name, n) for n in shots for task in wanted]
    offered = [(task.name, n) for n in shots for task in wanted if n in task.shots]
    if not offered:
        raise ParibusError(
            f"no task of {folder} can be run with {list(shots)} solved examples; "
            "use a number that fits the window, 0 for one"
        )
    with undisturbed():
        built = {name: _harness_task(suite, name) for name, _ in offered}
        ran = run_tasks(
            model, tokenizer, seq_len, built, offered,
            n_items=n_items, unknown=unknown, shared=shared,
        )  # fmt: skip
    return ran.results(
        chance={task.name: task.chance for task in wanted},
        not_offered=tuple(pair for pair in pairs if pair not in offered),
        pins=harness_pins(suite),
    )


def _require_items(tasks: Sequence[WrittenTask], n_items: int | None) -> None:
    for task in tasks:
        if n_items is not None and not 0 < n_items <= task.n_items:
            raise ParibusError(
                f"{n_items} items of task '{task.name}' cannot be run; "
                f"it has {task.n_items}: use 1 to {task.n_items}"
            )


def _read_suite(folder: Path, digest: str | None) -> WrittenSuite:
    """Return the suite in `folder`. Raises ParibusError where it has not the stated `digest`."""
    suite = read_suite(folder)
    if digest not in (None, suite.digest):
        raise ParibusError(
            f"{folder} has digest {suite.digest[:12]}, not {str(digest)[:12]}: it was "
            "changed meanwhile; restore it"
        )
    return suite


_built: dict[tuple[str, str], Any] = {}


def _harness_task(suite: WrittenSuite, name: str) -> Any:
    """Return the harness's task object. Built once a process: the trials of a study share it."""
    key = (suite.digest, name)
    if key not in _built:
        from lm_eval.tasks import TaskManager

        with tempfile.TemporaryDirectory(prefix="paribus-") as folder:
            copy_task(suite, name, Path(folder))
            manager = TaskManager(include_path=folder, include_defaults=False)
            _built[key] = manager.load([TASK_PREFIX + name])["tasks"][TASK_PREFIX + name]
    return _built[key]
