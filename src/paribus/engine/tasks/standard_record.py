"""Which of the harness's own tasks a study asks: versions, and digests of their data.

`standard.json` lies beside the suite. It is written before the registration, which holds the same;
every trial must meet what it says.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from paribus.engine.tasks.written import read_suite
from paribus.errors import ParibusError
from paribus.results.formats import read_json, write_json
from paribus.study import Tasks

STANDARD_FILE = "standard.json"
# What is known of a task before it is asked.
PINNED = ("version", "dataset", "documents", "data_sha256", "wording_sha256")

Described = dict[str, dict[str, Any]]


def write_standard(folder: Path, described: Described) -> None:
    """Write what `describe_standard` says of the tasks."""
    write_json(folder / STANDARD_FILE, described)


def read_standard(folder: Path) -> Described:
    """What was written. Raises ParibusError where it is something else."""
    path = folder / STANDARD_FILE
    described = read_json(path)
    whole = all(isinstance(one, dict) and one.keys() == set(PINNED) for one in described.values())
    if not described or not whole:
        raise ParibusError(f"{path} does not describe the harness's tasks; restore it")
    return described


def registered_tasks(folder: Path, asked: Tasks) -> dict[str, Any]:
    """What the registration of a study says of its tasks, which are in `folder`; empty for none."""
    found: dict[str, Any] = {}
    if asked.names != ():
        found |= read_suite(folder).registered(asked.names)
    if asked.standard:
        found["standard"] = read_standard(folder)
    return found
