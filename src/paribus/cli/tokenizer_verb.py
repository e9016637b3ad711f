"""`paribus tokenizer`: making a tokenizer for studies to use."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from paribus.cli.reading_line import show_reading


def train(
    corpus: Annotated[
        str, Parameter(help="A corpus by name, or the path of a text, JSON lines or Parquet file.")
    ],
    out: Annotated[Path, Parameter(help="The tokenizer.json to write.")],
    *,
    vocab_size: Annotated[int, Parameter(help="Tokens, the 256 bytes among them.")],
    column: Annotated[
        str | None, Parameter(help="Where the text is, in JSON lines and Parquet.")
    ] = None,
    name: Annotated[str | None, Parameter(help="The data set that huggingface reads.")] = None,
    revision: Annotated[str | None, Parameter(help="The commit of a data set.")] = None,
) -> None:
    """Make a byte-level BPE tokenizer from a corpus."""
    from paribus.engine.data.train_tokenizer import data_of, train_tokenizer

    data = data_of(corpus, column=column, name=name, revision=revision)
    with show_reading():
        made = train_tokenizer(data, Path.cwd(), vocab_size, out)
    Console(highlight=False).print(
        f"{made.file}: {made.vocab_size:,} tokens, from {made.n_documents:,} documents of "
        f"{made.n_bytes:,} bytes; use it with data.tokenizer = '{made.file}'",
        markup=False,  # brackets in the name of a file are no style
        soft_wrap=True,
    )
