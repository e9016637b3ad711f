"""Token classes: characters of any script, and BPE tokens by their decoded text."""

import pytest

from paribus.engine.data import TOKEN_CLASSES, token_classes


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
def test_the_class_of_a_text(text, expected):
    assert TOKEN_CLASSES[token_classes([text], None)[0]] == expected
