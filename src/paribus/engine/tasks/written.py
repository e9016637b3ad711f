"""A suite on disk, as anybody's `lm_eval` runs it: `lm_eval --include_path FOLDER --tasks paribus`.

    <task>.yaml            the harness's configuration
    <task>.jsonl           the items
    <task>.examples.jsonl  the solved examples, never scored
    items.py               reads both for the harness
    suite.json             where the items are from, what fits, digests of every file

The harness resolves `data_files` of its configurations against the working folder and caches by
modification time and size. `items.py` finds its neighbours wherever the folder lies, caches nothing
and refuses a file that is not the one the configuration names, so the folder may be moved or sent.

Beside it, `standard.json` says which of the harness's own tasks a study asks: versions, and digests
of their data. It is written before the registration, which holds the same; every trial must meet
what it says.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.engine.setting import Tasks
from paribus.engine.tasks.draw import DELIMITERS, Suite, TaskItems
from paribus.engine.tasks.task import Item
from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.results.formats import read_json, write_json, write_plain_json
from paribus.untrusted_io import RECORD_BYTES, is_regular, parse_json, read_bytes

TASK_PREFIX = "paribus_"  # the harness has one name space, with thousands of tasks in it

YAML = """\
# Made by paribus from held-out text; runs with lm_eval >= 0.4.9:
#   lm_eval --include_path FOLDER_OF_THIS_FILE --tasks {prefix}{name}
task: {prefix}{name}
tag: paribus
custom_dataset: !function items.load
dataset_kwargs:
  files:
    test: {{name: {name}.jsonl, sha256: {items_digest}}}
    examples: {{name: {name}.examples.jsonl, sha256: {examples_digest}}}
test_split: test
fewshot_split: examples
fewshot_config:
  sampler: first_n
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
fewshot_delimiter: {delimiter}
metric_list:
  - {{metric: acc, aggregation: mean, higher_is_better: true}}
  - {{metric: acc_norm, aggregation: mean, higher_is_better: true}}
metadata:
  version: {version}
