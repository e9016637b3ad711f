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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, RootModel

from paribus.engine.setting import Tasks
from paribus.engine.tasks.draw import DELIMITERS, Suite
from paribus.engine.tasks.task import NAME, Item
from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.results.formats import as_model, read_as, write_plain_json
from paribus.results.records import Number, Record, Table
from paribus.untrusted_io import RECORD_BYTES, is_regular, parse_json, read_bytes

YAML = """\
# Made by paribus from held-out text; runs with lm_eval >= 0.4.9:
#   lm_eval --include_path FOLDER_OF_THIS_FILE --tasks paribus_{name}
task: paribus_{name}
tag: paribus
custom_dataset: !function items.load
dataset_kwargs:
  files:
    test: {{name: {name}.jsonl, sha256: {items}}}
    examples: {{name: {name}.examples.jsonl, sha256: {examples}}}
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


class WrittenTask(Record):
    """A task as `suite.json` has it.

    Attributes:
        version: of the generator.
        chance: accuracy of a guess.
        n_items: items on disk.
        shots: how many solved examples fit before every item.
        files: {file name: SHA-256}.
    """

    version: int
    chance: Number
    n_items: int
    shots: Annotated[tuple[int, ...], Field(strict=False)]
    files: dict[str, str]


class WrittenSuite(Record):
    """A suite on disk whose files are the ones that were written.

    Attributes:
        folder: where it is.
        digest: SHA-256 of `suite.json`, and so of everything.
        tasks: by name.
        left_out: {task: why the text or the window does not allow it}.
        origin: seed, window and digests of the text.
    """

    folder: Path
    digest: str
    tasks: dict[Annotated[str, Field(pattern=NAME)], WrittenTask]
    left_out: dict[str, str]
    origin: Table

    def find(self, names: Sequence[str] | None = None) -> dict[str, WrittenTask]:
        """Return the tasks of these names (None: all), sorted. ParibusError for one not here."""
        for name in names or ():
            if name in self.left_out:
                raise ParibusError(
                    f"task '{name}' was left out: {self.left_out[name]}", code="too_few"
                )
            if name not in self.tasks:
                own = "; your own goes to tasks.own" if ":" in name else ""
                known = nearest(name, {*self.tasks, *self.left_out})
                raise ParibusError(f"there is no task '{name}': {known}{own}", code="unknown")
        return {name: t for name, t in self.tasks.items() if names is None or name in names}

    def read_task(self, name: str) -> tuple[str, dict[str, list[dict[str, Any]]]]:
        """Return the harness's configuration of a task, and the rows of each of its splits.

        Nothing of the folder is run or obeyed, which may be anybody's. Raises ParibusError where a
        file is missing or was changed, and where items are none.
        """
        task = self.tasks[name]
        items, examples, written = (
            _read(self.folder / file, task.files.get(file)) for file in _files(name)
        )
        splits = {"test": _rows(items, name), "examples": _rows(examples, name)}
        for delimiter in DELIMITERS:
            text = _yaml(name, _digest(items), _digest(examples), delimiter, task.version)
            if text.encode() == written:
                return text, splits
        raise ParibusError(
            f"{self.folder / name}.yaml is not the configuration that paribus writes, and may "
            "name code; restore it or write the suite again",
            code="changed",
        )


class Line(Record):
    """A line of a file of items."""

    context: str
    choices: Annotated[list[Annotated[str, Field(min_length=1)]], Field(min_length=2)]
    answer: Annotated[int, Field(ge=0)]


def write_suite(folder: Path, suite: Suite) -> WrittenSuite:
    """Write `suite` to `folder`, which has none yet; equal suites, equal bytes."""
    tasks = {}
    for name, task in suite.tasks.items():
        items, examples = _lines(task.items), _lines(task.examples)
        version = task.task.version
        text = _yaml(name, _digest(items), _digest(examples), suite.delimiter, version)
        files = dict(zip(_files(name), (items, examples, text.encode()), strict=True))
        for file, content in files.items():
            write_bytes(folder / file, content)
        tasks[name] = {
            "version": version,
            "chance": task.task.chance,
            "n_items": len(task.items),
            "shots": list(task.shots),
            "files": {file: _digest(content) for file, content in files.items()},
        }
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
    """Read the suite in `folder`. Raises ParibusError where a file is not one that was written."""
    path = folder / "suite.json"
    content = _read(path)
    record = parse_json(content, str(path), "write the suite again")
    if isinstance(record, dict):
        record |= {"folder": folder, "digest": _digest(content)}
    suite = as_model(WrittenSuite, record, path)
    _read(folder / "items.py", _digest(LOADER.encode()))
    for name in suite.tasks:
        suite.read_task(name)
    return suite


def _files(name: str) -> tuple[str, str, str]:
    return f"{name}.jsonl", f"{name}.examples.jsonl", f"{name}.yaml"


def _yaml(name: str, items: str, examples: str, delimiter: str, version: int) -> str:
    """Return the configuration of a task whose files have these digests."""
    shown = json.dumps(delimiter)
    return YAML.format(name=name, items=items, examples=examples, delimiter=shown, version=version)


def _read(path: Path, *digest: str | None) -> bytes:
    """Return the content of a file of a suite, which must have the digest if one is given."""
    missing = (
        f"{path} is missing or not the file that suite.json was written with; restore it or write "
        "the suite again"
    )
    if not is_regular(path):
        raise ParibusError(missing, code="changed")
    content = read_bytes(path, RECORD_BYTES, missing=missing)
    if digest and digest != (_digest(content),):
        raise ParibusError(missing, code="changed")
    return content


def _rows(content: bytes, name: str) -> list[dict[str, Any]]:
    rows = []
    for number, line in enumerate(content.splitlines(), start=1):
        where = f"task '{name}', item {number}"
        row = as_model(Line, parse_json(line, where), Path(where))
        if row.answer >= len(row.choices):
            raise ParibusError(f"{where} has no choice {row.answer}; write the suite again")
        rows.append(row.model_dump())
    return rows


def _lines(items: Sequence[Item]) -> bytes:
    rows = [json.dumps(asdict(item), ensure_ascii=False) + "\n" for item in items]
    return "".join(rows).encode()


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
