"""A curriculum: documents by their key, gone through once in a run of any length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from paribus.engine.data import batch, load_dataset, source
from paribus.engine.data.curricula import all_keys
from paribus.engine.data.order import Windows
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.study import parse_study

from ..conftest import SMALL

IDEAS = """
from paribus.engine.data.curricula import curriculum_key

@curriculum_key("vowels")
def vowels(text):
    return sum(text.count(c) for c in "aeiou")

def plain(text):
    return -len(text)

def wrong(text):
    return float("nan")

def failing(text):
    return 1 / 0

asked = []

def fickle(text):
    asked.append(text)
    return len(asked)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    (tmp_path / "all").mkdir()
    for i in range(30):
        words = rng.choice(["a", "bb", "ccc", "de"], size=int(rng.integers(5, 60)))
        (tmp_path / "all" / f"{i:02}").write_text(" ".join(words), encoding="utf-8")
    (tmp_path / "ideas.py").write_text(IDEAS)
    return tmp_path


def data(key: str = "document_length", **keys: object) -> Data:
    given = {"corpus": "text", "path": "all", "seq_len": 8, "order": "curriculum"}
    return Data(**(given | {"curriculum": key} | keys))


@pytest.mark.parametrize("key", [*all_keys(), "ideas.py:vowels", "ideas.py:plain"])
def test_documents_are_sorted_and_none_is_lost(
    key: str, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = load_dataset(data(key, order="epoch", curriculum=None), folder)
    found = load_dataset(data(key), folder)
    end = "<|endofdocument|>"
    # The split cuts the last one, which therefore has no end and stays where it is.
    before, after = (d.tokenizer.decode(d.train[:]).split(end) for d in (plain, found))
    assert sorted(before) == sorted(after) and before != after
    assert before[-1] == after[-1]
    if key == "document_length":
        lengths = [len(text) for text in after[:-1]]
        assert lengths == sorted(lengths)
    if key == "ideas.py:plain":
        assert len(after[0]) == max(map(len, before[:-1]))
    assert found.digests["validation"] == plain.digests["validation"]
    assert found.digests["train"] != plain.digests["train"]

    monkeypatch.setenv("PARIBUS_CACHE", str(folder / ".cache"))
    monkeypatch.setattr(source, "SMALL_BYTES", 0)
    shards = load_dataset(data(key), folder)
    assert not isinstance(shards.train, np.ndarray)
    assert shards.digests == found.digests
    for t in range(5):
        drawn = [batch(d.train, 1, t, 4, 8, d.windows, 5) for d in (shards, found)]
        assert drawn[0].tobytes() == drawn[1].tobytes()


@pytest.mark.parametrize(("n", "run"), [(1000, 10), (1000, 125), (1000, 400), (7, 50)])
def test_a_run_of_any_length_goes_through_all_of_it_once(n: int, run: int) -> None:
    windows, B = Windows(n * 8 + 1, 8, "curriculum"), 8
    assert len(windows) == n
    numbers = np.stack([windows.starts(1, t, B, run) // 8 for t in range(run)]).ravel()
    assert (np.diff(numbers) >= 0).all()
    # Item i is of the i-th of run x B equal stretches.
    lowest = np.arange(run * B) * n / (run * B)
    assert (numbers >= np.floor(lowest)).all()
    assert (numbers <= np.floor(lowest + n / (run * B))).all()
    assert numbers.min() <= n / (run * B) and numbers.max() >= n - 1 - n / (run * B)
    counts = np.bincount(numbers, minlength=n)
    assert counts.max() <= np.ceil(run * B / n) + 1
    # Any batch is had without those before it, and seeds differ.
    assert (windows.starts(1, 3, B, run) // 8 == numbers[3 * B : 4 * B]).all()
    if run * B < n:
        assert (windows.starts(2, 3, B, run) // 8 != numbers[3 * B : 4 * B]).any()
    assert windows.starts(1, run + 5, B, run).max() <= (n - 1) * 8
    with pytest.raises(ValueError, match="as long as its run"):
        windows.starts(1, 0, B)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (
            {"key": "document_lenght"},
            "no curriculum key 'document_lenght': did you mean 'document_length'",
        ),
        ({"path": "all/00"}, "sorts documents, and the text is a single one"),
        ({"key": "ideas.py:missing"}, "no curriculum key of that name"),
        ({"key": "ideas.py:wrong"}, "gives nan for a document of"),
        ({"key": "ideas.py:failing"}, "fails: ZeroDivisionError"),
        ({"key": "ideas.py:fickle"}, "asked again"),
    ],
)
def test_a_curriculum_that_cannot_be_is_refused(
    keys: dict[str, str], message: str, folder: Path
) -> None:
    with pytest.raises(ParibusError, match=message):
        load_dataset(data(**keys), folder)


def test_an_own_key_is_code_that_is_named_and_gives_no_numbers(folder: Path) -> None:
    table = SMALL | {"data": data("ideas.py:vowels").model_dump()}
    setting = parse_study(table, folder=folder).setting("baseline")
    assert setting.own_named["data.curriculum"] == "ideas.py:vowels"
    assert setting.own_parts == ()


@pytest.mark.parametrize("name", all_keys())
def test_keys_say_what_they_are_and_take_any_text(name: str) -> None:
    key = all_keys()[name]
    assert key.about
    for text in ("a", "é" * 1000, "\n", "\ud800"):
        assert np.isfinite(key.of(text)) and key.of(text) == key.of(text)
