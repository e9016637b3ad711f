"""Which text a trial reads, in which shares and order, and how it becomes windows of tokens."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paribus.engine.setting.bounds import (
    LEAST_TOKENS,
    MIXTURE_PARTS,
    MOST_SOURCES,
    MOST_VOCABULARY,
    SeqLen,
    Tokens,
)
from paribus.errors import nearest
from paribus.study.allowed_text import Name
from paribus.study.base import Grown, Spec

CORPUS = "corpus"
"""What a mixture calls the training part of `data.corpus`."""

TOKENIZERS = frozenset({"character", "byte", "pydoc-512"})
"""Tokenizers that are built in: characters, bytes, and those of `engine/data/tokenizers/`."""


class SourceText(Spec):
    """A text by a name, for a mixture; keys as in `data`."""

    corpus: str = "text"
    """As `data.corpus`."""
    path: str | None = None
    """As `data.path`."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """As `data.column`."""
    name: str | None = None
    """As `data.name`."""
    subset: str | None = None
    """As `data.subset`."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """As `data.split`."""
    revision: str | None = None
    """As `data.revision`."""


Shares = Annotated[dict[str, Annotated[float, Field(gt=0, le=1)]], Field(max_length=MOST_SOURCES)]
"""Shares of training windows by source."""


class Data(Grown):
    """Which text is read, and how it becomes windows of tokens."""

    later = ("test_reuse", "vocab_size")

    corpus: str = "pydoc"
    """A name of `paribus.engine.data.corpora`, or the import path of the user's own."""
    path: str | None = None
    """The file or folder that the corpus is in, relative to the study file."""
    column: Annotated[str, Field(min_length=1)] | None = None
    """Where the text is: a column of `parquet` and of data sets, a key of `jsonl`. None: `text`."""
    name: str | None = None
    """The data set that `huggingface` reads."""
    subset: str | None = None
    """The configuration of a data set that has several."""
    split: Annotated[str, Field(min_length=1)] | None = None
    """The split of a data set whose text is read. None: `train`."""
    revision: str | None = None
    """The commit of a data set on the hub."""
    sources: Annotated[dict[Name, SourceText], Field(max_length=MOST_SOURCES)] = Field(
        default_factory=dict
    )
    """Texts that a mixture may name besides `corpus`. They are trained on alone: held-out text is
    of `corpus`."""
    mixture: Shares = Field(default_factory=dict)
    """The share of training windows that each source gives: `{ corpus = 0.7, web = 0.3 }`. Empty:
    all are of `corpus`."""
    tokenizer: Annotated[str, Field(min_length=1)] = "character"
    """`character`, `byte`, `pydoc-512` (byte-pair tokens of the corpus `pydoc`), or the path of a
    byte-level BPE `tokenizer.json`, relative to the study file."""
    vocab_size: Annotated[int, Field(ge=LEAST_TOKENS, le=MOST_VOCABULARY)] | None = None
    """Tokens of the BPE tokenizer that is trained on `corpus` if the file does not exist yet."""
    seq_len: SeqLen = 128
    """Tokens in a window, which is the context the model is trained with."""
    order: Literal["sampled", "epoch"] = "sampled"
    """`sampled` draws windows with replacement, as nanoGPT does; `epoch` takes each once before any
    is taken again."""
    pack: Literal["stream", "documents"] = "stream"
    """`stream` lets windows begin anywhere; with `documents` they begin with a document, and one
    that fits into a window is whole in some. Windows are full either way, so budgets are equal."""
    validation_fraction: Annotated[float, Field(gt=0, lt=1)] = 0.1
    """The last part of the text, kept for validation; not used with `validation_path`."""
    validation_path: str | None = None
    """A file or folder of its own for validation, in the form of `path`."""
    validation_tokens: Tokens | None = None
    """How much of the validation text is evaluated at most; the rest of it is not trained on."""
    test_fraction: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The part of the text after the validation text, sealed until the verdict asks for it."""
    test_path: str | None = None
    """A file or folder of its own that is sealed, in the form of `path`."""
    test_reuse: Literal["declare", "forbid"] = "declare"
    """What is done where the ledger knows another study that opened the test text, or a part of it:
    `declare` says so in the verdict and counts it, `forbid` refuses to run."""
    deduplicate: Literal["none", "held-out", "exact", "near"] = "none"
    """`held-out` removes lines from the training text until no 50 bytes of the held-out text are
    left in it. `exact` and `near` also remove documents and passages that repeat an earlier one,
    exactly or nearly: at an estimated Jaccard similarity of 0.8 (MinHash of 9 characters)."""

    @model_validator(mode="after")
    def _trains_a_file(self) -> Self:
        if self.vocab_size is not None and self.tokenizer_file is None:
            raise ValueError(
                f"vocab_size = {self.vocab_size} has no effect on tokenizer = '{self.tokenizer}'; "
                "remove it, or name a file for tokenizer, such as 'tokenizer.json'"
            )
        return self

    @model_validator(mode="after")
    def _something_is_sealed(self) -> Self:
        if self.test_reuse == "forbid" and not self.test_fraction and self.test_path is None:
            raise ValueError(
                "test_reuse = 'forbid' has no effect without a test part; seal one with "
                "test_fraction or test_path"
            )
        return self

    @model_validator(mode="after")
    def _parts_leave_text_to_train_on(self) -> Self:
        if self.test_path is not None and self.test_fraction:
            raise ValueError(
                f"test_fraction = {self.test_fraction} and test_path = '{self.test_path}' both "
                "seal a test part; state one of them"
            )
        held_out = self.test_fraction + (
            0 if self.validation_path is not None else self.validation_fraction
        )
        if held_out >= 1:
            raise ValueError(
                f"validation_fraction = {self.validation_fraction} and test_fraction = "
                f"{self.test_fraction} leave no text to train on; their sum must be below 1"
            )
        return self

    @model_validator(mode="after")
    def _mixture_is_of_sources(self) -> Self:
        known = {CORPUS, *self.sources}
        if CORPUS in self.sources:
            raise ValueError(
                f"sources.{CORPUS} has the name that a mixture gives to data.corpus; take another"
            )
        _require_shares(self.mixture, known)
        return self

    @property
    def other_sources(self) -> tuple[str, ...]:
        """The sources that the mixture names besides `corpus`, in the order of the study."""
        return tuple(name for name in self.sources if name in self.shares)

    @property
    def is_mixed(self) -> bool:
        """True if training windows are of sources by shares."""
        return bool(self.mixture)

    @property
    def shares(self) -> dict[str, float]:
        """The share of training windows of every source that gives any."""
        return self.mixture or {CORPUS: 1.0}

    def of_source(self, name: str) -> Data:
        """Return the same with the text of a source in the place of `corpus`."""
        return self.model_copy(update=dict(self.sources[name]))

    @property
    def tokenizer_file(self) -> str | None:
        """The tokenizer's path; None where it is built in."""
        return None if self.tokenizer in TOKENIZERS else self.tokenizer

    @property
    def texts(self) -> tuple[str, ...]:
        """The paths of every text that is named."""
        named = (self.path, self.validation_path, self.test_path)
        others = (of.path for of in self.sources.values())
        return tuple(dict.fromkeys(path for path in (*named, *others) if path is not None))

    @property
    def own(self) -> dict[str, str]:
        """Import paths of the user's code that reads text, by key of the study."""
        named = {"data.corpus": self.corpus}
        named |= {f"data.sources.{name}.corpus": of.corpus for name, of in self.sources.items()}
        return {key: path for key, path in named.items() if ":" in path}

    @property
    def text_column(self) -> str:
        """Return what `column` means."""
        return self.column or "text"


def _require_shares(mixture: dict[str, float], known: set[str]) -> None:
    """Raise ValueError for shares that are not of known sources, or not exact, or not of 1."""
    for name in mixture:
        if name not in known:
            raise ValueError(
                f"mixture names the source '{name}', which is not there: {nearest(name, known)}"
            )
    total = sum(mixture.values())
    if mixture and abs(total - 1) > 1e-9:
        raise ValueError(
            f"mixture {_shown(mixture)} adds up to {total:.6g}; shares must add up to 1"
        )
    for name, share in mixture.items():
        if abs(share * MIXTURE_PARTS - round(share * MIXTURE_PARTS)) > 1e-6:
            raise ValueError(
                f"mixture gives '{name}' the share {share!r}; state shares in whole parts of "
                f"{MIXTURE_PARTS:,}, such as {round(share, 4) or 1 / MIXTURE_PARTS:g}"
            )


def _shown(mixture: dict[str, float]) -> str:
    """Return a mixture as a study file has it."""
    return f"{{ {', '.join(f'{name} = {share:g}' for name, share in mixture.items())} }}"
