"""Every part that ships, and every option of the others, as overrides of the small study.

Found in the registries, so that a new part is tested the moment it exists.
"""

from __future__ import annotations

from typing import Any

from paribus.engine.model.parts import parts

# A norm of embeddings alone.
OF_EMBEDDINGS = ("fixed_scale",)

VARIANTS: dict[str, dict[str, Any]] = (
    {f"positions {name}": {"model.positions.kind": name} for name in parts("positions")}
    | {f"mlp {name}": {"model.mlp.kind": name} for name in parts("mlps")}
    | {
        f"{site} {name}": {f"model.{key}": name}
        for site, key in (("norm", "norm.kind"), ("qk_norm", "attention.qk_norm"))
        for name in parts("norms")
        if name not in OF_EMBEDDINGS
    }
    | {f"embedding {name}": {"model.embedding.norm": name} for name in parts("norms")}
    | {"tokens": {"model.embedding.norm": "layernorm", "model.embedding.norm_at": "tokens"}}
    | {
        "eps": {"model.embedding.norm": "layernorm", "model.embedding.eps": 0.01},
        "unmatched": {"model.mlp.kind": "swiglu", "model.mlp.match_parameters": False},
        "grouped": {"model.attention.n_kv_head": 1},
        "score cap": {"model.attention.softcap": 0.5},
        "window": {"model.attention.window": 5},
        "post": {"model.norm.placement": "post"},
        "untied": {"model.head.tied": False},
        "logit cap": {"model.head.softcap": 2.0},
        "no bias": {"model.bias": False},
        "llama": {"model.preset": "llama"},
        "much": {
            "model.preset": "llama",
            "model.attention.n_kv_head": 1,
            "model.attention.qk_norm": "rmsnorm",
            "model.attention.softcap": 0.7,
            "model.attention.window": 7,
            "model.head.softcap": 3.0,
            "model.norm.placement": "post",
            "model.mlp.kind": "relu2",
        },
    }
)
