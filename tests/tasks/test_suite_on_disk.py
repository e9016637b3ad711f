"""A suite on disk: equal bytes, whole or refused; and errors that say what to do."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from paribus.engine.tasks import build_suite, find_tasks, read_suite, write_suite
from paribus.errors import ParibusError

from ..tools import refused


def test_equal_suites_are_equal_bytes_wherever_they_are(suite, tmp_path):
    one, two = (write_suite(tmp_path / name, suite) for name in ("one", "two"))
    files = sorted(path.name for path in one.folder.iterdir())
    assert files == sorted(path.name for path in two.folder.iterdir())
    assert {"suite.json", "items.py", "typo.jsonl", "typo.examples.jsonl", "typo.yaml"} <= set(
        files
    )
    for name in files:
        content = (one.folder / name).read_bytes()
        assert content == (two.folder / name).read_bytes()
        assert str(tmp_path).encode() not in content
    assert one.digest == two.digest


def test_what_is_written_is_what_was_drawn(suite, tmp_path):
    written = write_suite(tmp_path, suite)
    lines = (tmp_path / "line_start.jsonl").read_text("utf-8").split("\n")[:-1]
    rows = [json.loads(line) for line in lines]
    items = suite.tasks["line_start"].items
    assert [(row["context"], tuple(row["choices"]), row["answer"]) for row in rows] == [
        (item.context, item.choices, item.answer) for item in items
    ]
    assert written.tasks["line_start"].chance == 0.25
    assert written.tasks["continuation"].shots == (0,)
    assert written.origin["data"] == suite.origin["data"]


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
    write_suite(tmp_path, replace(suite, tasks={"typo": suite.tasks["typo"]}))
    damage(tmp_path)
    with pytest.raises(ParibusError) as error:
        read_suite(tmp_path)
    assert error.value.code == code


@pytest.mark.parametrize("name", ["tipo", "ideas.py:x"])
def test_an_unknown_task_is_refused(suite, tmp_path, name):
    for find in (find_tasks, write_suite(tmp_path, suite).find):
        with refused("unknown") as error:
            find([name])
        assert error.value.code == "unknown"


def test_an_own_task_that_the_text_does_not_allow_is_refused(dataset):
    own = replace(find_tasks(["typo"])[0], name="mine")
    with refused("too_few") as error:
        build_suite(dataset, 0, 16, own=[own])
    assert error.value.code == "too_few"
