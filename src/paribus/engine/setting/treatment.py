"""Text as the treatment: what arms may differ in that read other text, and what they must share.

An arm may be trained on other text, in another mixture, order or deduplication, or with another
tokenizer. What makes it comparable is the held-out text: all arms of a contrast are evaluated on
the same bytes. What a study file tells of that is checked here, before any text is read; the bytes
themselves are compared before a study is registered.
"""

from __future__ import annotations

from paribus.engine.setting.data import Data
from paribus.errors import ParibusError

HELD_OUT = (
    "validation_fraction",
    "validation_path",
    "validation_tokens",
    "test_fraction",
    "test_path",
)
"""Keys of `data` that say what is held out."""

CORPUS_KEYS = ("corpus", "path", "column", "name", "subset", "split", "revision", "deduplicate")
"""Keys of `data` that decide the text of which the last part may be held out."""


def require_shared_text(arm: str, ours: Data, reference: str, theirs: Data) -> None:
    """Raise ParibusError where two arms cannot share their held-out text."""
    for key in HELD_OUT:
        if getattr(ours, key) != getattr(theirs, key):
            raise ParibusError(
                f"arms '{arm}' and '{reference}' hold out other text: data.{key} is "
                f"{getattr(ours, key)!r} and {getattr(theirs, key)!r}; state it for all arms alike"
            )
    differing = [key for key in CORPUS_KEYS if getattr(ours, key) != getattr(theirs, key)]
    parts = {"validation_path": ours.validation_path is None, "test_path": ours.test_fraction > 0}
    for key, is_cut in parts.items():
        if differing and is_cut:
            other = ", or leave data.corpus to all and let arms set data.mixture"
            raise ParibusError(
                f"arms '{arm}' and '{reference}' differ in data.{differing[0]}, and their held-out "
                f"text is the last part of what that gives; state data.{key}, a text that all arms "
                f"share{other if differing != ['deduplicate'] else ''}"
            )
    if ours.tokenizer != theirs.tokenizer and ours.validation_tokens is not None:
        raise ParibusError(
            f"arms '{arm}' and '{reference}' have other tokenizers, of which "
            f"{ours.validation_tokens} tokens are other text; leave data.validation_tokens out, "
            "and hold out less text"
        )
