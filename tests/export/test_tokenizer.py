"""An exported tokenizer is ours: the same ids, the same text back, and no crash on anything."""

from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from paribus.engine.data.tokenizer import END_OF_DOCUMENT

from .conftest import WINDOW, text

ODD = ["", " ", "\n", "  All  else\t\n\n equal , ?", "Über façade: «日本»", "a" * 5000, text()]


def read(folder: Path) -> Any:
    return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)


@pytest.fixture(scope="module", params=["baseline", "layernorm"])
def theirs(request, exported):
    return read(exported(request.param))


def test_ids_and_text_are_ours(trained, theirs):
    ours = trained.dataset.tokenizer
    assert len(theirs) == theirs.vocab_size == ours.vocab_size
    assert theirs.model_max_length == WINDOW
    assert theirs.convert_ids_to_tokens(range(len(theirs))) == ours.vocabulary
    for odd in ODD:
        ids = theirs(odd)["input_ids"]
        assert ids == ours.encode(odd).tolist()
        for skip in (True, False):
            assert theirs.decode(ids, skip_special_tokens=skip) == odd


def test_ends_of_documents_are_one_special_token(trained, theirs):
    end = trained.dataset.tokenizer.end_of_document
    assert (theirs.bos_token_id, theirs.eos_token_id, theirs.pad_token_id) == (end, end, end)
    ids = theirs(f"All{END_OF_DOCUMENT}equal")["input_ids"]
    assert ids.count(end) == 1
    assert theirs.decode(ids, skip_special_tokens=True) == "Allequal"
