"""A tokenizer made from a corpus: it loses nothing, and a study reads with it."""

import json

from paribus.engine.data import load_dataset
from paribus.engine.data.tokenizer import BpeTokenizer, train_tokenizer
from paribus.engine.execution.start import read_data
from paribus.engine.setting import Data
from paribus.study import parse_study

TEXT = "The quick brown fox, 12 of them, jumps over the dog.\n" * 30 + "Où ça? 東京\n"


def test_a_trained_tokenizer_has_its_size_and_loses_nothing(tmp_path):
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"body": TEXT}) + "\n" for _ in range(3)))
    data = Data(corpus="jsonl", path="a.jsonl", column="body", seq_len=16, tokenizer="t.json")
    for name in ("t.json", "u.json"):
        train_tokenizer(data, tmp_path, 300, tmp_path / name)
    assert (tmp_path / "t.json").read_bytes() == (tmp_path / "u.json").read_bytes()
    read = BpeTokenizer.read(tmp_path / "t.json")
    assert read.vocab_size == 300
    assert read.decode(read.encode(TEXT + "never seen: ñ 🦊")) == TEXT + "never seen: ñ 🦊"
    assert load_dataset(data, tmp_path).n_documents == 3


def test_the_study_that_names_it_trains_it(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    data = {"corpus": "text", "path": "text.txt", "seq_len": 16, "vocab_size": 280}
    table = {
        "name": "own-tokens",
        "seeds": [1],
        "data": data | {"tokenizer": "t.json"},
        "training": {"iterations": 30},
        "arms": {"baseline": {}, "small": {"set": {"data.vocab_size": 270}}},
    }
    table["arms"]["small"]["set"]["data.tokenizer"] = "u.json"
    study = parse_study(table, folder=tmp_path)
    datasets = read_data(study)
    sizes = [datasets[study.setting(arm).data].vocab_size for arm in study.arms]
    assert sizes == [280, 270]
    before = (tmp_path / "t.json").read_bytes()
    read_data(study)
    assert (tmp_path / "t.json").read_bytes() == before
    assert sorted(path.suffix for path in tmp_path.iterdir()) == [".json", ".json", ".txt"]
