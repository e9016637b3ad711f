"""Upper limits of a trial: far more than one machine can train, and far below what hangs it.

They catch a number with a digit too many when the study is loaded, before anything is built.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

MOST_LAYERS = 1_000  # DeepNet (Wang et al. 2022)
MOST_WIDTH = 2**16
MOST_MLP_RATIO = 64
MOST_SEQ_LEN = 2**20
MOST_BATCH = 2**20
MOST_TOKENS = 10**15
LEAST_TOKENS, MOST_VOCABULARY = 257, 2**20  # of a tokenizer: bytes and the end of a document
MOST_SOURCES = 100  # of a mixture
MIXTURE_PARTS = 10_000  # shares of a mixture are multiples of 1 / MIXTURE_PARTS, so they are exact
MOST_SHOTS = 1_000

Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
Width = Annotated[int, Field(gt=0, le=MOST_WIDTH)]
SeqLen = Annotated[int, Field(gt=0, le=MOST_SEQ_LEN)]
Batch = Annotated[int, Field(gt=0, le=MOST_BATCH)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]
