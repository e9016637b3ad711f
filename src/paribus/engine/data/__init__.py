"""Corpora, tokenizers, splits, and batches as a pure function of (seed, t)."""

from paribus.engine.data.corpora import corpus as corpus
from paribus.engine.data.dataset import Dataset as Dataset
from paribus.engine.data.dataset import load_dataset as load_dataset
from paribus.engine.data.describe import consumption as consumption
from paribus.engine.data.describe import describe_data as describe_data
from paribus.engine.data.order import FIRST_DIGEST as FIRST_DIGEST
from paribus.engine.data.order import Mixture as Mixture
from paribus.engine.data.order import Windows as Windows
from paribus.engine.data.order import batch as batch
from paribus.engine.data.order import extend_digest as extend_digest
from paribus.engine.data.order import starts_of_step as starts_of_step
from paribus.engine.data.split import open_test as open_test
from paribus.engine.data.tokenizer import STAND_INS as STAND_INS
from paribus.engine.data.tokenizer import TOKEN_CLASSES as TOKEN_CLASSES
from paribus.engine.data.tokenizer import CharacterTokenizer as CharacterTokenizer
from paribus.engine.data.tokenizer import Tokenizer as Tokenizer
from paribus.engine.data.tokenizer import token_classes as token_classes
from paribus.engine.data.tokens import Tokens as Tokens
