"""What kind of text a token is: the classes by which diagnostics are broken down."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

TOKEN_CLASSES = ("alphabetic", "numeric", "punctuation", "whitespace", "end-of-document")


def token_classes(vocabulary: Sequence[str], end_of_document: int | None) -> np.ndarray:
    """[V] the class of every token id, as an index into TOKEN_CLASSES, int64.

    `vocabulary` is the decoded text of each id; a token of several characters (BPE) has the class
    of the first kind that it contains, in the order of TOKEN_CLASSES, so that " the" is alphabetic
    and " ," punctuation. Symbols count as punctuation, and so does U+FFFD, which is how part of a
    character reads.
    """
    classes = np.array([TOKEN_CLASSES.index(_class_of(text)) for text in vocabulary], np.int64)
    if end_of_document is not None:
        classes[end_of_document] = TOKEN_CLASSES.index("end-of-document")
    return classes


def _class_of(text: str) -> str:
    # In any script: str.isalpha and str.isnumeric follow Unicode's categories.
    if any(character.isalpha() for character in text):
        return "alphabetic"
    if any(character.isnumeric() for character in text):
        return "numeric"
    return "whitespace" if text.isspace() else "punctuation"
