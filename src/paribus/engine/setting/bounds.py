"""Upper limits of a trial: far more than one machine can train, and far below what hangs it.

They catch a number with a digit too many when the study is loaded, before anything is built.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

if TYPE_CHECKING:
    from paribus.engine.setting.setting import Setting

MOST_LAYERS = 1_000  # DeepNet (Wang et al. 2022)
MOST_WIDTH = 2**16
MOST_MLP_RATIO = 64
MOST_SEQ_LEN = 2**20
MOST_BATCH = 2**20
MOST_TOKENS_PER_STEP = 2**26
MOST_KEPT = 1000  # copies of a trial's weights
MOST_TOKENS = 10**15
MOST_PARAMETERS = 10**11  # of matrices, without the head; their weights take 400 GB
LEAST_TOKENS, MOST_VOCABULARY = 257, 2**20  # of a tokenizer: bytes and the end of a document
MOST_SOURCES = 100  # of a mixture
MIXTURE_PARTS = 10_000  # shares of a mixture are multiples of 1 / MIXTURE_PARTS, so they are exact
MOST_SHOTS = 1_000

Layers = Annotated[int, Field(gt=0, le=MOST_LAYERS)]
Width = Annotated[int, Field(gt=0, le=MOST_WIDTH)]
SeqLen = Annotated[int, Field(gt=0, le=MOST_SEQ_LEN)]
Batch = Annotated[int, Field(gt=0, le=MOST_BATCH)]
Tokens = Annotated[int, Field(gt=0, le=MOST_TOKENS)]


def matrix_parameters(setting: Setting, vocab_size: int) -> int:
    """Count the parameters in matrices of a model of shipped parts, a tied head once.

    A block has 2 D^2 (1 + G / H) for attention with G of H heads for keys and values, and
    2 ratio D^2 for an MLP, or 3 ratio D^2 for a gated one with `match_parameters = false`. Biases
    and gains add less than a per cent.
    """
    model, D = setting.model, setting.model.d_model
    attention = 2 * D**2 + 2 * D * model.n_kv_head * model.head_width
    mlp = (2 if model.mlp.match_parameters else 3) * model.mlp.ratio * D**2
    rows = vocab_size * (1 if model.head.tied else 2)
    if model.positions.kind == "learned":
        rows += setting.data.seq_len
    return model.n_layer * (attention + mlp) + rows * D


def require_trainable_size(setting: Setting) -> None:
    """Raise ValueError for a model or a step that no machine could train."""
    parameters = matrix_parameters(setting, vocab_size=0)
    if parameters > MOST_PARAMETERS:
        raise ValueError(
            f"model: n_layer = {setting.model.n_layer}, d_model = {setting.model.d_model}, "
            f"mlp.ratio = {setting.model.mlp.ratio} and seq_len = {setting.data.seq_len} are "
            f"{parameters:,} parameters; a model may have {MOST_PARAMETERS:,}"
        )
    if setting.tokens_per_step > MOST_TOKENS_PER_STEP:
        raise ValueError(
            f"training: batch_size x seq_len = {setting.tokens_per_step:,} tokens in a step; "
            f"{MOST_TOKENS_PER_STEP:,} are the most: use a smaller training.batch_size"
        )
