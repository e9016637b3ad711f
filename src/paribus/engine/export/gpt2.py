"""Our model in GPT-2's words: its config and its weights, as Hugging Face spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paribus.study import Setting
from paribus.study.architecture import Attention

NAMES = {
    "embedding.tokens": "wte",
    "embedding.positions": "wpe",
    "blocks.": "h.",
    "attention_norm": "ln_1",
    "mlp_norm": "ln_2",
    "attention.qkv": "attn.c_attn",
    "attention.out": "attn.c_proj",
    "mlp.up": "mlp.c_fc",
    "mlp.down": "mlp.c_proj",
    "final_norm": "ln_f",
}
# Hugging Face's names; their "gelu_new" is GPT-2's own.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu2": "relu2"}
LAYERNORM_EPS = 1e-5


def is_gpt2(setting: Setting) -> bool:
    """Whether the model is a GPT-2 as it stands."""
    model, attention = setting.model, setting.model.attention
    return (
        not model.modules.named
        and model.embedding.norm == "none"
        and model.positions.kind == "learned"
        and (model.norm.kind, model.norm.placement) == ("layernorm", "pre")
        and model.mlp.kind in ACTIVATIONS
        and model.n_kv_head == model.n_head
        and attention == Attention(n_kv_head=attention.n_kv_head)
        and model.head.softcap is None
    )


def gpt2_config(setting: Setting, vocab_size: int) -> dict[str, Any]:
    """The content of config.json, but for the special tokens."""
    model, dropout = setting.model, setting.training.dropout
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "n_positions": setting.data.seq_len,
        "n_embd": model.d_model,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_inner": model.mlp.ratio * model.d_model,
        "activation_function": ACTIVATIONS[model.mlp.kind],
        "layer_norm_epsilon": model.norm.eps or LAYERNORM_EPS,
        "initializer_range": model.init.std,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "tie_word_embeddings": model.head.tied,
    }


def gpt2_weights(setting: Setting, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` by GPT-2's names and in its layout.

    Its linear layers are stored transposed, [in, out], and have a bias always: ours without one get
    a bias of zeros. A tied head is `wte` and not stored twice.
    """
    renamed = {}
    for name, value in weights.items():
        if name == "head.weight":
            renamed["lm_head.weight"] = value
            continue
        in_block = name.startswith("blocks.")
        if in_block and value.ndim == 2:
            value = np.ascontiguousarray(value.T)
        renamed[_name(name)] = value
        stem, _, kind = name.rpartition(".")
        wants_bias = kind == "weight" and (in_block or stem == "final_norm")
        if wants_bias and f"{stem}.bias" not in weights:
            renamed[_name(f"{stem}.bias")] = np.zeros(value.shape[-1], value.dtype)
    return renamed


def _name(name: str) -> str:
    for ours, theirs in NAMES.items():
        name = name.replace(ours, theirs)
    return f"transformer.{name}"
