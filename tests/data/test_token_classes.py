"""Token classes: characters of any script, and BPE tokens by their decoded text."""

from __future__ import annotations

import numpy as np
import pytest

from paribus.engine.data import TOKEN_CLASSES, CharacterTokenizer, token_classes


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a", "alphabetic"),
        ("ß", "alphabetic"),
        ("語", "alphabetic"),
        ("7", "numeric"),
        ("½", "numeric"),
        (".", "punctuation"),
        ("€", "punctuation"),
        ("_", "punctuation"),
        ("\n", "whitespace"),
        ("\u00a0", "whitespace"),
        (" the", "alphabetic"),
        (" 42", "numeric"),
        ("4th", "alphabetic"),
        (" ,", "punctuation"),
        ("\n\n  ", "whitespace"),
        ("", "punctuation"),
        ("\ufffd", "punctuation"),
    ],
)
def test_the_class_of_a_text(text: str, expected: str) -> None:
    assert TOKEN_CLASSES[token_classes([text], None)[0]] == expected


def test_the_end_of_document_is_a_class_of_its_own_whatever_its_text() -> None:
    tokenizer = CharacterTokenizer.of(["a 1!", "b"])
    classes = token_classes(tokenizer.vocabulary, tokenizer.end_of_document)
    assert [TOKEN_CLASSES[c] for c in classes] == [
        "whitespace",
        "punctuation",
        "numeric",
        "alphabetic",
        "alphabetic",
        "end-of-document",
    ]
    assert classes.dtype == np.int64
