"""Our tokenizer as a `tokenizer.json`, which every Hugging Face program reads without our code."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, decoders, models
from tokenizers import Tokenizer as HuggingFaceTokenizer

from paribus.engine.data import STAND_INS, CharacterTokenizer, Tokenizer
from paribus.engine.data.tokenizer import END_OF_DOCUMENT, BpeTokenizer


def tokenizer_json(tokenizer: Tokenizer) -> bytes:
    """Return tokenizer.json: a BPE tokenizer's own file, or that of `fast_tokenizer`."""
    if isinstance(tokenizer, BpeTokenizer):
        return tokenizer.content
    assert isinstance(tokenizer, CharacterTokenizer)
    return fast_tokenizer(tokenizer).to_str(pretty=True).encode()


def fast_tokenizer(tokenizer: CharacterTokenizer) -> HuggingFaceTokenizer:
    """Equal ids for equal text; decoding gives the text back, white space and all.

    A BPE model without merges leaves every character a token of its own. A character outside the
    vocabulary becomes `stand_in(tokenizer)`, and is left out where that is None. The text of the
    end-of-document token is read as that token, as is usual there.
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
    """Return what an unknown character is read as, or None: as in our own tasks (`ParibusLM`)."""
    return next((text for text in STAND_INS if text in tokenizer.characters), None)


def tokenizer_config(tokenizer: Tokenizer, seq_len: int) -> dict[str, Any]:
    """Return the content of tokenizer_config.json.

    No token but the end of document is declared special: special ones are left out of decoded text.
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


def vocabulary_notes(tokenizer: Tokenizer) -> list[str]:
    """Return what a reader of the folder should mind, a sentence each."""
    if not isinstance(tokenizer, CharacterTokenizer):
        return ["The tokenizer is the byte-level BPE one that the model was trained with."]
    known, unknown = f"{len(tokenizer.characters)} characters", stand_in(tokenizer)
    fate = f"read as `{unknown}`" if unknown else "left out"
    notes = [f"The vocabulary is {known}, one token each; any other character is {fate}."]
    if tokenizer.end_of_document is None:
        start = next((c for c in "\n " if c in tokenizer.characters), None)
        hint = "" if start is None else f" give prefix_token_id={int(tokenizer.encode(start)[0])},"
        notes.append(
            "The text was one document, so no token ends one or pads: for the LM Evaluation "
            f"Harness{hint} generate in batches of one."
        )
    return notes
