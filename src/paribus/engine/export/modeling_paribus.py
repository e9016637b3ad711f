"""Decoder-only Transformer trained with paribus, for transformers 4.57 or 5.

This file is copied to exported folders and depends only on the custom modules in the same folder.
`config.architecture` is the model section of the study. The model has no dropout.

Axes: B batch, T positions, D d_model, H query heads, G key-value heads, K channels per head.
"""

from __future__ import annotations

# The type hints in transformers differ between 4.57 and 5, and from its behavior.
import math
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import PretrainedConfig, PreTrainedModel
from transformers.generation.utils import GenerationMixin
from transformers.modeling_outputs import CausalLMOutput

# Custom parts, keyed by site; the export adds lines that fill it.
OWN: dict[str, type[nn.Module]] = {}
LAYERNORM_EPS, RMSNORM_EPS = 1e-5, 1e-6


class ParibusConfig(PretrainedConfig):
    """Configuration of an exported model.

    `architecture` is the model section of the study, plus `seq_len`, `vocab_size` and `dropout`.
    """

    model_type = "paribus"

    def __init__(self, architecture: dict[str, Any] | None = None, **kwargs: Any) -> None:
        self.architecture = architecture or {}
        super().__init__(**kwargs)


def spec(config: ParibusConfig, layer: int | None = None) -> Any:
    """Convert the architecture to nested namespaces, such as `model.attention.window`.

    Args:
        layer: 0-based index of the block to build, or None outside of blocks.
    """
    model = _dotted(config.architecture)
    model.layer = layer
    model.head_width = model.d_model // model.n_head
    model.n_kv_head = model.attention.n_kv_head or model.n_head
    return model


