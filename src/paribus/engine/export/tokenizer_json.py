"""Our tokenizer as a `tokenizer.json`, which Hugging Face programs read without our code."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HuggingFaceTokenizer

from paribus.engine.data import STAND_INS, CharacterTokenizer, Tokenizer
from paribus.engine.data.tokenizer import END_OF_DOCUMENT, BpeTokenizer


def tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """Return the content of tokenizer.json; a BPE tokenizer has one already."""
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.content
    assert isinstance(tokenizer, CharacterTokenizer)
    return fast_tokenizer(tokenizer).to_str(pretty=True).encode()


def fast_tokenizer(tokenizer: CharacterTokenizer) -> HuggingFaceTokenizer:
    """Return a tokenizer with equal ids for equal text, whose decoding restores the text.

    It is a BPE model without merges. A character outside the vocabulary becomes
    `stand_in(tokenizer)`, or is left out without one. The text of the end-of-document token is read
    as that token.
    """
    vocabulary = {text: number for number, text in enumerate(tokenizer.vocabulary)}
    fast = HuggingFaceTokenizer(
        models.BPE(vocab=vocabulary, merges=[], unk_token=stand_in(tokenizer))
    )
    fast.decoder = decoders.Fuse()  # the default puts spaces between tokens
    if tokenizer.end_of_document is not None:
        fast.add_special_tokens([AddedToken(END_OF_DOCUMENT, normalized=False)])
    return fast


def stand_in(tokenizer: CharacterTokenizer) -> str | None:
    """Return the character that replaces unknown ones, as in our tasks (`ParibusLM`), or None."""
    return next((text for text in STAND_INS if text in tokenizer.characters), None)


def tokenizer_config(tokenizer: Tokenizer, seq_len: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json.

    Only the end of a document is a special token, because decoding drops special tokens.
    """
    end = None
    if tokenizer.end_of_document is not None:
        end = tokenizer.vocabulary[tokenizer.end_of_document]
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": seq_len,
        "clean_up_tokenization_spaces": False,
        "bos_token": end,
        "eos_token": end,
        "pad_token": end,
        "unk_token": None,
    }
