"""Corpora, tokenizers, splits, batches as a function of (seed, t), and tables of them."""

from paribus.engine.data.corpora import corpus, read_corpus
from paribus.engine.data.dataset import Dataset, load_dataset
from paribus.engine.data.describe import consumption, describe_data
from paribus.engine.data.order import (
    FIRST_DIGEST,
    Mixture,
    Windows,
    batch,
    extend_digest,
    step_batch,
)
from paribus.engine.data.split import open_test
from paribus.engine.data.tokenizer import (
    STAND_INS,
    TOKEN_CLASSES,
    CharacterTokenizer,
    Tokenizer,
    token_classes,
)
from paribus.engine.data.tokens import Tokens

__all__ = [
    "FIRST_DIGEST",
    "STAND_INS",
    "TOKEN_CLASSES",
    "CharacterTokenizer",
    "Dataset",
    "Mixture",
    "Tokenizer",
    "Tokens",
    "Windows",
    "batch",
    "consumption",
    "corpus",
    "describe_data",
    "extend_digest",
    "load_dataset",
    "open_test",
    "read_corpus",
    "step_batch",
    "token_classes",
]
