"""What is read: corpora, tokenizer, split, batches as a function of (seed, t), and their tables."""

from paribus.engine.data.batches import FIRST_DIGEST, batch, extend_digest
from paribus.engine.data.consumption import Consumption, class_counts, consumption
from paribus.engine.data.corpora import corpus, read_corpus
from paribus.engine.data.dataset import Dataset, load_dataset
from paribus.engine.data.describe import describe_data
from paribus.engine.data.duplicates import (
    Duplicates,
    count_duplicates,
    near_duplicate_pairs,
    passages,
)
from paribus.engine.data.leakage import in_training
from paribus.engine.data.mixture import Mixture
from paribus.engine.data.order import Windows
from paribus.engine.data.sealed import SealedPart, open_test
from paribus.engine.data.token_classes import TOKEN_CLASSES, token_classes
from paribus.engine.data.tokenizer import STAND_INS, CharacterTokenizer, Tokenizer, tokenizer_of
from paribus.engine.data.tokens import Tokens

__all__ = [
    "FIRST_DIGEST",
    "STAND_INS",
    "TOKEN_CLASSES",
    "CharacterTokenizer",
    "Consumption",
    "Dataset",
    "Duplicates",
    "Mixture",
    "SealedPart",
    "Tokenizer",
    "Tokens",
    "Windows",
    "batch",
    "class_counts",
    "consumption",
    "corpus",
    "count_duplicates",
    "describe_data",
    "extend_digest",
    "in_training",
    "load_dataset",
    "near_duplicate_pairs",
    "open_test",
    "passages",
    "read_corpus",
    "token_classes",
    "tokenizer_of",
]