"""

LOADER = '''\
"""Reads the items beside this file for lm_eval; a file that was changed is refused."""

import hashlib
import json
from pathlib import Path

import datasets


def load(files, **_):
    return {split: read(**file) for split, file in files.items()}


def read(name, sha256):
    content = (Path(__file__).parent / name).read_bytes()
    if hashlib.sha256(content).hexdigest() != sha256:
        raise ValueError(f"{name} is not the file that its configuration was written with")
    return datasets.Dataset.from_list([json.loads(line) for line in content.splitlines()])
'''


@dataclass(frozen=True)
class WrittenTask:
    """A task as `suite.json` has it.

    Attributes:
        name: without TASK_PREFIX.
        version: of the generator.
        chance: accuracy of a guess.
        n_items: items on disk.
        shots: how many solved examples fit before every item.
        files: {file name: SHA-256}.
    """

    name: str
    version: int
    chance: float
    n_items: int
    shots: tuple[int, ...]
    files: dict[str, str]


@dataclass(frozen=True)
class WrittenSuite:
    """A suite on disk whose files are the ones that were written.

    Attributes:
        folder: where it is.
        tasks: by name.
        left_out: {task: why the text or the window does not allow it}.
        origin: seed, window and digests of the text.
        digest: SHA-256 of `suite.json`, and so of everything.
    """

    folder: Path
    tasks: dict[str, WrittenTask]
    left_out: dict[str, str]
    origin: dict[str, Any]
    digest: str

    def find(self, names: Sequence[str] | None = None) -> list[WrittenTask]:
        """Return the tasks of these names (None: all), sorted. ParibusError for one not here."""
        for name in names or ():
            if name in self.left_out:
                raise ParibusError(f"task '{name}' was left out: {self.left_out[name]}")
            if name not in self.tasks:
                own = "; your own goes to tasks.own" if ":" in name else ""
                known = {*self.tasks, *self.left_out}
                raise ParibusError(f"there is no task '{name}': {nearest(name, known)}{own}")
        return [task for name, task in self.tasks.items() if names is None or name in names]

    def registered(self, names: Sequence[str] | None) -> dict[str, Any]:
        """Return what the registration of a study that asks the tasks `names` says of them."""
        chosen = [task.name for task in self.find(names)]
        return {"suite_sha256": self.digest, "names": chosen, "left_out": self.left_out}


def write_suite(folder: Path, suite: Suite) -> WrittenSuite:
    """Write `suite` to `folder`, which has none yet; equal suites, equal bytes."""
    tasks = {name: _write_task(folder, made, suite.delimiter) for name, made in suite.tasks.items()}
    write_bytes(folder / "items.py", LOADER.encode())
    record = {
        "origin": suite.origin,
        "left_out": suite.left_out,
        "loader": {"items.py": _digest(LOADER.encode())},
        "tasks": tasks,
    }
    write_plain_json(folder / "suite.json", record)
    return read_suite(folder)


def read_suite(folder: Path) -> WrittenSuite:
    """Read the suite in `folder`, which may be anybody's: nothing of it is run.

    The loader and the configurations, which the harness imports and obeys, must be the ones that
    this version writes. Raises ParibusError where they are not, and where a file is missing or was
    changed.
    """
    path = folder / "suite.json"
    content = read_bytes(path, RECORD_BYTES, missing=_missing(path))
    record = parse_json(content, str(path), "write the suite again")
    try:
        tasks = {name: _described(name, about) for name, about in record["tasks"].items()}
        origin, left_out = record["origin"], record["left_out"]
        told = [*left_out.items(), *((key, "") for key in origin)]
        if not all(isinstance(word, str) for pair in told for word in pair):
            raise TypeError("left_out")
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise ParibusError(
            f"{path} does not describe a suite ({error!r}); write the suite again"
        ) from None
    suite = WrittenSuite(folder, tasks, left_out, origin, _digest(content))
    if _read(folder, "items.py") != LOADER.encode():
        raise ParibusError(
            f"{folder / 'items.py'} is not the loader that paribus writes, and would be run; "
            "restore it or write the suite again"
        )
    for task in tasks.values():
        for file, digest in task.files.items():
            _read(folder, file, digest)
        if not any(_read(folder, f"{task.name}.yaml") == yaml for yaml in _yamls(task)):
            raise ParibusError(
                f"{folder / task.name}.yaml is not the configuration that paribus writes, and "
                "may name code; restore it or write the suite again"
            )
    return suite


def copy_task(suite: WrittenSuite, name: str, folder: Path) -> None:
    """Write one task of a suite to another folder: its items, and configuration and loader anew.

    Raises ParibusError where a file is missing or was changed, and where its items are none.
    """
    task = suite.tasks[name]
    for file, digest in task.files.items():
        content = _read(suite.folder, file, digest)
        if file.endswith(".jsonl"):
            _require_items(content, suite.folder / file)
        write_bytes(folder / file, content)
    write_bytes(folder / "items.py", LOADER.encode())


def _described(name: str, about: dict[str, Any]) -> WrittenTask:
    """Return the task of suite.json. Raises ValueError or TypeError where it is none.

    Its names become those of files, so they are what a Python identifier may be.
    """
    fields: dict[str, Any] = about | {"shots": tuple(about["shots"])}
    task = WrittenTask(name=name, **fields)
    numbers = (task.version, task.n_items, *task.shots)
    if not name.isidentifier() or not all(type(number) is int for number in numbers):
        raise ValueError(name)
    if task.files.keys() != set(_files(name)) or not isinstance(task.chance, float | int):
        raise ValueError(name)
    return task


def _files(name: str) -> tuple[str, str, str]:
    return f"{name}.jsonl", f"{name}.examples.jsonl", f"{name}.yaml"


def _yamls(task: WrittenTask) -> Iterator[bytes]:
    """Yield what the configuration of a task with these items may be."""
    items, examples, _ = (task.files[file] for file in _files(task.name))
    for delimiter in DELIMITERS:
        yield _yaml(task.name, items, examples, delimiter, task.version)


def _yaml(name: str, items: str, examples: str, delimiter: str, version: int) -> bytes:
    return YAML.format(
        prefix=TASK_PREFIX,
        name=name,
        items_digest=items,
        examples_digest=examples,
        delimiter=json.dumps(delimiter),
        version=version,
    ).encode()


def _read(folder: Path, name: str, digest: str | None = None) -> bytes:
    """Return the content of a file of a suite, which must have this digest if one is given."""
    path = folder / name
    content = read_bytes(path, RECORD_BYTES, missing=_missing(path)) if is_regular(path) else None
    if content is None or digest not in (None, _digest(content)):
        raise ParibusError(_missing(path))
    return content


def _missing(path: Path) -> str:
    return (
        f"{path} is missing or not the file that suite.json was written with; "
        "restore it or write the suite again"
    )


def _require_items(content: bytes, path: Path) -> None:
    for number, line in enumerate(content.splitlines(), start=1):
        item = parse_json(line, f"{path}, line {number}")
        try:
            texts = [item["context"], *item["choices"]]
            right = type(item["answer"]) is int and 0 <= item["answer"] < len(item["choices"])
        except (KeyError, TypeError):
            right, texts = False, []
        if not right or not all(isinstance(text, str) for text in texts):
            raise ParibusError(f"{path}, line {number}, is no item; write the suite again")


def _write_task(folder: Path, made: TaskItems, delimiter: str) -> dict[str, Any]:
    name = made.task.name
    items, examples = _lines(made.items), _lines(made.examples)
    yaml = _yaml(name, _digest(items), _digest(examples), delimiter, made.task.version)
    files = dict(zip(_files(name), (items, examples, yaml), strict=True))
    for file, content in files.items():
        write_bytes(folder / file, content)
    return {
        "version": made.task.version,
        "chance": made.task.chance,
        "n_items": len(made.items),
        "shots": list(made.shots),
        "files": {file: _digest(content) for file, content in files.items()},
    }


def _lines(items: Sequence[Item]) -> bytes:
    rows = (
        {"context": item.context, "choices": item.choices, "answer": item.answer} for item in items
    )
    return "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


STANDARD_FILE = "standard.json"
# What is known of a task before it is asked.
PINNED = ("version", "dataset", "documents", "data_sha256", "wording_sha256")

Described = dict[str, dict[str, Any]]


def write_standard(folder: Path, described: Described) -> None:
    """Write what `describe_standard` says of the tasks."""
    write_json(folder / STANDARD_FILE, described)


def read_standard(folder: Path) -> Described:
    """Return what was written. Raises ParibusError where it is something else."""
    path = folder / STANDARD_FILE
    described = read_json(path)
    whole = all(isinstance(one, dict) and one.keys() == set(PINNED) for one in described.values())
    if not described or not whole:
        raise ParibusError(f"{path} does not describe the harness's tasks; restore it")
    return described


def registered_tasks(folder: Path, asked: Tasks) -> dict[str, Any]:
    """Return what a registration says of its tasks, which are in `folder`; empty for none."""
    found: dict[str, Any] = {}
    if asked.names != ():
        found |= read_suite(folder).registered(asked.names)
    if asked.standard:
        found["standard"] = read_standard(folder)
    return found
