"""Our model as others spell it: config.json and weights of GPT-2, of Llama, or of our own code."""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from paribus.engine.setting import Setting
from paribus.engine.setting.architecture import Attention
from paribus.errors import ParibusError
from paribus.study.custom_code import changed_sources, own_digests

GPT2_NAMES = {
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
LLAMA_NAMES = {
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
# Hugging Face's names; their "gelu_new" is GPT-2's own.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu2": "relu2"}
LAYERNORM_EPS, RMSNORM_EPS = 1e-5, 1e-6


def _is_plain(setting: Setting, positions: str, norm: str) -> bool:
    """Return whether the model has these positions and this norm, and no part of its own kind."""
    model, attention = setting.model, setting.model.attention
    return (
        not model.modules.named
        and model.embedding.norm == "none"
        and model.positions.kind == positions
        and (model.norm.kind, model.norm.placement) == (norm, "pre")
        and attention == Attention(n_kv_head=attention.n_kv_head)
        and model.head.softcap is None
    )


def is_gpt2(setting: Setting) -> bool:
    """Return whether the model is a GPT-2 as it stands."""
    model = setting.model
    return (
        _is_plain(setting, "learned", "layernorm")
        and model.mlp.kind in ACTIVATIONS
        and model.n_kv_head == model.n_head
    )


def is_llama(setting: Setting) -> bool:
    """Return whether the model is a Llama as it stands, with any heads, tied or not.

    Llama has no dropout of embeddings and sub-layers; that matters to those who go on training.
    """
    model = setting.model
    return _is_plain(setting, "rotary", "rmsnorm") and model.mlp.kind == "swiglu" and not model.bias


def in_their_words(
    setting: Setting, vocab_size: int, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return (config, weights) of GPT-2 or Llama where the model is one, else of its own kind.

    The config is without the special tokens.
    """
    if is_gpt2(setting):
        return _gpt2_config(setting, vocab_size), _gpt2_weights(weights)
    if is_llama(setting):
        return _llama_config(setting, vocab_size, weights), _llama_weights(setting, weights)
    own = {n if n.startswith("head.") else f"model.{n}": value for n, value in weights.items()}
    return _remote_config(setting, vocab_size), own


def _gpt2_config(setting: Setting, vocab_size: int) -> dict[str, Any]:
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


def _gpt2_weights(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rename and lay out `weights` as GPT-2's.

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
        theirs = f"transformer.{_renamed(name, GPT2_NAMES)}"
        renamed[theirs] = value
        stem, _, kind = name.rpartition(".")
        wants_bias = kind == "weight" and (in_block or stem == "final_norm")
        if wants_bias and f"{stem}.bias" not in weights:
            bias = f"{theirs.removesuffix('weight')}bias"
            renamed[bias] = np.zeros(value.shape[-1], value.dtype)
    return renamed


def _renamed(name: str, names: Mapping[str, str]) -> str:
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    return name


def _llama_config(
    setting: Setting, vocab_size: int, weights: Mapping[str, np.ndarray]
) -> dict[str, Any]:
    model, theta = setting.model, setting.model.positions.theta
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "dtype": "float32",
        "vocab_size": vocab_size,
        "max_position_embeddings": setting.data.seq_len,
        "hidden_size": model.d_model,
        "intermediate_size": len(weights["blocks.0.mlp.up.weight"]),
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


def _llama_weights(setting: Setting, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Rename `weights` as Llama's: queries, keys and values are a matrix each there."""
    model, renamed = setting.model, {}
    kv = model.n_kv_head * model.head_width
    for name, value in weights.items():
        theirs = _renamed(name, LLAMA_NAMES)
        if "attention.qkv" in name:
            cut = np.split(value, [model.d_model, model.d_model + kv])
            for letter, rows in zip("qkv", cut, strict=True):
                renamed[theirs.replace("attention.qkv", f"self_attn.{letter}_proj")] = rows
        else:
            renamed[theirs] = value
    return {name: np.ascontiguousarray(value) for name, value in renamed.items()}


MODEL_CODE = "modeling_paribus.py"
ATTENTIONS = ("causal",)  # that `modeling_paribus.py` has; a site's own parts go beside it


def _remote_config(setting: Setting, vocab_size: int) -> dict[str, Any]:
    model, module = setting.model, MODEL_CODE.removesuffix(".py")
    if model.modules.attention is None and model.attention.kind not in ATTENTIONS:
        raise ParibusError(
            f"model.attention.kind = '{model.attention.kind}' is in no exported code; name its "
            "class in model.modules.attention, which is copied beside it"
        )
    sizes = {
        "seq_len": setting.data.seq_len,
        "vocab_size": vocab_size,
        "dropout": setting.training.dropout,
    }
    return {
        "model_type": "paribus",
        "architectures": ["ParibusForCausalLM"],
        "auto_map": {
            "AutoConfig": f"{module}.ParibusConfig",
            "AutoModel": f"{module}.ParibusModel",
            "AutoModelForCausalLM": f"{module}.ParibusForCausalLM",
        },
        "dtype": "float32",
        "vocab_size": vocab_size,
        "max_position_embeddings": setting.data.seq_len,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": model.n_kv_head,
        "use_cache": True,
        # A tied head is computed from the token matrix, and is no parameter of its own.
        "tie_word_embeddings": False,
        "architecture": model.model_dump(mode="json") | sizes,
    }


def remote_code(
    setting: Setting, folder: Path, label: str, trial: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the Python files of the exported folder, by name.

    folder: where import paths of the user's own files start; trial: the record, whose digests the
    sources must have. Nothing of them is run. Raises ParibusError.
    """
    code = resources.files("paribus.engine.export").joinpath(MODEL_CODE).read_text("utf-8")
    own = setting.model.modules.named
    files = _own_files(setting, folder, label, trial) if own else {}
    lines = []
    for site, path in own.items():
        module, _, name = path.partition(":")
        home = f".{_copied(module)}" if module.endswith(".py") else module
        lines += [f"from {home} import {name} as _{site}", f'OWN["{site}"] = _{site}']
    marker = "OWN: dict[str, type[nn.Module]] = {}\n"
    assert marker in code
    filled = "".join(f"{line}\n" for line in lines)
    return files | {MODEL_CODE: code.replace(marker, marker + filled).encode()}


def packages_of(setting: Setting, code: Mapping[str, bytes]) -> list[str]:
    """Return what must be installed besides torch and transformers where `remote_code` is run."""
    modules = {path.partition(":")[0] for path in setting.model.modules.named.values()}
    names = {module for module in modules if not module.endswith(".py")}
    for node in (node for source in code.values() for node in ast.walk(ast.parse(source))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names.add(node.module or "")
    found = {name.partition(".")[0] for name in names}
    return sorted(found - sys.stdlib_module_names - {"torch", "transformers"})


def _own_files(
    setting: Setting, folder: Path, label: str, trial: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return copies of the files that the user's own parts are in."""
    found, files = own_digests(setting, folder), {}
    for site, path in setting.model.modules.named.items():
        if changed_sources({site: found[site]}, {site: trial["own_modules"].get(site, {})}):
            raise ParibusError(
                f"model.modules.{site} = '{path}' is not the code that trial {label} was trained "
                "with; restore its source"
            )
        module = path.partition(":")[0]
        if not module.endswith(".py"):
            continue
        others = [name for name in found[site] if name != Path(module).as_posix()]
        here = [name for name in others if (folder / name).is_file()]
        if here:
            raise ParibusError(
                f"model.modules.{site} = '{path}' uses {', '.join(here)} beside it; an exported "
                "part is one file: move what it uses into that"
            )
        files[f"{_copied(module)}.py"] = (folder / module).read_bytes()
    return files


def _copied(module: str) -> str:
    """Return the name of the copied file, as Python imports it."""
    stem = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in Path(module).stem)
    return f"own_{stem}"
