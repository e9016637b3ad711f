"""Our model in Llama's words: its config and its weights, as Hugging Face spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paribus.study import Setting
from paribus.study.architecture import Attention

NAMES = {
    "embedding.tokens": "model.embed_tokens",
    "blocks.": "model.layers.",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attention.out": "self_attn.o_proj",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
    "final_norm": "model.norm",
    "head.": "lm_head.",
}
RMSNORM_EPS = 1e-6
INNER = "blocks.0.mlp.up.weight"


def is_llama(setting: Setting) -> bool:
    """Whether the model is a Llama as it stands, with heads of any number and a head tied or not.

    Llama has no dropout of embeddings and sub-layers; that matters to those who go on training.
    """
    model, attention = setting.model, setting.model.attention
    return (
        not model.modules.named
        and not model.bias
        and model.embedding.norm == "none"
        and model.positions.kind == "rotary"
        and (model.norm.kind, model.norm.placement) == ("rmsnorm", "pre")
        and model.mlp.kind == "swiglu"
        and attention == Attention(n_kv_head=attention.n_kv_head)
        and model.head.softcap is None
    )


def llama_config(
    setting: Setting, vocab_size: int, weights: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    """The content of config.json, but for the special tokens."""
    model, theta = setting.model, setting.model.positions.theta
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "max_position_embeddings": setting.data.seq_len,
        "hidden_size": model.d_model,
        "intermediate_size": len(weights[INNER]),
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": model.n_kv_head,
        "head_dim": model.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps or RMSNORM_EPS,
        "initializer_range": model.init.std,
        # Two spellings: of transformers 5 and of 4.
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": setting.training.dropout,
        "tie_word_embeddings": model.head.tied,
    }


def llama_weights(setting: Setting, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` by Llama's names: queries, keys and values are a matrix each there."""
    model, renamed = setting.model, {}
    kv = model.n_kv_head * model.head_width
    for name, value in weights.items():
        theirs = name
        for ours, other in NAMES.items():
            theirs = theirs.replace(ours, other)
        if "attention.qkv" in name:
            cut = np.split(value, [model.d_model, model.d_model + kv])
            for letter, rows in zip("qkv", cut, strict=True):
                renamed[theirs.replace("attention.qkv", f"self_attn.{letter}_proj")] = rows
        else:
            renamed[theirs] = value
    return {name: np.ascontiguousarray(value) for name, value in renamed.items()}
