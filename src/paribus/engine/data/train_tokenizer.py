"""Training of a byte-level BPE tokenizer, as GPT-2's was (Radford et al. 2019)."""

from __future__ import annotations

import logging
from pathlib import Path

from paribus.engine.data.corpora import read_pieces
from paribus.engine.data.tokenizer import ENDS_OF_DOCUMENT
from paribus.engine.setting import Data
from paribus.files import write_bytes


def train_tokenizer(data: Data, folder: Path, vocab_size: int, out: Path) -> None:
    """Make a tokenizer of `vocab_size` tokens from the corpus that `data` names, in the file `out`.

    It has all 256 bytes, an end-of-document token, GPT-2's pre-tokenizer and no normalizer, so that
    no text is lost. The corpus is streamed. Raises ParibusError for a corpus that cannot be read.
    """
    # Libraries that a command without a new tokenizer need not load.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        (piece.text for piece in read_pieces(data, folder)),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            special_tokens=[ENDS_OF_DOCUMENT[0]],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    write_bytes(out, tokenizer.to_str(pretty=True).encode())
    logging.getLogger("paribus").warning(
        "trained %s: %d tokens, from the corpus %s", out, tokenizer.get_vocab_size(), data.corpus
    )


def train_missing(data: Data, folder: Path) -> None:
    """Train the tokenizer file that `data` names with `vocab_size`, unless it exists."""
    if data.vocab_size is not None and data.tokenizer_file is not None:
        out = folder / data.tokenizer_file
        if not out.exists():
            train_tokenizer(data, folder, data.vocab_size, out)
