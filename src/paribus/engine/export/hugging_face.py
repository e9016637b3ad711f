"""Conversion of models to Hugging Face format, as GPT-2, Llama or custom code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from paribus.engine.model.parts import module_class
from paribus.engine.model.shared import takes_shared
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
# Hugging Face's names; its "gelu_new" is GPT-2's approximation.
ACTIVATIONS = {"gelu": "gelu", "gelu_tanh": "gelu_pytorch_tanh", "relu2": "relu2"}
LAYERNORM_EPS, RMSNORM_EPS = 1e-5, 1e-6
MODEL_CODE = "modeling_paribus.py"


def is_gpt2(setting: Setting) -> bool:
    """Return whether the model can be exported as a standard GPT-2."""
    model = setting.model
    return (
        _is_plain(setting, "learned", "layernorm")
        and model.mlp.kind in ACTIVATIONS
        and model.n_kv_head == model.n_head
    )


def is_llama(setting: Setting) -> bool:
    """Return whether the model can be exported as a standard Llama, apart from dropout."""
    model = setting.model
    return _is_plain(setting, "rotary", "rmsnorm") and model.mlp.kind == "swiglu" and not model.bias


def _is_plain(setting: Setting, positions: str, norm: str) -> bool:
    model, attention = setting.model, setting.model.attention
    return (
        not model.modules.named
        and model.embedding.norm == "none"
        and model.positions.kind == positions
        and (model.norm.kind, model.norm.placement) == (norm, "pre")
        and attention == Attention(n_kv_head=attention.n_kv_head)
        and model.head.softcap is None
    )


def hugging_face_model(
    setting: Setting, vocab_size: int, weights: Mapping[str, np.ndarray]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Return the content of config.json (without special tokens), and the renamed weights."""
    config: dict[str, Any] = {"dtype": "float32", "vocab_size": vocab_size}
    if is_gpt2(setting):
        return config | _gpt2_config(setting), _gpt2_weights(weights)
    if is_llama(setting):
        inner = len(weights["blocks.0.mlp.up.weight"])
        return config | _llama_config(setting, inner), _llama_weights(setting, weights)
    return config | _remote_config(setting, vocab_size), dict(weights)


def _gpt2_config(setting: Setting) -> dict[str, Any]:
    model = setting.model
    return {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_positions": setting.data.seq_len,
        "n_embd": model.d_model,
        "n_layer": model.n_layer,
        "n_head": model.n_head,
        "n_inner": model.mlp.ratio * model.d_model,
        "activation_function": ACTIVATIONS[model.mlp.kind],
        "layer_norm_epsilon": model.norm.eps or LAYERNORM_EPS,
        "initializer_range": model.init.std,
        **dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), setting.training.dropout),
        "tie_word_embeddings": model.head.tied,
    }


