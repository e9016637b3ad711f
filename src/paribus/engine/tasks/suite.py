"""Task suites sampled from held-out text, stored in files that `lm_eval` can run.

    lm_eval --include_path FOLDER --tasks paribus

    <task>.yaml            the harness's configuration
    <task>.jsonl           the items
    <task>.examples.jsonl  the few-shot examples, which are never scored
    items.py               loads items and examples for the harness
    suite.json             numbers of shots that fit, and digests of items and examples

The harness resolves `data_files` of its configurations against the working directory, and caches
them by modification time and size. `items.py` loads the files next to itself without a cache, so
the folder can be moved or shared. paribus itself reads only the items; it ignores configuration and
code in the folder, which may be untrusted.

A second file, `standard.json`, lists the standard tasks of a study with versions and digests of
their data. It is written before registration, which copies its entries; every trial must match
them.
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
from paribus.results.records import Number, Record
from paribus.rng import stream
from paribus.untrusted_io import parse_json, read_bytes

N_ITEMS = 500
SHOTS = (0, 1, 3)
# An item shorter than this says too little to be worth asking.
LEAST_LENGTH = 24

# Of every task with choices, as the harness's configurations say it.
METRICS = [{"metric": "acc", "aggregation": "mean", "higher_is_better": True}]
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
    """Task item, stored as one line of a JSON Lines file."""

    context: str
    choices: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2)]
    answer: Annotated[int, Field(ge=0)]


class WrittenTask(Record):
    """Task entry in `suite.json`.

    Attributes:
        version: version of the generator.
        shots: numbers of few-shot examples, out of SHOTS, that fit into the window with every item.
        files: {file name: SHA-256} of the item file and the example file.
    """

    version: int
    shots: Annotated[tuple[int, ...], Field(strict=False)]
    files: dict[str, str]


class Suite(Record):
    """Task suite on disk, with verified items.

    Attributes:
        folder: folder of the suite.
        digest: SHA-256 of `suite.json`, which contains the digests of all items.
        tasks: tasks, keyed by name.
        left_out: {name of an excluded task: reason}.
        delimiter: text between few-shot examples.
        rows: items and few-shot examples of each task, keyed by split ("test" or "examples").
    """

    folder: Path
    digest: str
    tasks: dict[Annotated[str, Field(pattern=NAME)], WrittenTask]
    left_out: dict[str, str]
    delimiter: str
    rows: dict[str, dict[str, list[Row]]] = Field(default_factory=dict, repr=False)

    def find(self, names: Sequence[str] | None = None) -> dict[str, WrittenTask]:
        """Return the named tasks, by default all, in sorted order.

        Raises ParibusError if a task is unknown or excluded.
        """
        for name in names or ():
            if name in self.left_out:
                raise ParibusError(
                    f"task '{name}' is excluded from the suite, because {self.left_out[name]}; "
                    "remove it from tasks.names",
                    code="too_few",
                )
            if name not in self.tasks:
                own = "; custom tasks go in tasks.own" if ":" in name else ""
                known = nearest(name, {*self.tasks, *self.left_out})
                raise ParibusError(f"unknown task '{name}'; {known}{own}", code="unknown")
        return {name: t for name, t in self.tasks.items() if names is None or name in names}


def write_suite(
    folder: Path,
    dataset: Dataset,
    seed: int,
    window: int,
    n_least: int,
    own: Sequence[Task] = (),
    readers: Sequence[tuple[Encode, int]] = (),
) -> Suite:
    """Sample a task suite from the validation split, and write it to `folder`.

    Equal arguments produce identical files. Tasks for which the text or the window is too small are
    excluded and listed in `left_out`.

    Args:
        folder: folder without a suite.
        dataset: text and tokenizer.
        seed: seed for sampling items.
        window: context length of the models, in tokens.
        n_least: minimum number of items per task; the maximum is N_ITEMS.
        own: custom tasks.
        readers: (encode, window) pairs of other tokenizers whose windows items must also fit.

    Raises ParibusError if a custom task is excluded.
    """
    held_out = HeldOut.decode(dataset)
    of_examples, of_items = held_out.divide()
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
        items = _draw(task, of_items, held_out, length, N_ITEMS, seed, "items")
        if len(items) < n_least:
            left_out[task.name] = f"the held-out text has {len(items)} of {n_least} items"
        elif len(examples) < max(SHOTS):
            left_out[task.name] = f"the held-out text has {len(examples)} of {max(SHOTS)} examples"
        elif shots := _fitting_shots(items, examples, delimiter, readers):
            tasks[task.name] = {
                "version": task.version,
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
                f"custom task '{task.name}' is excluded, because {left_out[task.name]}; remove it "
                "from tasks.own, or use fewer items, more text or a longer window",
                code="too_few",
            )
    write_bytes(folder / "items.py", LOADER.encode())
    record = {"left_out": left_out, "delimiter": delimiter, "tasks": tasks}
    write_plain_json(folder / "suite.json", record)
    return read_suite(folder)


def _draw(
    task: Task, text: HeldOut, held_out: HeldOut, length: int, wanted: int, seed: int, purpose: str
) -> list[Row]:
    """Sample up to `wanted` items of a task from `text`, a subset of `held_out`.

    Items are distinct and have exactly one correct choice. Answer positions are balanced, also
    among the first items.
    """
    kept: dict[tuple[str, str], Question] = {}
    with blamed(f"task '{task.name}' failed"):
        for question in task.function(text, stream(seed, "tasks", task.name, purpose), length):
            if len(kept) == wanted:
                break
            choices = (question.right, *question.wrong)
            sizes = {len(choice) for choice in choices}
            if len(choices) != task.n_choices or len(sizes) != 1 or 0 in sizes:
                raise ValueError(
                    f"a question has choices with {sorted(map(len, choices))} characters; yield "
                    f"questions with {task.n_choices} nonempty choices of equal length"
                )
            if len(question.context) + max(sizes) > length:
                raise ValueError(
                    f"a question's context and choice exceed {length} characters; shorten them"
                )
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
    """Return the numbers of few-shot examples, out of SHOTS, that fit with every item.

    `readers` are (encode, window) pairs, with windows in tokens.
    """
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
    """Write a task's configuration, items and examples.

    Returns {file name: SHA-256} for the item file and the example file.
    """
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
    """Read the suite in `folder`, or raise ParibusError if an item was changed."""
    path = folder / "suite.json"
    content = read_bytes(path, missing=f"{path} is missing; re-create the suite")
    record = parse_json(content, str(path))
    if isinstance(record, dict):
        record |= {"folder": folder, "digest": _digest(content)}
    suite = as_model(Suite, record, path)
    rows = {name: _read_rows(suite, name) for name in suite.tasks}
    return suite.model_copy(update={"rows": rows})


def _read_rows(suite: Suite, name: str) -> dict[str, list[Row]]:
    """Return a task's items and few-shot examples, keyed by split.

    Raises ParibusError if a file is missing, was changed, or contains an invalid item.
    """
    rows: dict[str, list[Row]] = {}
    for split, file in _files(name).items():
        path = suite.folder / file
        problem = (
            f"{path} is missing or differs from its digest in suite.json; restore the file, or "
            "re-create the suite"
        )
        content = read_bytes(path, missing=problem)
        if _digest(content) != suite.tasks[name].files.get(file):
            raise ParibusError(problem, code="changed")
        lines = [as_model(Line, parse_json(x, str(path)), path) for x in content.splitlines()]
        if any(line.answer >= len(line.choices) for line in lines):
            raise ParibusError(
                f"{path} has an answer that is not the index of a choice; re-create the suite"
            )
        rows[split] = [line.model_dump() for line in lines]
    return rows


def _files(name: str) -> dict[str, str]:
    """Return the names of a task's data files, {split: file name}."""
    return {"test": f"{name}.jsonl", "examples": f"{name}.examples.jsonl"}


