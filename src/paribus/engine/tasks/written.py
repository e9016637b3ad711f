"""A suite on disk, as anybody's `lm_eval` runs it: `lm_eval --include_path FOLDER --tasks paribus`.

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
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, RootModel

from paribus.engine.setting import Tasks
from paribus.engine.tasks.draw import Suite
from paribus.engine.tasks.task import NAME, Item
from paribus.errors import ParibusError, nearest
from paribus.files import write_bytes
from paribus.results.formats import as_model, read_as, write_plain_json
from paribus.results.records import Number, Record, Table
from paribus.untrusted_io import RECORD_BYTES, parse_json, read_bytes

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
        shots: how many solved examples fit before every item.
        files: {file name: SHA-256} of the items and of the examples.
    """

    version: int
    chance: Number
    n_items: int
    shots: Annotated[tuple[int, ...], Field(strict=False)]
    files: dict[str, str]


class WrittenSuite(Record):
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
                own = "; your own goes to tasks.own" if ":" in name else ""
                known = nearest(name, {*self.tasks, *self.left_out})
                raise ParibusError(f"there is no task '{name}': {known}{own}", code="unknown")
        return {name: t for name, t in self.tasks.items() if names is None or name in names}

    def configuration(self, name: str) -> dict[str, Any]:
        """Return the harness's configuration of a task, but for what reads its items."""
        return _configuration(name, self.tasks[name].version, self.delimiter)

    def rows(self, name: str) -> dict[str, list[dict[str, Any]]]:
        """Return the items of a task, and its examples, by the names of the harness's splits.

        Raises ParibusError where a file is missing or was changed, and where items are none.
        """
        files = self.tasks[name].files
        return {
            split: [_row(line, self.folder / file) for line in _read(self.folder, file, files)]
            for split, file in _files(name).items()
        }


def write_suite(folder: Path, suite: Suite) -> WrittenSuite:
    """Write `suite` to `folder`, which has none yet; equal suites, equal bytes."""
    tasks = {}
    for name, task in suite.tasks.items():
        contents = {"test": _lines(task.items), "examples": _lines(task.examples)}
        files = _files(name)
        for split, content in contents.items():
            write_bytes(folder / files[split], content)
        configuration = _configuration(name, task.task.version, suite.delimiter)
        keys = {"dataset_kwargs": {"files": files}} | configuration
        lines = [f"{key}: {json.dumps(value)}\n" for key, value in keys.items()]  # JSON is YAML
        write_bytes(folder / f"{name}.yaml", (NOTE + "".join(lines)).encode())
        tasks[name] = {
            "version": task.task.version,
            "chance": task.task.chance,
            "n_items": len(task.items),
            "shots": list(task.shots),
            "files": {files[split]: _digest(content) for split, content in contents.items()},
        }
    write_bytes(folder / "items.py", LOADER.encode())
    record = {"origin": suite.origin, "left_out": suite.left_out, "delimiter": suite.delimiter}
    write_plain_json(folder / "suite.json", record | {"tasks": tasks})
    return read_suite(folder)


def read_suite(folder: Path) -> WrittenSuite:
    """Read the suite in `folder`. Raises ParibusError where an item is not one that was written."""
    path = folder / "suite.json"
    content = read_bytes(path, RECORD_BYTES, missing=f"{path} is missing; write the suite again")
    record = parse_json(content, str(path), "write the suite again")
    if isinstance(record, dict):
        record |= {"folder": folder, "digest": _digest(content)}
    suite = as_model(WrittenSuite, record, path)
    for name in suite.tasks:
        suite.rows(name)
    return suite


def _files(name: str) -> dict[str, str]:
    """Return the file of each split."""
    return {"test": f"{name}.jsonl", "examples": f"{name}.examples.jsonl"}


def _configuration(name: str, version: int, delimiter: str) -> dict[str, Any]:
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


def _read(folder: Path, name: str, digests: dict[str, str]) -> list[bytes]:
    """Return the lines of a file, which must have the digest that `digests` has of it."""
    problem = (
        f"{folder / name} is missing or not the file that suite.json was written with; restore it "
        "or write the suite again"
    )
    content = read_bytes(folder / name, RECORD_BYTES, missing=problem)
    if _digest(content) != digests.get(name):
        raise ParibusError(problem, code="changed")
    return content.splitlines()


def _row(line: bytes, file: Path) -> dict[str, Any]:
    row = as_model(Line, parse_json(line, str(file)), file)
    if row.answer >= len(row.choices):
        raise ParibusError(f"{file} has no choice {row.answer}; write the suite again")
    return row.model_dump()


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
