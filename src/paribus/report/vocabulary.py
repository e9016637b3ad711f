"""What parts, sites and values of a setting are called in page and paper: each name once.

A part without a word here is called by its name, in quotation marks.
"""

from __future__ import annotations

from typing import Any

from paribus import numbers

# What parts are called, by site and name.
WORDS: dict[str, dict[str, str]] = {
    "norm": {
        "layernorm": "LayerNorm",
        "rmsnorm": "RMSNorm",
        "center": "centring (the mean taken away)",
        "fixed_scale": "a fixed scale",
        "rms_free": "RMS normalization without a gain",
    },
    "positions": {
        "learned": "learned absolute positions",
        "rotary": "rotary positions",
        "none": "no positions",
    },
    "mlp": {
        "gelu": "GELU",
        "gelu_tanh": "GELU (by tanh)",
        "swiglu": "SwiGLU",
        "relu2": "squared ReLU",
    },
    "optimizer": {"adamw": "AdamW", "muon": "Muon", "lion": "Lion", "sgd": "SGD"},
    "schedule": {"constant": "a constant schedule", "cosine": "a cosine schedule"},
    "loss": {"cross_entropy": "cross-entropy"},
    "corpus": {
        "shakespeare": "the collected Shakespeare text",
        "pydoc": "the language reference that comes with Python",
        "text": "the user's own text",
        "jsonl": "the user's own text, in files of JSON lines",
        "parquet": "the user's own text, in Parquet files",
        "huggingface": "a data set of the Hugging Face hub",
        "fineweb-edu": "educational web text (FineWeb-Edu)",
        "tinystories": "short synthetic stories (TinyStories)",
        "wikitext-103": "good and featured articles of Wikipedia (WikiText-103, raw)",
        "enwik8": "the first 100,000,000 bytes of an English Wikipedia in XML (enwik8)",
    },
    "precision": {
        "float32": "float32",
        "bfloat16": "mixed: float32 weights and optimizer, bfloat16 matrix products",
        "float16": "mixed: float32 weights and optimizer, float16 matrix products",
        "auto": "not settled yet",
    },
    "decay": {
        "matrices": "on all matrices, embeddings included",
        "linear": "on all matrices but embeddings",
    },
}

# What is so of a model where no key of its setting states it.
BUILT_IN: dict[str, Any] = {
    "norm.kind": "layernorm",
    "norm.placement": "pre",
    "norm.eps": None,
    "positions.kind": "learned",
    "mlp.kind": "gelu",
    "head.tied": True,
    "head.softcap": None,
    "attention.kind": "causal",
    "attention.n_kv_head": None,
    "attention.qk_norm": "none",
    "attention.softcap": None,
    "attention.window": None,
}

# Where a user's own module stands, by site.
SITES = {
    "embedding": "the stage before the first block",
    "block_norm": "the norm before each sub-layer",
    "attention": "attention",
    "mlp": "the MLP",
    "positions": "the positions",
    "head": "the head",
    "final_norm": "the norm after the last block",
}

# Keys of `data` that say more than where the text is from: other sentences are about them.
OF_DATA = frozenset(
    {
        *("corpus", "path", "tokenizer", "seq_len", "order", "pack", "deduplicate"),
        *("validation_fraction", "validation_path", "validation_tokens"),
        *("test_fraction", "test_path", "sources", "mixture", "curriculum"),
    }
)

OF_OPTIMIZERS = {
    "learning_rate": "a learning rate of {}",
    "betas": "β of {}",
    "eps": "ε of {}",
    "weight_decay": "a weight decay of {}",
    "options": "the options {}",
    "groups": "groups of parameters with settings of their own ({})",
}


def called(site: str, name: str) -> str:
    """What the part `name` is called; one without words by its name."""
    return WORDS[site].get(name, f"“{name}”")


def listed(words: list[str]) -> str:
    """`a, b and c`."""
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def capped(limit: float | None, what: str) -> str:
    """`, logits softly capped at 30`; empty without a limit."""
    return "" if limit is None else f", {what} softly capped at {plain(limit)}"


class Worded(str):
    """Words of ours, which are not quoted."""


def plain(value: Any) -> str:
    """A value of a setting as a reader writes it."""
    if isinstance(value, Worded):
        return value
    if isinstance(value, dict):
        stated = {key: inner for key, inner in value.items() if inner not in ({}, None)}
        return listed([f"{key} {plain(inner)}" for key, inner in stated.items()])
    if isinstance(value, (list, tuple)):
        return listed([plain(inner) for inner in value])
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return f"“{value}”" if isinstance(value, str) else str(value).lower()
    return numbers.compact(value)


def sources(digests: dict[str, str]) -> str:
    """What an own module is made of: the digest of each file's part in it."""
    return ", ".join(f"{digest[:12]} of {file}" for file, digest in digests.items())
