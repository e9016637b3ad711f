"""A byte-level BPE tokenizer made from a corpus, as GPT-2's was (Radford et al. 2019)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from paribus.engine.data.corpora import read_pieces
from paribus.engine.data.reading_progress import note
from paribus.engine.data.tokenizer import ENDS_OF_DOCUMENT
from paribus.engine.setting import Data
from paribus.errors import ParibusError
from paribus.files import write_bytes
from paribus.untrusted_io import files_below

LEAST_TOKENS = 257  # the bytes, and the end of a document
MOST_TOKENS = 2**20


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
    no text is lost. The corpus is streamed. Raises ParibusError for a size that cannot be, a corpus
    that cannot be read, and a file that is there already.
    """
    if not LEAST_TOKENS <= vocab_size <= MOST_TOKENS:
        raise ParibusError(
            f"a vocabulary of {vocab_size:,} tokens: it needs at least {LEAST_TOKENS} (all bytes, "
            f"and the end of a document), and may have {MOST_TOKENS:,}"
        )
    if os.path.exists(out):
        raise ParibusError(f"{out} is there already; choose another file, or remove it")
    # Libraries that a command without a new tokenizer need not load.
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    n_documents = n_bytes = 0

    def texts() -> Iterator[str]:
        nonlocal n_documents, n_bytes
        for piece in read_pieces(data, folder):
            try:
                n_bytes += len(piece.text.encode())
            except UnicodeEncodeError as error:
                raise ParibusError(
                    f"document {piece.document + 1} has {piece.text[error.start]!r}, half of a "
                    "pair and no text; leave it out"
                ) from None
            n_documents += piece.is_last
            note("reading", n_bytes)
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


def data_of(corpus: str, **keys: str | None) -> Data:
    """Return the `data` table that the name of a corpus, or a path, means on a command line.

    A path is read by its ending: .jsonl and .ndjson, .parquet, else as plain text; a folder by that
    of its first file.
    """
    given = {key: value for key, value in keys.items() if value is not None}
    path = Path(corpus)
    if not os.path.exists(path):
        return Data(corpus=corpus, **given)  # type: ignore[arg-type]
    first = next(files_below(path), path) if path.is_dir() else path
    suffixes = set(first.suffixes)
    kind = "text"
    if suffixes & {".jsonl", ".ndjson"}:
        kind = "jsonl"
    elif ".parquet" in suffixes:
        kind = "parquet"
    return Data(corpus=kind, path=str(path.absolute()), **given)  # type: ignore[arg-type]
