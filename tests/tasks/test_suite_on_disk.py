"""A suite on disk: equal bytes, whole or refused; and errors that say what to do."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from paribus.engine.data import Dataset
from paribus.engine.tasks import Suite, build_suite, find_tasks, read_suite, write_suite
from paribus.errors import ParibusError


def test_equal_suites_are_equal_bytes_wherever_they_are(suite: Suite, tmp_path: Path) -> None:
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


def test_what_is_written_is_what_was_drawn(suite: Suite, tmp_path: Path) -> None:
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
    ("damage", "words"),
    [
        (lambda f: (f / "typo.jsonl").write_text("{}"), "typo.jsonl is missing or not the file"),
        (lambda f: (f / "typo.yaml").unlink(), "typo.yaml is missing or not the file"),
        (lambda f: (f / "items.py").write_text("import os"), "items.py is not the loader"),
        (lambda f: reseal(f, "typo.yaml", b"x: !function os.f"), "may name code"),
        (lambda f: reseal(f, "typo.yaml", b"doc_to_text: '{{ evil }}'"), "may name code"),
        (lambda f: rename(f, "../typo"), "does not describe a suite"),
        (lambda f: (f / "suite.json").unlink(), "suite.json is missing"),
        (lambda f: (f / "suite.json").write_text("{"), "suite.json is not valid JSON"),
        (lambda f: (f / "suite.json").write_text("[]"), "does not describe a suite"),
        (lambda f: (f / "suite.json").write_text('{"tasks": {"a": {}}}'), "does not describe"),
    ],
)
def test_a_damaged_suite_is_refused_in_one_line(
    dataset: Dataset, tmp_path: Path, damage: Callable[[Path], object], words: str
) -> None:
    write_suite(tmp_path, build_suite(dataset, 0, 128, names=["typo"], n_items=20))
    damage(tmp_path)
    with pytest.raises(ParibusError, match=words) as error:
        read_suite(tmp_path)
    assert "\n" not in str(error.value)


def test_an_unknown_task_is_named_with_the_nearest_one(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ParibusError, match="no task 'leter_swap': did you mean 'letter_swap'"):
        find_tasks(["leter_swap"])
    written = write_suite(tmp_path, suite)
    with pytest.raises(ParibusError, match=r"'tipo'.* did you mean 'typo'"):
        written.find(["tipo"])
    with pytest.raises(ParibusError, match=r"there is no task 'ideas.py:x': .*goes to tasks.own$"):
        written.find(["ideas.py:x"])


def test_a_named_task_that_the_text_does_not_allow_is_refused(dataset: Dataset) -> None:
    with pytest.raises(ParibusError, match=r"'typo' cannot be made: .* of 100000 items"):
        build_suite(dataset, 0, 128, names=["typo"], n_items=100_000)
    with pytest.raises(ParibusError, match="'typo' cannot be made: the window of 16 tokens"):
        build_suite(dataset, 0, 16, names=["typo"], n_items=20)
