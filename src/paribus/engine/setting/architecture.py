"""Model section of a study: parts, sizes and initialization.

Names of parts are resolved when the model is built (`engine.model`).
"""

from __future__ import annotations

from operator import attrgetter
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from paribus.engine.setting.data import SeqLen
from paribus.errors import ParibusError, nearest
from paribus.study.base import Seed, Spec

Layers = Annotated[int, Field(gt=0, le=1_000)]  # DeepNet has as many (Wang et al. 2022)
Width = Annotated[int, Field(gt=0, le=2**16)]
# The error about an unknown name lists the known ones, also for true and false.
Name = Annotated[str, BeforeValidator(lambda x: str(x) if isinstance(x, bool) else x)]


class Embedding(Spec):
    """Token and position embeddings before the first block, optionally normalized."""

    norm: Name = "none"
    """Norm from `paribus/engine/model/norms/`: none, layernorm, rmsnorm, center, ..."""
    norm_at: Literal["sum", "tokens"] = "sum"
    """`sum` normalizes the sum of token and position embeddings; `tokens` normalizes token
    embeddings before positions are added."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """Epsilon of the norm; None means 1e-5 for LayerNorm and 1e-6 for RMSNorm."""


class Init(Spec):
    """Standard deviations of the initial weights, by default as in GPT-2 (Radford et al. 2019)."""

    std: Annotated[float, Field(ge=0)] = 0.02
    """Standard deviation of all matrices except token and position embeddings."""
    token_std: Annotated[float, Field(ge=0)] = 0.02
    """Standard deviation of token embeddings."""
    position_std: Annotated[float, Field(ge=0)] = 0.02
    """Standard deviation of learned position embeddings."""
    salt: Seed = 0
    """Salt of the random stream; another salt gives different initial values with the same seed."""
    scale_residual: bool = True
    """Divide `std` by sqrt(2 n_layer) for projections into the residual stream."""


class Positions(Spec):
    """Position encoding."""

    kind: Name = "learned"
    """Position encoding from `paribus/engine/model/positions/`: learned, rotary, none."""
    theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of rotary angles (Su et al. 2021); channel pair i rotates by theta^(-2i/K) per token."""


class Norm(Spec):
    """Norms in blocks and before the head."""

    kind: Name = "layernorm"
    """Norm from `paribus/engine/model/norms/`: layernorm, rmsnorm, ..."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """Epsilon of the norms; None means 1e-5 for LayerNorm and 1e-6 for RMSNorm."""
    placement: Literal["pre", "post"] = "pre"
    """`pre` computes x + f(norm(x)), with a final norm before the head; `post` computes
    norm(x + f(x)), without a final norm."""


NORMS = ("none", "layernorm", "rmsnorm", "rms_free", "center", "fixed_scale")
# Parts that the cost formulas and the exported model code support, by dotted key of `model`.
SUPPORTED_KINDS = {
    "embedding.norm": NORMS,
    "positions.kind": ("learned", "rotary", "none"),
    "norm.kind": NORMS,
    "attention.kind": ("causal",),
    "attention.qk_norm": NORMS,
    "mlp.kind": ("gelu", "gelu_tanh", "relu2", "swiglu"),
}


class Attention(Spec):
    """Causal self-attention."""

    kind: Name = "causal"
    """Attention from `paribus/engine/model/attentions/`."""
    n_kv_head: Width | None = None
    """Number of key-value heads (grouped-query attention, Ainslie et al. 2023); None means
    `n_head`."""
    qk_norm: Name = "none"
    """Norm of queries and keys in each head (Dehghani et al. 2023); same names as `norm.kind`."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Soft cap of attention scores, softcap tanh(score / softcap) (Gemma 2); None means no cap."""
    window: SeqLen | None = None
    """Sliding window: number of tokens that a token attends to, including itself (Beltagy et al.
    2020); None means no limit."""


class MLP(Spec):
    """MLP in each block."""

    kind: Name = "gelu"
    """MLP from `paribus/engine/model/mlps/`: gelu, gelu_tanh, relu2, swiglu."""
    ratio: Annotated[int, Field(gt=0, le=64)] = 4
    """Inner width as a multiple of d_model."""
    match_parameters: bool = True
    """Reduce the width of a gated MLP, which has three matrices, to match the parameter count of an
    ungated MLP with this ratio."""


class Head(Spec):
    """Output head, which maps the last hidden state to logits."""

    tied: bool = True
    """Share the token embedding matrix with the head (weight tying, Press & Wolf 2017)."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Soft cap of logits, softcap tanh(logit / softcap) (Gemma 2); None means no cap."""


