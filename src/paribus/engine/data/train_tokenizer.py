"""Training of a byte-level BPE tokenizer, as GPT-2's was (Radford et al. 2019)."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paribus.engine.data.corpora import read_pieces
from paribus.engine.data.tokenizer import ENDS_OF_DOCUMENT
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import write_bytes


@dataclass(frozen=True)
class TrainedTokenizer:
    """A tokenizer that was made.

    Attributes:
        file: where it is.
        vocab_size: its tokens; fewer than were asked for where the text has no more to join.
        n_documents, n_bytes: what it was made from.
    """

    file: Path
    vocab_size: int
    n_documents: int
    n_bytes: int


def train_tokenizer(data: Data, folder: Path, vocab_size: int, out: Path) -> TrainedTokenizer:
    """Make a tokenizer of `vocab_size` tokens from the corpus that `data` names, in the file `out`.

    It has all 256 bytes, an end-of-document token, GPT-2's pre-tokenizer and no normalizer, so that
    no text is lost. The corpus is streamed. Raises ParibusError for a corpus that cannot be read,
    and a file that exists already.
    """
    if os.path.exists(out):
        raise ParibusError(f"{out} is there already; choose another file, or remove it")
    # Libraries that a command without a new tokenizer need not load.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    n_documents = n_bytes = 0

    def texts() -> Iterator[str]:
        nonlocal n_documents, n_bytes
        for piece in read_pieces(data, folder):
            n_bytes += len(piece.text.encode())
            n_documents += piece.is_last
            yield piece.text

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts(),
        trainers.BpeTrainer(
            vocab_size=vocab_size,
            show_progress=False,
            special_tokens=[ENDS_OF_DOCUMENT[0]],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        ),
    )
    write_bytes(out, tokenizer.to_str(pretty=True).encode())
    return TrainedTokenizer(out, tokenizer.get_vocab_size(), n_documents, n_bytes)


def train_missing(data: Data, folder: Path) -> None:
    """Train the tokenizer file that `data` names with `vocab_size`, unless it exists."""
    if data.vocab_size is None or data.tokenizer_file is None:
        return
    out = folder / data.tokenizer_file
    if out.exists():
        return
    made = train_tokenizer(data, folder, data.vocab_size, out)
    logging.getLogger("paribus").warning(
        "trained %s: %d tokens, from %d documents of %d bytes",
        *(made.file, made.vocab_size, made.n_documents, made.n_bytes),
    )
