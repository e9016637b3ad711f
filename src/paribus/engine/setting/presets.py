"""Named defaults of a whole model: `model.preset` in a study, or in an arm's overrides.

A preset gives the keys that are not stated themselves. As an arm's override it sets all of them,
so that what differs is printed key by key; other overrides of that arm go over it.
"""

from __future__ import annotations

from typing import Any

from paribus.errors import ParibusError, nearest

PRESET = "model.preset"

# Dotted keys of `model`. Every preset states the same ones, so that one can take another's place.
PRESETS: dict[str, dict[str, Any]] = {
    # Radford et al. 2019, Brown et al. 2020: the defaults.
    "gpt2": {
        "bias": True,
        "positions.kind": "learned",
        "norm.kind": "layernorm",
        "attention.n_kv_head": None,
        "mlp.kind": "gelu",
        "head.tied": True,
    },
    # Touvron et al. 2023, and grouped queries as in Llama 2 70B and
    # all of Llama 3: two heads of keys and values.
    "llama": {
        "bias": False,
        "positions.kind": "rotary",
        "norm.kind": "rmsnorm",
        "attention.n_kv_head": 2,
        "mlp.kind": "swiglu",
        "head.tied": False,
    },
}


def preset_values(name: object) -> dict[str, Any]:
    """Return the dotted keys of `model` that the preset sets. Raises ParibusError for an unknown
    one."""
    if not isinstance(name, str) or name not in PRESETS:
        raise ParibusError(f"{PRESET} = {name!r} is unknown: {nearest(str(name), PRESETS)}")
    return PRESETS[name]


def with_preset(given: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a model with what its preset says of keys that it does not state."""
    table = dict(given)
    for key, value in preset_values(table.get("preset", "gpt2")).items():
        group, _, leaf = key.rpartition(".")
        if not group:
            table.setdefault(leaf, value)
        elif isinstance(inner := table.setdefault(group, {}), dict):
            table[group] = {leaf: value} | inner
    return table