class Modules(Spec):
    """Custom modules that replace built-in parts, each an import path `file.py:Class`.

    A module is built as `Class(model)` with a `paribus.extend.ModelConfig`. Below, B is the batch
    size, T the number of tokens and D the number of channels. If `forward` has an argument
    `shared`, it receives a `paribus.extend.Shared`, except for positions. Generation uses a
    key-value cache if all custom modules declare `cached = True`."""

    embedding: str | None = None
    """Token and position embeddings: `forward(tokens)` maps [B, T] int64 to [B, T, D]. The
    attribute `tokens` must be an nn.Embedding, whose weight a tied head reuses. With
    `cached = True`, `forward` receives the first token's position as second argument."""
    positions: str | None = None
    """Position encoding. If its class attribute `stands` is "embedding", `forward(positions)` maps
    [T] int64 to [T, D]; if "attention", `forward(q, k, positions)` maps two tensors [B, H, T, K] to
    the same shapes; if "nowhere", `forward` is never called."""
    block_norm: str | None = None
    """Norms within blocks: `forward(x)` maps [B, T, D] to the same shape."""
    attention: str | None = None
    """Attention: `forward(x)` maps [B, T, D] to the same shape. With `cached = True`, it is also
    called as `forward(x, cache)`, with a `paribus.extend.KeyValueCache`."""
    mlp: str | None = None
    """MLP: `forward(x)` maps [B, T, D] to the same shape."""
    final_norm: str | None = None
    """Norm before the head: `forward(x)` maps [B, T, D] to the same shape."""
    head: str | None = None
    """Output head: `forward(x, tokens)` maps hidden states [..., D] and the token matrix [V, D] to
    logits [..., V]."""

    @property
    def named(self) -> dict[str, str]:
        """Import paths of the custom modules, keyed by site."""
        return {site: path for site, path in self.model_dump().items() if path is not None}


# Presets are named defaults of a whole model. One sets the keys that are not set themselves; as an
# arm's override it sets all of them, so that each difference is printed, and the arm's other
# overrides take precedence.
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
    """Return the values that a preset sets, keyed by dotted `model` key.

    Raises ParibusError for an unknown preset.
    """
    if not isinstance(name, str) or name not in PRESETS:
        hint = nearest(str(name), PRESETS)
        raise ParibusError(f"{PRESET} = {name!r} is unknown; {hint}", code="unknown")
    return PRESETS[name]


def with_preset(table: dict[str, Any]) -> dict[str, Any]:
    """Return a copy of a `model` table with missing keys filled in from its preset."""
    table = dict(table)
    for key, value in preset_values(table.get("preset", "gpt2")).items():
        group, _, leaf = key.rpartition(".")
        if not group:
            table.setdefault(leaf, value)
        elif isinstance(inner := table.setdefault(group, {}), dict):
            table[group] = {leaf: value} | inner
    return table


class Model(Spec):
    """Decoder-only Transformer, by default GPT-2-style: Pre-LayerNorm with tied embeddings."""

    preset: str = "gpt2"
    """Preset that sets the defaults of other keys: gpt2 or llama."""
    n_layer: Layers = 8
    """Number of blocks."""
    n_head: Width = 8
    """Number of attention heads."""
    d_model: Width = 128
    """Number of channels in the residual stream."""
    bias: bool = True
    """Add a bias to linear layers and LayerNorm."""
    embedding: Embedding = Embedding()
    positions: Positions = Positions()
    norm: Norm = Norm()
    attention: Attention = Attention()
    mlp: MLP = MLP()
    head: Head = Head()
    init: Init = Init()
    modules: Modules = Modules()

    @model_validator(mode="before")
    @classmethod
    def _from_preset(cls, table: Any) -> Any:
        return with_preset(table) if isinstance(table, dict) else table

    @property
    def head_width(self) -> int:
        """Number of channels per head."""
        return self.d_model // self.n_head

    @property
    def gated_width(self) -> int:
        """Inner width of a gated MLP (Shazeer 2020)."""
        D, W, bias = self.d_model, self.mlp.ratio * self.d_model, int(self.bias)
        if not self.mlp.match_parameters:
            return W
        return max(1, round((2 * D + bias) * W / (3 * D + 2 * bias)))

    @property
    def mlp_shape(self) -> tuple[int, int]:
        """Inner width and number of matrices of an MLP in `SUPPORTED_KINDS`."""
        is_gated = self.mlp.kind == "swiglu"
        return (self.gated_width, 3) if is_gated else (self.mlp.ratio * self.d_model, 2)

    @property
    def unsupported_kinds(self) -> dict[str, str]:
        """Names of parts that are not in `SUPPORTED_KINDS`, keyed by dotted key."""
        names = {key: attrgetter(key)(self) for key in SUPPORTED_KINDS}
        return {key: name for key, name in names.items() if name not in SUPPORTED_KINDS[key]}

    @property
    def n_kv_head(self) -> int:
        """Number of key-value heads."""
        return self.attention.n_kv_head or self.n_head

    @model_validator(mode="after")
    def _sizes_work_together(self) -> Self:
        if self.d_model % self.n_head:
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by n_head = {self.n_head}, but all "
                "heads have the same number of channels; set d_model to a multiple of n_head"
            )
        if self.n_head % self.n_kv_head:
            raise ValueError(
                f"n_head = {self.n_head} is not divisible by attention.n_kv_head = "
                f"{self.n_kv_head}, but all key-value heads serve the same number of query heads; "
                "set n_head to a multiple of attention.n_kv_head"
            )
        is_rotary = self.modules.positions is None and self.positions.kind == "rotary"
        if is_rotary and self.head_width % 2:
            raise ValueError(
                f"rotary positions require an even number of channels per head, but a head has "
                f"{self.head_width} (d_model = {self.d_model} divided by n_head = {self.n_head}); "
                "set d_model to an even multiple of n_head"
            )
        return self
