"""Data section of a study: text, tokenizer and training windows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paribus.errors import nearest
from paribus.study.base import Name, Part, later

# Upper limits, here and in other sections: far more than one machine can train, and far below what
# hangs it. They catch a number with a digit too many before anything is built.
MOST_TOKENS = 10**15
LEAST_VOCABULARY, MOST_VOCABULARY = 257, 2**20  # of a tokenizer: bytes and the end of a document
MIXTURE_PARTS = 10_000  # shares of a mixture are multiples of 1 / MIXTURE_PARTS, so they are exact

SeqLen = Annotated[int, Field(gt=0, le=2**20)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]

CORPUS = "corpus"
"""Name of the training text from `data.corpus` in a mixture."""

TOKENIZERS = frozenset({"character", "byte", "pydoc-512"})
"""Names of built-in tokenizers: characters, bytes, and those in `engine/data/tokenizers/`."""


class SourceText(Part):
    """Text of a corpus, or of one source in a mixture."""

    corpus: str = "text"
    """Corpus from `paribus/engine/data/corpora/`, or a custom one: `file.py:name`."""
    path: str | None = None
    """File or folder of the corpus, relative to the study file."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """Column or JSON key that contains the text, for `parquet`, `huggingface` and `jsonl`; None
    means `text`."""
    name: str | None = None
    """Name of the data set that `huggingface` reads."""
    subset: str | None = None
    """Configuration of the data set to read, if it has several."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """Split of the data set to read; None means `train`."""
    revision: str | None = None
    """Commit hash of the data set's repository on the Hugging Face Hub."""


Shares = dict[str, Annotated[float, Field(gt=0, le=1)]]
"""Proportions of training windows, keyed by source."""


class Data(SourceText):
    """Text, tokenizer, splits and training windows of a trial."""

    corpus: str = "pydoc"
    sources: dict[Name, SourceText] = Field(default_factory=dict)
    """Additional training texts for a mixture; held-out text always comes from `corpus`."""
    mixture: Shares = Field(default_factory=dict)
    """Proportion of training windows from each source, such as `{ corpus = 0.7, web = 0.3 }`. If
    empty, all windows come from `corpus`."""
    tokenizer: Annotated[str, Field(min_length=1)] = "character"
    """`character`, `byte`, `pydoc-512` (BPE trained on the corpus `pydoc`), or the path of a
    byte-level BPE `tokenizer.json`, relative to the study file."""
    vocab_size: Annotated[
        Annotated[int, Field(ge=LEAST_VOCABULARY, le=MOST_VOCABULARY)] | None, later(None)
    ] = None
    """Vocabulary size of the BPE tokenizer that is trained on `corpus` if its file is missing."""
    seq_len: SeqLen = 128
    """Sequence length in tokens, which is the context length in training."""
    order: Literal["sampled", "epoch"] = "sampled"
    """`sampled` samples windows with replacement, as nanoGPT does; `epoch` uses each window once
    before any is repeated."""
    pack: Literal["stream", "documents"] = "stream"
    """With `stream`, windows begin anywhere in the text; with `documents`, they begin with a
    document. Windows are always full, so token budgets are equal."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """Fraction of the text used for validation, taken from its end, before any test text; ignored
    if `validation_path` is set."""
    validation_path: str | None = None
    """Separate file or folder for validation."""
    validation_tokens: Tokens | None = None
    """Maximum number of validation tokens to evaluate; the rest of the validation text is unused.
    """
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """Fraction of the text, at its end, that is reserved as test text until the verdict."""
    test_path: str | None = None
    """Separate file or folder that is reserved as test text until the verdict."""
    deduplicate: Literal["none", "held-out", "exact", "near"] = "none"
    """`held-out` removes training lines that share 50 consecutive bytes with held-out text. `exact`
    and `near` also remove documents and passages that repeat an earlier one, exactly or with an
    estimated Jaccard similarity of at least 0.8 (MinHash of 9-character shingles)."""

    @model_validator(mode="after")
    def _parts_leave_text_to_train_on(self) -> Self:
        if self.test_path is not None and self.test_fraction:
            raise ValueError(
                f"test_fraction = {self.test_fraction} and test_path = '{self.test_path}' both "
                "select a test text; set only one of them"
            )
        held_out = self.test_fraction + (
            0 if self.validation_path is not None else self.validation_fraction
        )
        if held_out >= 1:
            raise ValueError(
                f"validation_fraction = {self.validation_fraction} and test_fraction = "
                f"{self.test_fraction} leave no text to train on; reduce their sum to less than 1"
            )
        return self

    @model_validator(mode="after")
    def _mixture_is_of_sources(self) -> Self:
        if CORPUS in self.sources:
            raise ValueError(
                f"the source name '{CORPUS}' is reserved for data.corpus; rename sources.{CORPUS}"
            )
        known, total = {CORPUS, *self.sources}, sum(self.mixture.values())
        for name, share in self.mixture.items():
            if name not in known:
                raise ValueError(
                    f"mixture contains an unknown source '{name}'; {nearest(name, known)}"
                )
            if abs(share * MIXTURE_PARTS - round(share * MIXTURE_PARTS)) > 1e-6:
                raise ValueError(
                    f"mixture.{name} = {share!r} is not a multiple of {1 / MIXTURE_PARTS:g}; round "
                    "it to a multiple"
                )
        if self.mixture and abs(total - 1) > 1e-9:
            raise ValueError(
                f"the proportions in mixture = {self.mixture} sum to {total:.6g}, but must sum to "
                "1; change one of them"
            )
        return self

    @property
    def other_sources(self) -> tuple[str, ...]:
        """Names of the mixture's sources other than `corpus`, in study order."""
        return tuple(name for name in self.sources if name in self.shares)

    @property
    def shares(self) -> dict[str, float]:
        """Proportion of training windows from each source, keyed by source."""
        return self.mixture or {CORPUS: 1.0}

    def for_source(self, name: str) -> Data:
        """Return a copy that reads the source `name` instead of `corpus`."""
        return self.model_copy(update=dict(self.sources[name]))

    @property
    def tokenizer_file(self) -> str | None:
        """Path of the tokenizer file, or None for a built-in tokenizer."""
        return None if self.tokenizer in TOKENIZERS else self.tokenizer

    @property
    def texts(self) -> tuple[str, ...]:
        """Unique paths of the text files and folders that the section lists."""
        paths = (self.path, self.validation_path, self.test_path)
        sources = (source.path for source in self.sources.values())
        return tuple(dict.fromkeys(path for path in (*paths, *sources) if path is not None))

    @property
    def own(self) -> dict[str, str]:
        """Import paths of custom corpora, keyed by study key."""
        corpora = {"data.corpus": self.corpus}
        for name, source in self.sources.items():
            corpora[f"data.sources.{name}.corpus"] = source.corpus
        return {key: path for key, path in corpora.items() if ":" in path}

    @property
    def text_column(self) -> str:
        """Name of the column with the text, "text" by default."""
        return self.column or "text"
