"""A suite on disk: equal bytes, whole or refused; and errors that say what to do."""

import hashlib
import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from paribus.engine.tasks import find_tasks, read_suite, write_suite

from ..tools import refused


def test_equal_suites_are_equal_bytes_wherever_they_are(suite, dataset, tmp_path):
    again, other = (
        write_suite(tmp_path / str(seed), dataset, seed, 128, n_least=80) for seed in (0, 1)
    )
    files = sorted(path.name for path in again.folder.iterdir())
    assert files == sorted(path.name for path in suite.folder.iterdir())
    assert {"suite.json", "items.py", "typo.jsonl", "typo.examples.jsonl", "typo.yaml"} <= {*files}
    for name in files:
        content = (again.folder / name).read_bytes()
        assert content == (suite.folder / name).read_bytes()
        assert str(tmp_path).encode() not in content
    assert again.digest == suite.digest != other.digest
    assert other.rows["typo"] != again.rows["typo"]
    assert again.tasks["continuation"].shots == (0,)


def reseal(folder: Path, file: str, content: bytes) -> None:
    """Another content whose digest suite.json states, as somebody with intent would leave it."""
    (folder / file).write_bytes(content)
    record = json.loads((folder / "suite.json").read_text())
    record["tasks"]["typo"]["files"][file] = hashlib.sha256(content).hexdigest()
    (folder / "suite.json").write_text(json.dumps(record))


def rename(folder: Path, name: str) -> None:
    text = (folder / "suite.json").read_text()
    (folder / "suite.json").write_text(text.replace("typo", name))


@pytest.mark.parametrize(
    ("damage", "code"),
    [
        (lambda f: (f / "typo.jsonl").write_text("{}"), "changed"),
        (lambda f: (f / "typo.examples.jsonl").unlink(), "missing"),
        (lambda f: reseal(f, "typo.jsonl", b'{"context": "a"}'), "changed"),
        (lambda f: rename(f, "../typo"), "changed"),
        (lambda f: (f / "suite.json").unlink(), "missing"),
        (lambda f: (f / "suite.json").write_text("{"), "unreadable"),
        (lambda f: (f / "suite.json").write_text("[]"), "changed"),
        (lambda f: (f / "suite.json").write_text('{"tasks": {"a": {}}}'), "changed"),
    ],
)
def test_a_damaged_suite_is_refused(suite, tmp_path, damage, code):
    folder = shutil.copytree(suite.folder, tmp_path / "suite")
    damage(folder)
    with refused(code):
        read_suite(folder)


@pytest.mark.parametrize("name", ["tipo", "ideas.py:x"])
def test_an_unknown_task_is_refused(suite, name):
    for find in (find_tasks, suite.find):
        with refused("unknown"):
            find([name])


def test_an_own_task_that_the_text_does_not_allow_is_refused(dataset, tmp_path):
    own = replace(find_tasks(["typo"])[0], name="mine")
    with refused("too_few"):
        write_suite(tmp_path, dataset, 0, 16, n_least=500, own=[own])