def configuration(name: str, version: int, delimiter: str) -> dict[str, Any]:
    """Return a task's `lm_eval` configuration, without the function that loads its items."""
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
        "metric_list": METRICS,
        "metadata": {"version": version},
    }


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


STANDARD_FILE = "standard.json"


class Pinned(Record):
    """Standard task entry in `standard.json`, with version, data set and digests."""

    version: Number | str
    dataset: str
    documents: int
    data_sha256: str
    wording_sha256: str


def read_standard(folder: Path) -> dict[str, Pinned]:
    """Read `standard.json` in `folder`, or raise ParibusError if it is invalid."""
    form = RootModel[Annotated[dict[str, Pinned], Field(min_length=1)]]
    return read_as(form, folder / STANDARD_FILE).root


def registered_tasks(folder: Path, asked: Tasks) -> dict[str, Any]:
    """Return the names and digests of the tasks in `folder`, for registration.

    Returns {} if `asked` selects no tasks.
    """
    registered: dict[str, Any] = {}
    if asked.names != ():
        suite = read_suite(folder)
        names = list(suite.find(asked.names))
        registered = {"suite_sha256": suite.digest, "names": names, "left_out": suite.left_out}
    if asked.standard:
        standard = read_standard(folder)
        registered["standard"] = {name: task.model_dump() for name, task in standard.items()}
    return registered
