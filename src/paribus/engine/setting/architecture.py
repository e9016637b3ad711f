"""The model's part of a setting: which parts it has at each site, how large, and how they start.

Names of parts are looked up where they are declared (`engine.model`); what can be refused from the
numbers alone is refused here.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from paribus.engine.setting.bounds import MOST_MLP_RATIO, Layers, SeqLen, Width
from paribus.engine.setting.presets import with_preset
from paribus.study.base import Spec
from paribus.study.bounds import Seed


class Embedding(Spec):
    """The stage before the first block: token plus position embeddings, perhaps normalised."""

    norm: str = "none"
    """A file of `paribus/engine/model/norms/`: none, layernorm, rmsnorm, center, ..."""
    norm_at: Literal["sum", "tokens"] = "sum"
    """Normalise the sum of tokens and positions, or the tokens before positions are added."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """None is the norm's own: 1e-5 for LayerNorm, 1e-6 for RMSNorm."""


class Init(Spec):
    """Standard deviations of the initial weights (GPT-2's: Radford et al. 2019)."""

    std: Annotated[float, Field(ge=0)] = 0.02
    """Of every matrix but those of the next two keys."""
    token_std: Annotated[float, Field(ge=0)] = 0.02
    """Of token embeddings."""
    position_std: Annotated[float, Field(ge=0)] = 0.02
    """Of learned positions."""
    salt: Seed = 0
    """Another salt draws other values from the same distributions: an arm that differs in nothing
    else differs in luck alone."""
    scale_residual: bool = True
    """Divide the std of projections into the residual stream by sqrt(2 n_layer)."""


class Positions(Spec):
    """How the model knows the order of tokens."""

    kind: str = "learned"
    """A file of `paribus/engine/model/positions/`: learned, rotary, none."""
    theta: Annotated[float, Field(gt=0)] = 10_000.0
    """The base of rotary angles (Su et al. 2021): channel pair i turns by theta^(-2i/K) a token."""


class Norm(Spec):
    """The norm of blocks and before the head."""

    kind: str = "layernorm"
    """A file of `paribus/engine/model/norms/`: layernorm, rmsnorm, ..."""
    eps: Annotated[float, Field(gt=0)] | None = None
    """None is the norm's own: 1e-5 for LayerNorm, 1e-6 for RMSNorm."""
    placement: Literal["pre", "post"] = "pre"
    """`pre` is x + f(norm(x)) and a norm before the head; `post` is norm(x + f(x)) and none."""


CAUSAL = "causal"  # the attention that the other keys are about


class Attention(Spec):
    """Self-attention, which never looks ahead."""

    kind: str = CAUSAL
    """A file of `paribus/engine/model/attentions/`."""
    n_kv_head: Width | None = None
    """Heads of keys and values (grouped queries: Ainslie et al. 2023); None is `n_head`."""
    qk_norm: str = "none"
    """A norm of each head's queries and keys (Dehghani et al. 2023): a file of `model/norms/`."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Scores become softcap tanh(score / softcap) (Gemma 2); None leaves them."""
    window: SeqLen | None = None
    """Each token sees so many, itself included (Beltagy et al. 2020); None is all before it."""


class MLP(Spec):
    """The inner layer of blocks."""

    kind: str = "gelu"
    """A file of `paribus/engine/model/mlps/`: gelu, gelu_tanh, relu2, swiglu."""
    ratio: Annotated[int, Field(gt=0, le=MOST_MLP_RATIO)] = 4
    """The inner width as a multiple of d_model."""
    match_parameters: bool = True
    """A gated MLP has three matrices: make it narrower, so that it has the parameters of an
    ungated one of this ratio, as nearly as whole channels allow; or else keep the width."""


class Head(Spec):
    """From the last hidden state to logits."""

    tied: bool = True
    """Whether the token matrix is the head as well (Press & Wolf 2017)."""
    softcap: Annotated[float, Field(gt=0)] | None = None
    """Logits become softcap tanh(logit / softcap) (Gemma 2); None leaves them."""