def _dotted(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    return SimpleNamespace(**{key: _dotted(inner) for key, inner in value.items()})


class PlainNorm(nn.Module):
    """Normalization without parameters: rms_free, center or fixed_scale."""

    def __init__(self, model: Any, kind: str, eps: float) -> None:
        super().__init__()
        self.kind, self.eps, self.scale = kind, eps, 1.0
        if kind == "fixed_scale":
            summed = model.embedding.norm_at == "sum" and model.positions.kind == "learned"
            variance = model.init.token_std**2 + (model.init.position_std**2 if summed else 0.0)
            self.scale = torch.tensor(1 / math.sqrt(variance), device="cpu").item()

    def forward(self, x: Tensor) -> Tensor:
        """Normalize x [..., D] over D."""
        if self.kind == "rms_free":
            return F.rms_norm(x, x.shape[-1:], eps=self.eps)
        return x - x.mean(dim=-1, keepdim=True) if self.kind == "center" else x * self.scale


def norm(model: Any, kind: str, width: int, eps: float | None, bias: bool) -> nn.Module:
    """Create a norm of type `kind` over `width` channels; `eps=None` selects its default."""
    if kind == "layernorm":
        return nn.LayerNorm(width, eps=eps or LAYERNORM_EPS, bias=bias)
    if kind == "rmsnorm":
        return nn.RMSNorm(width, eps=eps or RMSNORM_EPS)
    return nn.Identity() if kind == "none" else PlainNorm(model, kind, eps or RMSNORM_EPS)


class MLP(nn.Module):
    """Feed-forward layer: act(x W_up) W_down, or SwiGLU (SiLU(x W_gate) * x W_up) W_down."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        d, width, biased = model.d_model, model.mlp.ratio * model.d_model, int(model.bias)
        self.kind = model.mlp.kind
        if self.kind == "swiglu":
            if model.mlp.match_parameters:
                width = max(1, round((2 * d + biased) * width / (3 * d + 2 * biased)))
            self.gate = nn.Linear(d, width, bias=model.bias)
        self.up = nn.Linear(d, width, bias=model.bias)
        self.down = nn.Linear(width, d, bias=model.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Map x [B, T, D] to [B, T, D]."""
        up = self.up(x)
        if self.kind == "swiglu":
            return self.down(F.silu(self.gate(x)) * up)
        if self.kind == "relu2":
            return self.down(F.relu(up).square())
        return self.down(F.gelu(up, approximate="tanh" if self.kind == "gelu_tanh" else "none"))


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model_spec = model
        H, G, K = model.n_head, model.n_kv_head, model.head_width
        self.qkv = nn.Linear(model.d_model, (H + 2 * G) * K, bias=model.bias)
        self.out = nn.Linear(model.d_model, model.d_model, bias=model.bias)
        kind, eps = model.attention.qk_norm, model.norm.eps
        self.q_norm = norm(model, kind, K, eps, model.bias)
        self.k_norm = norm(model, kind, K, eps, model.bias)
        self.turn = own_positions(model, "attention")

    def forward(self, x: Tensor, hidden: Tensor, positions: Tensor) -> Tensor:
        """Map x [B, T, D] to [B, T, D].

        Args:
            hidden: [B, 1, T, T] attention mask, True where attention is not allowed.
            positions: [B, T] positions of the tokens.
        """
        model = self.model_spec
        H, G, K = model.n_head, model.n_kv_head, model.head_width
        B, T, D = x.shape
        qkv = self.qkv(x).view(B, T, H + 2 * G, K).transpose(1, 2)
        q, k, v = qkv.split((H, G, G), dim=1)
        q, k = self.q_norm(q), self.k_norm(k)
        if self.turn is not None:
            q, k = self.turn(q, k, positions[0])
        elif model.positions.kind == "rotary" and "positions" not in OWN:
            q, k = (turned(z, positions, model.positions.theta) for z in (q, k))
        k, v = (z.repeat_interleave(H // G, dim=1) for z in (k, v))
        scores = (q @ k.transpose(-1, -2)).float() / math.sqrt(K)
        scores = capped(scores, model.attention.softcap)
        weights = scores.masked_fill(hidden, torch.finfo(scores.dtype).min).softmax(dim=-1)
        mixed = weights.to(v.dtype) @ v
        return self.out(mixed.transpose(1, 2).reshape(B, T, D))


def turned(x: Tensor, positions: Tensor, theta: float) -> Tensor:
    """Apply RoPE (Su et al. 2021) to x [B, H, T, K], rotating channels i and i + K/2 together."""
    K = x.shape[-1]
    exponents = torch.arange(0, K, 2, dtype=torch.float32, device=x.device) / K
    angles = (positions[:, None, :, None].float() * theta**-exponents).repeat(1, 1, 1, 2)
    first, second = x.chunk(2, dim=-1)
    rotated = torch.cat([-second, first], dim=-1)
    return (x * angles.cos() + rotated * angles.sin()).to(x.dtype)


def capped(x: Tensor, cap: float | None) -> Tensor:
    """Apply the soft cap `cap * tanh(x / cap)` (Gemma Team 2024) if a cap is given."""
    return x if cap is None else cap * torch.tanh(x / cap)


class Embedding(nn.Module):
    """Token and position embedding with normalization.

    Computes norm(E_tok(t) + E_pos(p)) or norm(E_tok(t)) + E_pos(p) for token t at position p.
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.tokens = nn.Embedding(model.vocab_size, model.d_model)
        self.positions = own_positions(model, "embedding")
        if model.positions.kind == "learned" and "positions" not in OWN:
            self.positions = nn.Embedding(model.seq_len, model.d_model)
        stage = model.embedding
        self.norm = norm(model, stage.norm, model.d_model, stage.eps, True)
        self.on_tokens = stage.norm_at == "tokens"

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Map tokens [B, T] and their positions [B, T] to [B, T, D]."""
        x = self.tokens(tokens)
        if self.positions is None:
            return self.norm(x)
        added = self.positions(positions[0] if "positions" in OWN else positions)
        return self.norm(x) + added if self.on_tokens else self.norm(x + added)


def block_norm(model: Any, site: str) -> nn.Module:
    """Create the norm for `site` ("block_norm" or "final_norm"), which may be custom."""
    if site in OWN:
        return OWN[site](model)
    return norm(model, model.norm.kind, model.d_model, model.norm.eps, model.bias)


def own_positions(model: Any, place: str) -> nn.Module | None:
    """Create the custom position encoding for `place` ("embedding" or "attention"), if any."""
    own: Any = OWN.get("positions")
    return own(model) if own is not None and own.stands == place else None


class Block(nn.Module):
    """Residual block with attention and MLP, pre-norm or post-norm."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.is_pre, self.is_own = model.norm.placement == "pre", "attention" in OWN
        self.attention_norm = block_norm(model, "block_norm")
        self.attention = OWN.get("attention", Attention)(model)
        self.mlp_norm = block_norm(model, "block_norm")
        self.mlp = OWN.get("mlp", MLP)(model)

    def forward(self, x: Tensor, *seen: Any) -> Tensor:
        """Map x [B, T, D] to [B, T, D], passing `seen` to the built-in attention."""
        seen = () if self.is_own else seen
        if self.is_pre:
            x = x + self.attention(self.attention_norm(x), *seen)
            return x + self.mlp(self.mlp_norm(x))
        x = self.attention_norm(x + self.attention(x, *seen))
        return self.mlp_norm(x + self.mlp(x))


class ParibusForCausalLM(PreTrainedModel, GenerationMixin):
    """Decoder-only Transformer from token ids [B, T] to logits [B, T, V], without a KV cache."""

    config_class = ParibusConfig

    def __init__(self, config: ParibusConfig) -> None:
        super().__init__(config)
        model = spec(config)
        self.window, self.softcap = model.attention.window, model.head.softcap
        self.embedding: Any = OWN.get("embedding", Embedding)(model)
        self.blocks = nn.ModuleList(Block(spec(config, i)) for i in range(model.n_layer))
        is_pre = model.norm.placement == "pre"
        self.final_norm = block_norm(model, "final_norm") if is_pre else nn.Identity()
        self.head: Any = None  # tied
        if "head" in OWN:
            self.head = OWN["head"](model)
        elif not model.head.tied:
            self.head = nn.Linear(model.d_model, model.vocab_size, bias=False)
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Recompute the buffers of custom modules, which are not saved with the weights."""
        if type(module) in OWN.values():
            layer = getattr(module, "layer", None)
            with torch.device("cpu"):
                fresh = type(module)(spec(self.config, layer if isinstance(layer, int) else 0))  # type: ignore
            for name, buffer in fresh.named_buffers():
                owner, _, leaf = name.rpartition(".")
                setattr(module.get_submodule(owner), leaf, buffer)

    def get_input_embeddings(self) -> nn.Module:
        """Return the token embedding module."""
        return self.embedding.tokens

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        **kwargs: Any,
    ) -> CausalLMOutput:
        """Return the logits and, if `labels` are given, the mean next-token loss in nats.

        Labels of -100 are ignored. Raises ValueError for padded inputs if a custom module may mix
        positions.
        """
        # Custom parts do not receive the attention mask.
        looks_across = {"embedding", "positions", "attention"} & OWN.keys() or not all(
            getattr(part, "cached", False) for part in OWN.values()
        )
        if looks_across and attention_mask is not None and not bool(attention_mask.all()):
            raise ValueError(
                "padding is not supported, because a custom module may mix positions; batch only "
                "sequences of equal length"
            )
        hidden, positions = self._seen(input_ids, attention_mask)
        if "embedding" in OWN:
            x = self.embedding(input_ids)
        else:
            x = self.embedding(input_ids, positions)
        for block in self.blocks:
            x = block(x, hidden, positions)
        x, tokens = self.final_norm(x), self.embedding.tokens.weight
        if "head" in OWN:
            logits = self.head(x, tokens)
        else:
            logits = F.linear(x, tokens) if self.head is None else self.head(x)
            logits = capped(logits, self.softcap)
        loss = None
        if labels is not None:
            loss = F.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels[:, 1:].flatten())
        return CausalLMOutput(loss=loss, logits=logits)

    def _seen(self, ids: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return the attention mask [B, 1, T, T] (True if masked), and token positions [B, T].

        Padding has position 0.
        """
        B, T = ids.shape
        columns = torch.arange(T, device=ids.device)
        back = columns[:, None] - columns
        hidden = back < 0 if self.window is None else (back < 0) | (back >= self.window)
        if mask is None:
            return hidden[None, None], columns.expand(B, T)
        mask = mask.bool()
        places = (mask.long().cumsum(dim=1) - 1).clamp(min=0)
        return hidden[None, None] | ~mask[:, None, None], places

    def prepare_inputs_for_generation(self, input_ids: Tensor, **kwargs: Any) -> dict[str, Any]:
        """Return the full sequence as model inputs, because there is no key-value cache."""
        return {"input_ids": input_ids, "attention_mask": kwargs.get("attention_mask")}
