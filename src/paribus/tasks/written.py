"""A suite on disk, as anybody's `lm_eval` runs it: `lm_eval --include_path FOLDER --tasks paribus`.

    <task>.yaml            the harness's configuration
    <task>.jsonl           the items
    <task>.examples.jsonl  the solved examples, never scored
    items.py               reads both for the harness
    suite.json             where the items are from, what fits, digests of every file

The harness resolves `data_files` of its configurations against the working folder and caches by
modification time and size. `items.py` finds its neighbours wherever the folder lies, caches nothing
and refuses a file that is not the one the configuration names, so the folder may be moved or sent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.foreign import RECORD_BYTES, is_regular, read_bytes
from paribus.results.files import read_json, write_json
from paribus.tasks.suite import Suite, TaskItems
from paribus.tasks.task import Item

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
    """What `suite.json` says of one task.

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
        """The tasks of these names (None: all), sorted; ParibusError for one that is not here."""
        for name in names or ():
            if name in self.left_out:
                raise ParibusError(f"task '{name}' was left out: {self.left_out[name]}")
            if name not in self.tasks:
                raise ParibusError(
                    f"task '{name}' is not in {self.folder}: {nearest(name, self.tasks)}"
                )
        return [task for name, task in self.tasks.items() if names is None or name in names]


def write_suite(folder: Path, suite: Suite) -> WrittenSuite:
    """Write `suite` to `folder`, in the place of one that is there; equal suites, equal bytes."""
    _clear(folder)
    tasks = {name: _write_task(folder, made, suite.delimiter) for name, made in suite.tasks.items()}
    write_bytes(folder / "items.py", LOADER.encode())
    record = {
        "origin": suite.origin,
        "left_out": suite.left_out,
        "loader": {"items.py": _digest(LOADER.encode())},
        "tasks": tasks,
    }
    write_json(folder / "suite.json", record)
    return read_suite(folder)


def read_suite(folder: Path) -> WrittenSuite:
    """The suite in `folder`. Raises ParibusError where a file is missing or was changed."""
    record = read_json(folder / "suite.json")
    try:
        tasks = {
            name: WrittenTask(name=name, **about | {"shots": tuple(about["shots"])})
            for name, about in record["tasks"].items()
        }
        digests = dict(record["loader"])
        for task in tasks.values():
            digests |= task.files
        origin, left_out = record["origin"], record["left_out"]
    except (KeyError, TypeError, AttributeError) as error:
        raise ParibusError(
            f"{folder / 'suite.json'} does not describe a suite ({error!r}); write the suite again"
        ) from None
    for name, digest in digests.items():
        path = folder / name
        if not is_regular(path) or _digest(read_bytes(path, RECORD_BYTES)) != digest:
            raise ParibusError(
                f"{path} is missing or not the file that suite.json was written with; "
                "restore it or write the suite again"
            )
    digest = _digest(read_bytes(folder / "suite.json", RECORD_BYTES))
    return WrittenSuite(folder, tasks, left_out, origin, digest)


def _clear(folder: Path) -> None:
    """Take away the tasks that an earlier suite names: the harness runs all that it finds."""
    with contextlib.suppress(ParibusError):
        for task in read_suite(folder).tasks.values():
            for file in task.files:
                (folder / file).unlink()


def _write_task(folder: Path, made: TaskItems, delimiter: str) -> dict[str, Any]:
    name = made.task.name
    items, examples = _lines(made.items), _lines(made.examples)
    yaml = YAML.format(
        prefix=TASK_PREFIX,
        name=name,
        items_digest=_digest(items),
        examples_digest=_digest(examples),
        delimiter=json.dumps(delimiter),
        version=made.task.version,
    ).encode()
    files = {f"{name}.jsonl": items, f"{name}.examples.jsonl": examples, f"{name}.yaml": yaml}
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
