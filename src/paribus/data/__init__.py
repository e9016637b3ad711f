"""What is read: corpora, the tokenizer, the split, and batches as a function of (seed, t)."""

from paribus.data.batches import FIRST_DIGEST, batch, extend_digest
from paribus.data.consumption import Consumption, class_counts, consumption
from paribus.data.corpora import corpus, read_corpus
from paribus.data.dataset import Dataset, load_dataset
from paribus.data.token_classes import TOKEN_CLASSES, token_classes
from paribus.data.tokenizer import CharacterTokenizer

__all__ = [
    "FIRST_DIGEST",
    "TOKEN_CLASSES",
    "CharacterTokenizer",
    "Consumption",
    "Dataset",
    "batch",
    "class_counts",
    "consumption",
    "corpus",
    "extend_digest",
    "load_dataset",
    "read_corpus",
    "token_classes",
]
