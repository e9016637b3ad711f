"""Where a held-out text lies in its corpus, from what is registered: against the bytes."""

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paribus.engine.data import load_dataset
from paribus.engine.records import RECORDS
from paribus.engine.setting import Data
from paribus.ledger import TextPart, overlap

from ..conftest import small_text

FILE = {"corpus": "text", "path": "text.txt", "seq_len": 16, "tokenizer": "byte"}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "text.txt").write_text("Où? " + small_text() + "naïve 東京\n", encoding="utf-8")
    (tmp_path / "other.txt").write_text("where is it? " * 200)
    draws = np.random.default_rng(1).choice(list("abcdefgh .\n"), size=(30, 300))
    documents = ["".join(row) for row in draws]
    lines = [json.dumps({"text": text}) for text in [*documents, *documents[:5]]]
    (tmp_path / "docs.jsonl").write_text("\n".join(lines))
    return tmp_path


def parts(folder: Path, **keys: Any) -> dict[str, TextPart]:
    """Return the held-out parts of a study with this [data], by role."""
    data = Data(**FILE | keys)
    record = load_dataset(data, folder).record

    class Settings:
        """One arm, `a`."""

        arms = ("a",)

        def setting(self, arm: str) -> Any:
            return type("Setting", (), {"data": data})

    found = RECORDS.held_out_parts(Settings(), {"data": {"a": record}})
    return {part.role: part for part in found}


@pytest.mark.parametrize(
    "keys",
    [
        {},
        {"order": "epoch"},
        {"deduplicate": "held-out"},
        {"sources": {"more": {"path": "other.txt"}}, "mixture": {"corpus": 0.5, "more": 0.5}},
    ],
)
@pytest.mark.parametrize("test_fraction", [0.1, 0.25])
def test_places_are_of_the_bytes(keys, test_fraction, folder):
    found = parts(folder, test_fraction=test_fraction, **keys)
    text = (folder / "text.txt").read_bytes()
    for part in found.values():
        assert part.corpus == hashlib.sha256(text).hexdigest() and part.form == ""
        assert hashlib.sha256(text[part.start : part.stop]).hexdigest() == part.digest
    assert found["test"].start == found["validation"].stop
    assert not overlap(found["test"], found["validation"])


def test_a_file_of_its_own_is_its_own_corpus(folder):
    found = parts(folder, validation_path="other.txt", test_fraction=0.1)
    own = (folder / "other.txt").read_bytes()
    assert found["validation"].corpus == hashlib.sha256(own).hexdigest()
    assert (found["validation"].start, found["validation"].stop) == (0, len(own))
    text = (folder / "text.txt").read_bytes()
    assert hashlib.sha256(text[found["test"].start :]).hexdigest() == found["test"].digest
    # The same file as a corpus, of which a part is sealed.
    cut = parts(folder, path="other.txt", test_fraction=0.2)
    sealed = parts(folder, test_path="other.txt")
    assert overlap(sealed["test"], cut["test"]) and overlap(sealed["test"], cut["validation"])
    assert not overlap(sealed["test"], found["test"])


def test_a_deduplicated_corpus_has_places_of_its_own(folder):
    keys = {"corpus": "jsonl", "path": "docs.jsonl"}
    near, other = (
        parts(folder, **keys, deduplicate="exact", test_fraction=share) for share in (0.2, 0.3)
    )
    assert near["test"].form == "exact"
    assert overlap(near["test"], other["test"])
    assert not overlap(near["test"], near["validation"])
    assert not overlap(other["test"], parts(folder, test_fraction=0.3)["test"])


def test_a_place_that_nobody_recorded_is_not_claimed(folder):
    alone = {"sources": {"more": {"path": "other.txt"}}, "mixture": {"more": 1.0}}
    found, whole = (parts(folder, test_fraction=0.1, **keys) for keys in (alone, {}))
    assert found["test"].start is None and whole["test"].start is not None
    assert overlap(found["test"], whole["test"])
    assert not overlap(found["test"], found["validation"])
