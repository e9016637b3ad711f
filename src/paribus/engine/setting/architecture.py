"""The model of a setting: its parts, sizes and initialization.

Names of parts are looked up when the model is built (`engine.model`).
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.engine.setting.data import SeqLen
from paribus.errors import ParibusError, nearest
from paribus.study.base import Seed, Spec

Layers = Annotated[int, Field(gt=0, le=1_000)]  # DeepNet has as many (Wang et al. 2022)
Width = Annotated[int, Field(gt=0, le=2**16)]


class Embedding(Spec):
    """Token and position embeddings before the first block, optionally normalized."""

    norm: str = "none"
    """A file of `paribus/engine/model/norms/`: none, layernorm, rmsnorm, center, ..."""
    norm_at: Literal["sum", "tokens"] = "sum"
    """Normalize the sum of tokens and positions, or the tokens before positions are added."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """None is the norm's default: 1e-5 for LayerNorm, 1e-6 for RMSNorm."""


class Init(Spec):
    """Standard deviations of the initial weights (GPT-2's: Radford et al. 2019)."""

    std: Annotated[float, Field(ge=0)] = 0.02
    """Of all matrices except those of the next two keys."""
    token_std: Annotated[float, Field(ge=0)] = 0.02
    """Of token embeddings."""
    position_std: Annotated[float, Field(ge=0)] = 0.02
    """Of learned positions."""
    salt: Seed = 0
    """Another salt draws other values from the same distributions."""
    scale_residual: bool = True
    """Divide the std of projections into the residual stream by sqrt(2 n_layer)."""


class Positions(Spec):
    """Position encoding."""

    kind: str = "learned"
    """A file of `paribus/engine/model/positions/`: learned, rotary, none."""
    theta: Annotated[float, Field(gt=0)] = 10_000.0
    """Base of rotary angles (Su et al. 2021): channel pair i rotates by theta^(-2i/K) per token."""


class Norm(Spec):
    """Norms in blocks and before the head."""

    kind: str = "layernorm"
    """A file of `paribus/engine/model/norms/`: layernorm, rmsnorm, ..."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """None is the norm's default: 1e-5 for LayerNorm, 1e-6 for RMSNorm."""
    placement: Literal["pre", "post"] = "pre"
    """`pre` is x + f(norm(x)), with a norm before the head; `post` is norm(x + f(x)), without."""


CAUSAL = "causal"  # the attention that has the other keys


class Attention(Spec):
    """Causal self-attention."""

    kind: str = CAUSAL
    """A file of `paribus/engine/model/attentions/`."""
    n_kv_head: Width | None = None
    """Heads of keys and values (grouped queries: Ainslie et al. 2023); None is `n_head`."""
    qk_norm: str = "none"
    """A norm of each head's queries and keys (Dehghani et al. 2023): a file of `model/norms/`."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Scores become softcap tanh(score / softcap) (Gemma 2); None leaves them."""
    window: SeqLen | None = None
    """Tokens that each token sees, itself included (Beltagy et al. 2020); None is all before it."""


class MLP(Spec):
    """MLPs of blocks."""

    kind: str = "gelu"
    """A file of `paribus/engine/model/mlps/`: gelu, gelu_tanh, relu2, swiglu."""
    ratio: Annotated[int, Field(gt=0, le=64)] = 4
    """The inner width as a multiple of d_model."""
    match_parameters: bool = True
    """Make a gated MLP, which has three matrices, narrower, so that it has as many parameters as an
    ungated one of this ratio."""


class Head(Spec):
    """Map from the last hidden state to logits."""

    tied: bool = True
    """Use the token matrix as the head (Press & Wolf 2017)."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Logits become softcap tanh(logit / softcap) (Gemma 2); None leaves them."""


class Modules(Spec):
    """Custom modules, by site: an import path `file.py:Class`.

    They replace the shipped part of the site and are built as `Class(model)`, with a
    `paribus.extend.ModelConfig`. Below, B is windows, T tokens and D channels. A `forward` with an
    argument `shared` receives a `paribus.extend.Shared`, except for positions. Text is decoded with
    a cache if all of them declare `cached = True`."""

    embedding: str | None = None
    """Token and position embeddings, with `tokens`, an nn.Embedding that a tied head shares:
    `forward(tokens)` maps [B, T] int64 to [B, T, D]; with `cached = True`, the second argument is
    the position of the first token."""
    positions: str | None = None
    """Positions with a class attribute `stands`: "embedding", `forward(positions)` maps [T] int64
    to [T, D]; "attention", `forward(q, k, positions)` maps two [B, H, T, K] to the same; or
    "nowhere"."""
    block_norm: str | None = None
    """The norms within blocks: `forward(x)`, [B, T, D] to the same."""
    attention: str | None = None
    """Attention: `forward(x)`, [B, T, D] to the same; with `cached = True`, also
    `forward(x, cache)` with a `paribus.extend.KeyValueCache`."""
    mlp: str | None = None
    """The MLP: `forward(x)`, [B, T, D] to the same."""
    final_norm: str | None = None
    """The norm before the head: `forward(x)`, [B, T, D] to the same."""
    head: str | None = None
    """The head: `forward(x, tokens)` maps hidden states [..., D] and the token matrix [V, D] to
    logits [..., V]."""

    @property
    def named(self) -> dict[str, str]:
        """Import paths of the custom modules, by site."""
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


class Model(Spec):
    """A decoder-only Transformer: by default GPT-3-style, Pre-LayerNorm with tied embeddings."""

    preset: str = "gpt2"
    """Defaults of the other keys: gpt2 or llama."""
    n_layer: Layers = 8
    """Blocks."""
    n_head: Width = 8
    """Attention heads."""
    d_model: Width = 128
    """Channels of the residual stream."""
    bias: bool = True
    """Give linear layers and LayerNorm a bias."""
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
        """Channels of a head."""
        return self.d_model // self.n_head

    @property
    def mlp_shape(self) -> tuple[int, int]:
        """The inner width of the MLP and its number of matrices (Shazeer 2020)."""
        D, W, bias = self.d_model, self.mlp.ratio * self.d_model, int(self.bias)
        if self.mlp.kind != "swiglu":
            return W, 2
        if self.mlp.match_parameters:
            W = max(1, round((2 * D + bias) * W / (3 * D + 2 * bias)))
        return W, 3

    @property
    def n_kv_head(self) -> int:
        """Heads of keys and values."""
        return self.attention.n_kv_head or self.n_head

    @model_validator(mode="after")
    def _sizes_work_together(self) -> Self:
        if self.d_model % self.n_head:
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by n_head = {self.n_head}; "
                "all heads have the same number of channels"
            )
        if self.n_head % self.n_kv_head:
            raise ValueError(
                f"n_head = {self.n_head} is not divisible by attention.n_kv_head = "
                f"{self.n_kv_head}; all heads of keys and values serve as many query heads"
            )
        is_rotary = self.modules.positions is None and self.positions.kind == "rotary"
        if is_rotary and self.head_width % 2:
            raise ValueError(
                f"rotary positions rotate pairs of channels, and a head has {self.head_width} "
                f"(d_model = {self.d_model} over n_head = {self.n_head}); use an even number"
            )
        return self
