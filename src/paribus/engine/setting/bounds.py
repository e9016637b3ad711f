"""How large a trial may be: far more than one machine can train, far less than what hangs it.

A number with a digit too many is refused where the study is loaded, by arithmetic and before
anything is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

if TYPE_CHECKING:
    from paribus.engine.setting.setting import Setting

MOST_LAYERS = 1_000  # DeepNet's (Wang et al. 2022, arXiv:2203.00555)
MOST_WIDTH = 2**16
MOST_MLP_RATIO = 64
MOST_SEQ_LEN = 2**20
MOST_BATCH = 2**20
MOST_TOKENS_PER_STEP = 2**26
MOST_KEPT = 1000  # sets of weights that one trial keeps on the way
MOST_TOKENS = 10**15
# Weights alone are 400 GB in float32. Without the head and what is not a matrix.
MOST_PARAMETERS = 10**11
LEAST_TOKENS, MOST_VOCABULARY = 257, 2**20  # of a tokenizer: bytes and the end of a document
MOST_SOURCES = 100  # of a mixture
MIXTURE_PARTS = 10_000  # shares of a mixture are whole numbers of these, and so exact
MOST_SHOTS = 1_000

Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
Width = Annotated[int, Field(gt=0, le=MOST_WIDTH)]
SeqLen = Annotated[int, Field(gt=0, le=MOST_SEQ_LEN)]
Batch = Annotated[int, Field(gt=0, le=MOST_BATCH)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]


def matrix_parameters(setting: Setting, vocab_size: int) -> int:
    """Parameters in the matrices of a model of our own parts, a tied head counted once.

    In a block 2 D^2 (1 + G / H) for attention with G of H heads for keys and values, and
    2 ratio D^2 for an MLP, or 3 where a gated one is not matched (one that is has a whole width,
    which is at most half a column from that); V D for tokens and for a head of
    its own, seq_len D for learned positions. Biases and gains come on top, and are less than a per
    cent of any model worth training.
    """
    model, D = setting.model, setting.model.d_model
    attention = 2 * D**2 + 2 * D * model.n_kv_head * model.head_width
    mlp = (2 if model.mlp.match_parameters else 3) * model.mlp.ratio * D**2
    tables = vocab_size * (1 if model.head.tied else 2)
    if model.positions.kind == "learned":
        tables += setting.data.seq_len
    return model.n_layer * (attention + mlp) + tables * D


def why_too_large(setting: Setting) -> str:
    """Return why nobody could train `setting`, whatever its text; empty where somebody could."""
    parameters = matrix_parameters(setting, vocab_size=0)
    if parameters > MOST_PARAMETERS:
        return (
            f"model: n_layer = {setting.model.n_layer}, d_model = {setting.model.d_model}, "
            f"mlp.ratio = {setting.model.mlp.ratio} and seq_len = {setting.data.seq_len} are "
            f"{parameters:,} parameters; a model may have {MOST_PARAMETERS:,}"
        )
    if setting.tokens_per_step > MOST_TOKENS_PER_STEP:
        return (
            f"training: batch_size x seq_len = {setting.tokens_per_step:,} tokens in a step; "
            f"{MOST_TOKENS_PER_STEP:,} are the most: use a smaller training.batch_size"
        )
    return ""
