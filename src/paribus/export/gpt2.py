"""Our model in GPT-2's words: its config and its weights, as Hugging Face spells them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.model import build_model
from paribus.study import Setting

# What `modeling_paribus.py` can build.
EMBEDDING_NORMS = ("layernorm", "rmsnorm", "rms_free", "center", "fixed_scale")
MODEL_CODE = "modeling_paribus.py"

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


def require_exportable(setting: Setting, label: str) -> None:
    """Raise ParibusError where the model has parts that the exported code does not know."""
    own = setting.model.modules.named
    if own:
        site, path = next(iter(own.items()))
        raise ParibusError(
            f"trial {label} has a module of your own, model.modules.{site} = '{path}', which the "
            "exported model code cannot contain; load its weights.safetensors with paribus instead"
        )
    norm = setting.model.embedding.norm
    if norm not in (*EMBEDDING_NORMS, "none"):
        raise ParibusError(
            f"trial {label} has model.embedding.norm = '{norm}', which {MODEL_CODE} does not know; "
            f"it knows none, {', '.join(EMBEDDING_NORMS)}"
        )


def is_plain(setting: Setting) -> bool:
    """Whether the model is a GPT-2 as it stands."""
    return setting.model.embedding.norm == "none"


def gpt2_config(setting: Setting, vocab_size: int, end_of_document: int | None) -> dict[str, Any]:
    """The content of config.json."""
    model, dropout = setting.model, setting.training.dropout
    config: dict[str, Any] = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "n_positions": setting.data.seq_len,
        "n_embd": model.d_model,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_inner": model.mlp.ratio * model.d_model,
        "activation_function": "gelu",  # the exact one; GPT-2's own is the tanh approximation
        "layer_norm_epsilon": model.norm.eps or 1e-5,
        "initializer_range": model.init.std,
        "resid_pdrop": dropout,
        "embd_pdrop": dropout,
        "attn_pdrop": dropout,
        "tie_word_embeddings": True,
        # Stated also where there is none: the default is a token of GPT-2's own vocabulary.
        "bos_token_id": end_of_document,
        "eos_token_id": end_of_document,
        "pad_token_id": end_of_document,
    }
    return config if is_plain(setting) else config | _with_norm(setting)


def _with_norm(setting: Setting) -> dict[str, Any]:
    module = MODEL_CODE.removesuffix(".py")
    # The constants of a norm are the module's own business, so they are asked of the module.
    norm = build_model(setting, 1).embedding.norm
    scale = getattr(norm, "scale", None)
    return {
        "model_type": "paribus",
        "architectures": ["ParibusForCausalLM"],
        "auto_map": {
            "AutoConfig": f"{module}.ParibusConfig",
            "AutoModel": f"{module}.ParibusModel",
            "AutoModelForCausalLM": f"{module}.ParibusForCausalLM",
        },
        "embedding_norm": setting.model.embedding.norm,
        "embedding_norm_at": setting.model.embedding.norm_at,
        "embedding_eps": getattr(norm, "eps", None),
        "embedding_scale": None if scale is None else float(scale),
    }


def gpt2_weights(setting: Setting, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` by GPT-2's names and in its layout.

    Its linear layers are stored transposed, [in, out], and have a bias always: ours without one get
    a bias of zeros. The head is tied to `wte` and not stored twice.
    """
    renamed = {}
    for name, value in weights.items():
        in_block = name.startswith("blocks.")
        if in_block and value.ndim == 2:
            value = np.ascontiguousarray(value.T)
        renamed[gpt2_name(setting, name)] = value
        stem, _, kind = name.rpartition(".")
        wants_bias = kind == "weight" and (in_block or stem == "final_norm")
        if wants_bias and f"{stem}.bias" not in weights:
            renamed[gpt2_name(setting, f"{stem}.bias")] = np.zeros(value.shape[-1], value.dtype)
    return renamed


def gpt2_name(setting: Setting, name: str) -> str:
    """Hugging Face's name of our parameter `name`."""
    home = "wte" if setting.model.embedding.norm_at == "tokens" else "drop"
    for ours, theirs in ({"embedding.norm": f"{home}.norm"} | NAMES).items():
        name = name.replace(ours, theirs)
    return f"transformer.{name}"
