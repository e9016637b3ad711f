"""A tokenizer made from a corpus: it loses nothing, and a study reads with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paribus.cli import main
from paribus.engine.data import load_dataset
from paribus.engine.data.tokenizer import BpeTokenizer
from paribus.engine.data.train_tokenizer import data_of, train_tokenizer
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.study import load_study
from paribus.study.custom_code import own_digests

TEXT = "The quick brown fox, 12 of them, jumps over the dog.\n" * 30 + "Où ça? 東京\n"


def test_it_has_the_size_and_loses_nothing(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": TEXT}) + "\n" for _ in range(3)))
    data = Data(corpus="jsonl", path="a.jsonl", column="body", seq_len=16, tokenizer="t.json")
    made = train_tokenizer(data, tmp_path, 300, tmp_path / "t.json")
    assert (made.vocab_size, made.n_documents) == (300, 3)
    assert made.n_bytes == 3 * len(TEXT.encode())
    read = BpeTokenizer.read(tmp_path / "t.json")
    assert read.vocab_size == 300
    assert read.decode(read.encode(TEXT + "never seen: ñ 🦊")) == TEXT + "never seen: ñ 🦊"
    assert load_dataset(data, tmp_path).n_documents == 3
    again = train_tokenizer(data, tmp_path, 300, tmp_path / "u.json")
    assert again.file.read_bytes() == made.file.read_bytes()


def test_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "text.txt").write_text(TEXT)
    out = tmp_path / "t.json"
    command = ["tokenizer", "train", str(tmp_path / "text.txt"), str(out), "--vocab-size", "280"]
    assert main(command) == 0
    assert "280 tokens, from 1 documents of" in capsys.readouterr().out
    named = tmp_path / "a[b].json"  # brackets are no markup
    assert main([*command[:3], str(named), *command[4:]]) == 0
    assert f"data.tokenizer = '{named}'" in capsys.readouterr().out.replace("\n", "")
    named.unlink()
    before = out.read_bytes()
    for bad, message in (
        (command, "is there already; choose another file"),
        ([*command[:3], str(tmp_path / "v.json"), "--vocab-size", "256"], "at least 257"),
        (["tokenizer", "train", "pydocs", str(tmp_path / "v"), "--vocab-size", "300"], "'pydoc'"),
    ):
        assert main(bad) == 2
        assert message in capsys.readouterr().err
    assert out.read_bytes() == before
    assert sorted(p.name for p in tmp_path.iterdir()) == ["t.json", "text.txt"]


def test_a_path_is_read_by_its_ending(tmp_path: Path) -> None:
    for name in ("a.jsonl", "b.parquet", "c.txt", "d.jsonl.gz"):
        (tmp_path / name).write_text("x")
    kinds = [data_of(str(path)).corpus for path in sorted(tmp_path.iterdir())]
    assert kinds == ["jsonl", "parquet", "text", "jsonl"]
    (tmp_path / ".DS_Store").write_text("not a text of anybody's")
    assert data_of(str(tmp_path)).corpus == "jsonl"
    assert data_of("pydoc").path is None


def test_half_a_pair_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": "a \\ud800"}\n')
    with pytest.raises(ParibusError, match="half of a pair and no text"):
        train_tokenizer(Data(corpus="jsonl", path="a.jsonl"), tmp_path, 300, tmp_path / "t.json")
    assert not (tmp_path / "t.json").exists()


def test_the_source_of_an_own_corpus_is_recorded(tmp_path: Path) -> None:
    (tmp_path / "ideas.py").write_text("def mine(data, folder):\n    return ['a']\n")
    setting = load_study("quickstart", {"data.corpus": "ideas.py:mine"}).setting("baseline")
    assert own_digests(setting, tmp_path)["data.corpus"].keys() == {"ideas.py"}
