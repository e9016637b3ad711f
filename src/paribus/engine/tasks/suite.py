"""The suite of a study: items drawn from held-out text, written as anybody's `lm_eval` runs them.

    lm_eval --include_path FOLDER --tasks paribus

    <task>.yaml            the harness's configuration
    <task>.jsonl           the items
    <task>.examples.jsonl  the solved examples, never scored
    items.py               reads both for the harness
    suite.json             where the items are from, what fits, digests of both

The harness resolves `data_files` of its configurations against the working folder and caches by
modification time and size. `items.py` finds its neighbours wherever the folder lies and caches
nothing, so the folder may be moved or sent. Here items alone are read: the folder may be anybody's,
and no configuration or code in it is obeyed.

Beside it, `standard.json` says which of the harness's own tasks a study asks: versions, and digests
of their data. It is written before the registration, which holds the same; every trial must meet
what it says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any

import numpy as np
from pydantic import Field, RootModel

from paribus.engine.data import Dataset
from paribus.engine.setting import Tasks
from paribus.engine.tasks.generators import find_tasks
from paribus.engine.tasks.task import NAME, HeldOut, Question, Task
from paribus.errors import ParibusError, blamed, nearest
from paribus.files import write_bytes
from paribus.results.formats import as_model, read_as, write_plain_json
from paribus.results.records import Number, Record, Table
from paribus.rng import stream
from paribus.untrusted_io import RECORD_BYTES, parse_json, read_bytes

N_ITEMS = 500
SHOTS = (0, 1, 3)
# An item shorter than this says too little to be worth asking.
LEAST_LENGTH = 24

# text -> token ids
Encode = Callable[[str], Sequence[int] | np.ndarray]
Row = dict[str, Any]  # an item: its context, its choices in the order shown, the answer's place

NOTE = """\
# Made by paribus from held-out text; runs with lm_eval >= 0.4.9:
#   lm_eval --include_path FOLDER_OF_THIS_FILE --tasks paribus
custom_dataset: !function items.load
"""

LOADER = '''\
"""Reads the items beside this file for lm_eval."""

import json
from pathlib import Path

import datasets


def load(files, **_):
    return {split: datasets.Dataset.from_list(read(name)) for split, name in files.items()}


def read(name):
    content = (Path(__file__).parent / name).read_bytes()
    return [json.loads(line) for line in content.splitlines()]
'''


class Line(Record):
    """A line of a file of items."""

    context: str
    choices: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2)]
    answer: Annotated[int, Field(ge=0)]


class WrittenTask(Record):
    """A task as `suite.json` has it.

    Attributes:
        version: of the generator.
        chance: accuracy of a guess.
        n_items: items on disk.
        shots: how many solved examples fit before every item, of SHOTS.
        files: {file name: SHA-256} of the items and of the examples.
    """

    version: int
    chance: Number
    n_items: int
    shots: Annotated[tuple[int, ...], Field(strict=False)]
    files: dict[str, str]


class Suite(Record):
    """A suite on disk whose items are the ones that were written.

    Attributes:
        folder: where it is.
        digest: SHA-256 of `suite.json`, and so of every item.
        tasks: by name.
        left_out: {task: why the text or the window does not allow it}.
        delimiter: what stands between solved examples.
        origin: seed, window and digests of the text.
    """

    folder: Path
    digest: str
    tasks: dict[Annotated[str, Field(pattern=NAME)], WrittenTask]
    left_out: dict[str, str]
    delimiter: str
    origin: Table

    def find(self, names: Sequence[str] | None = None) -> dict[str, WrittenTask]:
        """Return the tasks of these names (None: all), sorted. ParibusError for one not here."""
        for name in names or ():
            if name in self.left_out:
                raise ParibusError(
                    f"task '{name}' was left out: {self.left_out[name]}; "
                    "remove it from tasks.names",
                    code="too_few",
                )
            if name not in self.tasks:
                own = "; custom tasks go in tasks.own" if ":" in name else ""
                known = nearest(name, {*self.tasks, *self.left_out})
                raise ParibusError(f"there is no task '{name}': {known}{own}", code="unknown")
        return {name: t for name, t in self.tasks.items() if names is None or name in names}

    def rows(self, name: str) -> dict[str, list[Row]]:
        """Return the items of a task, and its examples, by the names of the harness's splits.

        Raises ParibusError where a file is missing or was changed, and where items are none.
        """
        rows: dict[str, list[Row]] = {}
        for split, file in _files(name).items():
            path = self.folder / file
            problem = (
                f"{path} is missing or not the file that suite.json was written with; restore it "
                "or write the suite again"
            )
            content = read_bytes(path, RECORD_BYTES, missing=problem)
            if _digest(content) != self.tasks[name].files.get(file):
                raise ParibusError(problem, code="changed")
            lines = [as_model(Line, parse_json(x, str(path)), path) for x in content.splitlines()]
            if any(line.answer >= len(line.choices) for line in lines):
                raise ParibusError(
                    f"{path} has an answer that is not a choice; write the suite again"
                )
            rows[split] = [line.model_dump() for line in lines]
        return rows


def write_suite(
    folder: Path,
    dataset: Dataset,
    seed: int,
    window: int,
    *,
    n_items: int = N_ITEMS,
    n_least: int | None = None,
    own: Sequence[Task] = (),
    readers: Sequence[tuple[Encode, int]] = (),
) -> Suite:
    """Draw the suite of `dataset`'s validation split, for models that see `window` tokens, and
    write it to `folder`, which has none yet; equal suites, equal bytes.

    A task has `n_items` items, or as many as the text has if these are at least `n_least`; by
    default all must be there. What the text and the window do not allow is in `left_out`. `own` are
    the user's tasks, beside those that ship; `readers` other tokenizers that the items are read
    with, and their windows. Raises ParibusError for an own one that is left out.
    """
    held_out = HeldOut.of(dataset)
    of_examples, of_items = held_out.divide()
    n_least = n_items if n_least is None else n_least
    delimiter = "\n" if any("\n" in text for text in held_out.documents) else " "
    readers = [(dataset.tokenizer.encode, window), *readers]
    tasks: dict[str, dict[str, Any]] = {}
    left_out: dict[str, str] = {}
    for task in find_tasks(own=own):
        length = min(task.length, window)
        if length < LEAST_LENGTH:
            left_out[task.name] = f"the window of {window} tokens is shorter than {LEAST_LENGTH}"
            continue
        examples = _draw(task, of_examples, held_out, length, max(SHOTS), seed, "examples")
        items = _draw(task, of_items, held_out, length, n_items, seed, "items")
        if len(items) < n_least:
            left_out[task.name] = f"the held-out text has {len(items)} of {n_least} items"
        elif len(examples) < max(SHOTS):
            left_out[task.name] = f"the held-out text has {len(examples)} of {max(SHOTS)} examples"
        elif shots := _fitting_shots(items, examples, delimiter, readers):
            tasks[task.name] = {
                "version": task.version,
                "chance": task.chance,
                "n_items": len(items),
                "shots": list(shots),
                "files": _write_task(
                    folder, task, delimiter, {"test": items, "examples": examples}
                ),
            }
        else:
            left_out[task.name] = f"its items do not fit into {window} tokens"
    for task in own:
        if task.name in left_out:
            raise ParibusError(
                f"task '{task.name}' cannot be made: {left_out[task.name]}; remove it, or "
                "use fewer items, more text or a longer window",
                code="too_few",
            )
    write_bytes(folder / "items.py", LOADER.encode())
    origin = {"seed": seed, "window": window, "n_items": n_items, "data": dataset.digests}
    record = {"origin": origin, "left_out": left_out, "delimiter": delimiter, "tasks": tasks}
    write_plain_json(folder / "suite.json", record)
    return read_suite(folder)


def _draw(
    task: Task, text: HeldOut, held_out: HeldOut, length: int, wanted: int, seed: int, purpose: str
) -> list[Row]:
    """Return at most `wanted` items of `text`, a part of `held_out`.

    They differ and have one right choice. Answers stand at every place equally often, in any first
    part of them too.
    """
    kept: dict[tuple[str, str], Question] = {}
    with blamed(f"task '{task.name}' fails"):
        for question in task.generate(text, stream(seed, "tasks", task.name, purpose), length):
            if len(kept) == wanted:
                break
            choices = (question.right, *question.wrong)
            sizes = {len(choice) for choice in choices}
            if len(choices) != task.n_choices or len(sizes) != 1 or 0 in sizes:
                raise ValueError(
                    f"a question has choices of {sorted(map(len, choices))} characters; it must have "
                    f"{task.n_choices} choices of equal length"
                )
            if len(question.context) + max(sizes) > length:
                raise ValueError(f"context and choice have more than {length} characters together")
            # Text repeats itself: a distractor may be how it goes on elsewhere.
            is_right = [held_out.contains(question.context + wrong) for wrong in question.wrong]
            if len(set(choices)) == len(choices) and not any(is_right):
                kept.setdefault((question.context, question.right), question)
    rng, places, rows = stream(seed, "tasks", task.name, purpose, "places"), list[int](), []
    for question in kept.values():
        if not places:
            places = rng.permutation(1 + len(question.wrong)).tolist()
        answer = places.pop()
        choices = [*question.wrong[:answer], question.right, *question.wrong[answer:]]
        rows.append({"context": question.context, "choices": choices, "answer": answer})
    return rows


def _fitting_shots(
    items: Sequence[Row],
    examples: Sequence[Row],
    delimiter: str,
    readers: Sequence[tuple[Encode, int]],
) -> tuple[int, ...]:
    """Return those of SHOTS with which every prompt and choice fit together, for every reader."""
    solved = [row["context"] + row["choices"][row["answer"]] + delimiter for row in examples]
    texts = [row["context"] + choice for row in items for choice in row["choices"]]
    texts.sort(key=lambda text: len(text.encode()), reverse=True)
    shots = SHOTS
    for encode, window in readers:
        longest = max(texts, key=lambda text: len(encode(text)))
        shots = tuple(n for n in shots if len(encode("".join(solved[:n]) + longest)) <= window)
    return shots


def _write_task(
    folder: Path, task: Task, delimiter: str, splits: dict[str, list[Row]]
) -> dict[str, str]:
    """Write a task's configuration, items and examples; return the digests of the latter two."""
    digests, files = {}, _files(task.name)
    for split, rows in splits.items():
        lines = [json.dumps(row, ensure_ascii=False) + "\n" for row in rows]
        content = "".join(lines).encode()
        write_bytes(folder / files[split], content)
        digests[files[split]] = _digest(content)
    keys = {"dataset_kwargs": {"files": files}}
    keys |= configuration(task.name, task.version, delimiter)
    lines = [f"{key}: {json.dumps(value)}\n" for key, value in keys.items()]  # JSON is YAML
    write_bytes(folder / f"{task.name}.yaml", (NOTE + "".join(lines)).encode())
    return digests


