"""Text as a treatment: which data settings may differ between arms.

Arms may read other text, mixtures, orders or tokenizers, but must be evaluated on the same held-out
bytes. Settings are checked here; the bytes themselves are compared before a study is registered.
"""

from __future__ import annotations

from paribus.engine.setting.data import Data
from paribus.errors import ParibusError

# Keys of `data` that define the held-out text, and those of the text that it may be cut from.
HELD_OUT = (
    "validation_fraction",
    "validation_path",
    "validation_tokens",
    "test_fraction",
    "test_path",
)
CORPUS_KEYS = ("corpus", "path", "column", "name", "subset", "split", "revision", "deduplicate")


def require_shared_text(arm: str, ours: Data, reference: str, theirs: Data) -> None:
    """Raise ParibusError if two arms cannot share their held-out text."""
    arms = f"arms '{arm}' and '{reference}'"
    for key in HELD_OUT:
        if getattr(ours, key) != getattr(theirs, key):
            raise ParibusError(
                f"{arms} hold out other text: data.{key} is {getattr(ours, key)!r} and "
                f"{getattr(theirs, key)!r}; set it for all arms alike",
                code="incomparable",
            )
    differing = [key for key in CORPUS_KEYS if getattr(ours, key) != getattr(theirs, key)]
    cut = {"validation_path": ours.validation_path is None, "test_path": ours.test_fraction > 0}
    for key, is_cut in cut.items():
        if differing and is_cut:
            raise ParibusError(
                f"{arms} differ in data.{differing[0]}, and their held-out text is the last part "
                f"of that corpus; set data.{key} to a text that all arms share, or let arms differ "
                "in data.mixture only",
                code="incomparable",
            )
    if ours.tokenizer != theirs.tokenizer and ours.validation_tokens is not None:
        raise ParibusError(
            f"{arms} have other tokenizers, of which {ours.validation_tokens} tokens are other "
            "text; remove data.validation_tokens and hold out less text",
            code="incomparable",
        )
