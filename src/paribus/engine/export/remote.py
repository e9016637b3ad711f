"""A model that no library has, with the code that it needs, for `trust_remote_code`.

The folder holds `modeling_paribus.py`, which has every part that ships, and a copy of each file
with a part of the user's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np

from paribus.errors import ParibusError
from paribus.study import Setting
from paribus.study.custom_code import changed_sources, own_digests

MODEL_CODE = "modeling_paribus.py"
# What `modeling_paribus.py` has; a site's own parts go beside it.
KNOWN = {
    "norms": ("none", "layernorm", "rmsnorm", "rms_free", "center", "fixed_scale"),
    "positions": ("learned", "rotary", "none"),
    "mlps": ("gelu", "gelu_tanh", "relu2", "swiglu"),
}


def remote_config(setting: Setting, vocab_size: int) -> dict[str, Any]:
    """The content of config.json, but for the special tokens."""
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


def remote_weights(weights: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """`weights` by the names of `modeling_paribus.py`."""
    return {n if n.startswith("head.") else f"model.{n}": value for n, value in weights.items()}


def remote_code(
    setting: Setting, folder: Path, label: str, trial: Mapping[str, Any]
) -> dict[str, bytes]:
    """The Python files of the exported folder, by name.

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


def _own_files(
    setting: Setting, folder: Path, label: str, trial: Mapping[str, Any]
) -> dict[str, bytes]:
    """Copies of the files that the user's own parts are in."""
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
    """The name of the copied file, as Python imports it."""
    stem = "".join(c if c.isidentifier() or c.isdigit() else "_" for c in Path(module).stem)
    return f"own_{stem}"