def read_suite(folder: Path) -> Suite:
    """Read the suite in `folder`. Raises ParibusError where an item is not one that was written."""
    path = folder / "suite.json"
    content = read_bytes(path, RECORD_BYTES, missing=f"{path} is missing; write the suite again")
    record = parse_json(content, str(path), "write the suite again")
    if isinstance(record, dict):
        record |= {"folder": folder, "digest": _digest(content)}
    suite = as_model(Suite, record, path)
    for name in suite.tasks:
        suite.rows(name)
    return suite


def _files(name: str) -> dict[str, str]:
    """Return the file of each split."""
    return {"test": f"{name}.jsonl", "examples": f"{name}.examples.jsonl"}


def configuration(name: str, version: int, delimiter: str) -> dict[str, Any]:
    """Return the harness's configuration of a task, but for what reads its items."""
    return {
        "task": f"paribus_{name}",
        "tag": "paribus",
        "test_split": "test",
        "fewshot_split": "examples",
        "fewshot_config": {"sampler": "first_n"},
        "output_type": "multiple_choice",
        "doc_to_text": "context",
        "doc_to_choice": "choices",
        "doc_to_target": "answer",
        "target_delimiter": "",
        "fewshot_delimiter": delimiter,
        "metric_list": [
            {"metric": metric, "aggregation": "mean", "higher_is_better": True}
            for metric in ("acc", "acc_norm")
        ],
        "metadata": {"version": version},
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


STANDARD_FILE = "standard.json"


class Pinned(Record):
    """A harness task: its name, questions and shots."""

    version: Number | str
    dataset: str
    documents: int
    data_sha256: str
    wording_sha256: str


def read_standard(folder: Path) -> dict[str, Pinned]:
    """Return the tasks of the harness that a study asks. Raises ParibusError for another file."""
    form = RootModel[Annotated[dict[str, Pinned], Field(min_length=1)]]
    return read_as(form, folder / STANDARD_FILE).root


def registered_tasks(folder: Path, asked: Tasks) -> dict[str, Any]:
    """Return what a registration says of its tasks, which are in `folder`; empty for none."""
    registered: dict[str, Any] = {}
    if asked.names != ():
        suite = read_suite(folder)
        names = list(suite.find(asked.names))
        registered = {"suite_sha256": suite.digest, "names": names, "left_out": suite.left_out}
    if asked.standard:
        standard = read_standard(folder)
        registered["standard"] = {name: task.model_dump() for name, task in standard.items()}
    return registered
