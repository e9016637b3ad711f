"""Presets: named defaults of a whole model, `model.preset` in a study or in an arm's overrides.

A preset sets the keys that are not set themselves. As an arm's override it sets all of them, so
that each difference is printed; the arm's other overrides take precedence.
"""

from __future__ import annotations

from typing import Any

from paribus.errors import ParibusError, nearest

PRESET = "model.preset"

# Dotted keys of `model`. Every preset sets the same keys, so that one can replace another.
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
    # Touvron et al. 2023, with the grouped queries of Llama 2 70B and Llama 3.
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
    """Return the dotted keys that a preset sets. Raises ParibusError for an unknown preset."""
    if not isinstance(name, str) or name not in PRESETS:
        hint = nearest(str(name), PRESETS)
        raise ParibusError(f"{PRESET} = {name!r} is unknown: {hint}", code="unknown")
    return PRESETS[name]


def with_preset(table: dict[str, Any]) -> dict[str, Any]:
    """Return the table of a model completed by the values of its preset."""
    table = dict(table)
    for key, value in preset_values(table.get("preset", "gpt2")).items():
        group, _, leaf = key.rpartition(".")
        if not group:
            table.setdefault(leaf, value)
        elif isinstance(inner := table.setdefault(group, {}), dict):
            table[group] = {leaf: value} | inner
    return table
