"""The suite made from a study's own text, run through the LM Evaluation Harness."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.engine.evaluation.harness.asking import SharedRequests, run_tasks, undisturbed
from paribus.engine.evaluation.harness.outcome import TaskResults
from paribus.engine.evaluation.harness.pins import harness_pins
from paribus.engine.tasks import TASK_PREFIX, WrittenSuite, copy_task, read_suite
from paribus.engine.tasks.written import WrittenTask
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from torch import nn

    from paribus.engine.evaluation.harness.adapter import Tokenizer, Unknown


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
    """The suite in `folder`. Raises ParibusError where `digest` is stated and another one."""
    suite = read_suite(folder)
    if digest not in (None, suite.digest):
        raise ParibusError(
            f"{folder} has digest {suite.digest[:12]}, not {str(digest)[:12]}: it was "
            "changed meanwhile; restore it"
        )
    return suite


_built: dict[tuple[str, str], Any] = {}


def _harness_task(suite: WrittenSuite, name: str) -> Any:
    """The harness's task object. Built once a process: the trials of a study share it."""
    key = (suite.digest, name)
    if key not in _built:
        from lm_eval.tasks import TaskManager

        with tempfile.TemporaryDirectory(prefix="paribus-") as folder:
            copy_task(suite, name, Path(folder))
            manager = TaskManager(include_path=folder, include_defaults=False)
            _built[key] = manager.load([TASK_PREFIX + name])["tasks"][TASK_PREFIX + name]
    return _built[key]