def _gpt2_weights(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert `weights` to GPT-2's layout.

    GPT-2 stores linear layers as [in, out] and always with a bias, so missing biases become zeros.
    A tied head is not stored, because it equals `wte`.
    """
    renamed = {}
    for name, value in weights.items():
        if name == "head.weight":
            renamed["lm_head.weight"] = value
            continue
        in_block = name.startswith("blocks.")
        if in_block and value.ndim == 2:
            value = np.ascontiguousarray(value.T)
        new_name = f"transformer.{_rename(name, GPT2_NAMES)}"
        renamed[new_name] = value
        stem, _, kind = name.rpartition(".")
        needs_bias = kind == "weight" and (in_block or stem == "final_norm")
        if needs_bias and f"{stem}.bias" not in weights:
            bias = new_name.removesuffix("weight") + "bias"
            renamed[bias] = np.zeros(value.shape[-1], value.dtype)
    return renamed


def _rename(name: str, names: Mapping[str, str]) -> str:
    for ours, theirs in names.items():
        name = name.replace(ours, theirs)
    return name


def _llama_config(setting: Setting, inner: int) -> dict[str, Any]:
    model, theta = setting.model, setting.model.positions.theta
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "max_position_embeddings": setting.data.seq_len,
        "hidden_size": model.d_model,
        "intermediate_size": inner,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": model.n_kv_head,
        "head_dim": model.head_width,
        "hidden_act": "silu",
        "rms_norm_eps": model.norm.eps or RMSNORM_EPS,
        "initializer_range": model.init.std,
        # The keys of transformers 5 and 4.
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,
        "attention_bias": False,
        "mlp_bias": False,
        "attention_dropout": setting.training.dropout,
        "tie_word_embeddings": model.head.tied,
    }


def _llama_weights(setting: Setting, weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Convert `weights` to Llama's layout, with separate query, key and value matrices."""
    model, renamed = setting.model, {}
    for name, value in weights.items():
        new_name = _rename(name, LLAMA_NAMES)
        if "attention.qkv" not in name:
            renamed[new_name] = value
            continue
        ends = [model.d_model, model.d_model + model.n_kv_head * model.head_width]
        for letter, rows in zip("qkv", np.split(value, ends), strict=True):
            renamed[new_name.replace("attention.qkv", f"self_attn.{letter}_proj")] = rows
    return {name: np.ascontiguousarray(value) for name, value in renamed.items()}


def _remote_config(setting: Setting, vocab_size: int) -> dict[str, Any]:
    model, module = setting.model, MODEL_CODE.removesuffix(".py")
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
            "AutoModelForCausalLM": f"{module}.ParibusForCausalLM",
        },
        "max_position_embeddings": setting.data.seq_len,
        "hidden_size": model.d_model,
        "num_hidden_layers": model.n_layer,
        "num_attention_heads": model.n_head,
        "num_key_value_heads": model.n_kv_head,
        "use_cache": False,
        # A tied head uses the token embeddings and has no parameter of its own.
        "tie_word_embeddings": False,
        "architecture": model.model_dump(mode="json") | sizes,
    }


def remote_code(
    setting: Setting, folder: Path, label: str, trial: Mapping[str, Any]
) -> dict[str, bytes]:
    """Return the Python files of the exported folder, {file name: content}.

    Args:
        setting: The trial's configuration.
        folder: Folder against which import paths of custom modules are resolved.
        label: Name of the trial, for error messages.
        trial: Record of the trial, with the digests that source files must match.

    Raises ParibusError for a part that the exported code does not support, for a changed source
    file, or if a custom module uses other files or shares tensors with other modules.
    """
    for key, name in setting.model.unsupported_kinds.items():
        raise ParibusError(
            f"model.{key} = '{name}' cannot be exported, because {MODEL_CODE} does not contain "
            "this part; train an arm with the part as a custom module (model.modules), whose file "
            "is exported, too",
            code="unsupported",
        )
    code = Path(__file__).with_name(MODEL_CODE).read_text("utf-8")
    custom, files, lines = setting.model.modules.named, {}, []
    digests = own_digests(setting, folder) if custom else {}
    for site, path in custom.items():
        module, _, name = path.partition(":")
        key = f"model.modules.{site} = '{path}'"
        if changed_sources(digests[site], trial["own_modules"].get(site, {})):
            raise ParibusError(
                f"{key} differs from the code that trial {label} was trained with; restore the "
                "original file",
                code="changed",
            )
        if takes_shared(module_class(path, key, folder).forward):
            raise ParibusError(
                f"{key} shares tensors with other modules, which exported models do not support; "
                "export an arm without this module",
                code="unsupported",
            )
        beside = [n for n in digests[site] if n != Path(module).as_posix()]
        if used := [name for name in beside if (folder / name).is_file()]:
            raise ParibusError(
                f"{key} uses {', '.join(used)}, but an exported module must be a single file; "
                f"move the code into {module}",
                code="unsupported",
            )
        stem = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in Path(module).stem)
        files[f"own_{stem}.py"] = (folder / module).read_bytes()
        lines += [f"from .own_{stem} import {name} as _{site}", f'OWN["{site}"] = _{site}']
    marker = "OWN: dict[str, type[nn.Module]] = {}\n"
    assert marker in code
    imports = "".join(f"{line}\n" for line in lines)
    return files | {MODEL_CODE: code.replace(marker, marker + imports).encode()}
