"""Text data: corpora, tokenizers, splits, and deterministic batches."""

from paribus.engine.data.corpora import corpus
from paribus.engine.data.dataset import Dataset, load_dataset
from paribus.engine.data.describe import consumption, describe_data
from paribus.engine.data.order import FIRST_DIGEST, batch, extend_digest, starts_of_step
from paribus.engine.data.split import open_test
from paribus.engine.data.tokenizer import STAND_INS, TOKEN_CLASSES, CharacterTokenizer, Tokenizer
from paribus.engine.data.tokens import Tokens