class Modules(Spec):
    """The user's own modules, by site: an import path `package.module:Class` or `file.py:Class`.

    They take the place of what the site's other settings name, and are built as `Class(model)`,
    with a `paribus.extend.ModelConfig`. `forward` is called as below, with B windows of T tokens
    and D channels; one that has an argument `shared: paribus.extend.Shared` is given it by name, at
    every site but positions. Text is decoded piece by piece if all of them say `cached = True`."""

    embedding: str | None = None
    """Token and position embeddings together, with `tokens`, an nn.Embedding that a tied head
    shares: `forward(tokens)`, [B, T] int64, gives [B, T, D]; with `cached = True` the position of
    the first token, an int, is a second argument."""
    positions: str | None = None
    """Positions, whose class says where it `stands`: "embedding", `forward(positions)`, [T] int64,
    gives [T, D]; "attention", `forward(q, k, positions)`, [B, H, T, K] each, gives both; or
    "nowhere"."""
    block_norm: str | None = None
    """The norms within blocks: `forward(x)`, [B, T, D] to the same."""
    attention: str | None = None
    """Attention: `forward(x)`, [B, T, D] to the same; with `cached = True` also `forward(x, cache)`
    with a `paribus.extend.KeyValueCache`."""
    mlp: str | None = None
    """The MLP: `forward(x)`, [B, T, D] to the same."""
    final_norm: str | None = None
    """The norm before the head: `forward(x)`, [B, T, D] to the same."""
    head: str | None = None
    """From the last hidden state to logits: `forward(x, tokens)`, hidden states [..., D] and the
    token matrix [V, D], gives logits [..., V]. With a third, `forward(x, tokens, shared)`, it reads
    what parts left, and gives a loss further outputs, such as the logits of a second head."""

    @property
    def named(self) -> dict[str, str]:
        """The import path of every site that has one."""
        return {site: path for site, path in self.model_dump().items() if path is not None}


class Model(Spec):
    """A decoder-only Transformer: by default GPT-3-style, Pre-LayerNorm with tied embeddings."""

    preset: str = "gpt2"
    """Where the defaults of the other keys are from: `engine.setting.presets` lists them."""
    n_layer: Layers = 8
    """Blocks."""
    n_head: Width = 8
    """Attention heads."""
    d_model: Width = 128
    """Channels of the residual stream."""
    bias: bool = True
    """Whether linear layers, and norms that can, have a bias."""
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
    def _from_preset(cls, given: Any) -> Any:
        return with_preset(given) if isinstance(given, dict) else given

    @property
    def head_width(self) -> int:
        """Channels of a head."""
        return self.d_model // self.n_head

    @property
    def n_kv_head(self) -> int:
        """Heads of keys and values."""
        return self.attention.n_kv_head or self.n_head

    @model_validator(mode="after")
    def _sizes_work_together(self) -> Self:
        if self.d_model % self.n_head:
            raise ValueError(
                f"d_model = {self.d_model} is not divisible by n_head = {self.n_head}; "
                "every head needs the same whole number of channels"
            )
        if self.n_head % self.n_kv_head:
            raise ValueError(
                f"n_head = {self.n_head} is not divisible by attention.n_kv_head = "
                f"{self.n_kv_head}; every head of keys and values serves the same number of queries"
            )
        if self.norm.placement == "post" and self.modules.final_norm is not None:
            raise ValueError(
                "modules.final_norm has no place where norm.placement = 'post': there is no norm "
                "before the head; leave it out"
            )
        if self.modules.positions is None and self.positions.kind == "rotary":
            if self.head_width % 2:
                raise ValueError(
                    f"rotary positions turn pairs of channels, and a head has {self.head_width} "
                    f"(d_model = {self.d_model} over n_head = {self.n_head}); take an even number"
                )
        elif self.modules.positions is None and self.positions.theta != Positions().theta:
            raise ValueError(
                f"positions.theta = {self.positions.theta:g} has no effect on positions.kind = "
                f"'{self.positions.kind}'; it is of rotary positions"
            )
        return self
