"""What a trial's record says of its model, in words; see `facts`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from paribus.digests import flatten
from paribus.report.vocabulary import BUILT_IN, SITES, called, capped, listed, plain, sources


@dataclass(frozen=True)
class ModelFacts:
    """Sentences and clauses about the parts that are built in, and the names of those that are not.

    Attributes:
        setting: the model's part of the setting, as recorded.
        digests: of the source of the user's own modules, by site and file.
    """

    setting: dict[str, Any]
    digests: Mapping[str, dict[str, str]]

    @cached_property
    def own(self) -> dict[str, str]:
        """The user's own modules: import path by site."""
        return {site: path for site, path in self.setting["modules"].items() if path}

    @cached_property
    def _stated(self) -> dict[str, Any]:
        """The model's setting by dotted key, with what is built in."""
        return BUILT_IN | flatten(self.setting)

    @property
    def norms(self) -> str:
        """The norms inside blocks and after the last one; empty where both are the user's own."""
        name, parts = called("norm", self._stated["norm.kind"]), []
        pre = self._stated["norm.placement"] == "pre"
        if "block_norm" not in self.own:
            parts.append("before each sub-layer" if pre else "after each residual sum")
        if "final_norm" not in self.own and pre:
            parts.append("after the last block")
        eps = self._stated["norm.eps"]
        about = "" if eps is None else f" (ε of {plain(eps)})"
        return f"{name} {' and '.join(parts)}{about}" if parts else ""

    @property
    def has_layernorm(self) -> bool:
        """Whether the blocks or what follows them have a built-in LayerNorm."""
        return bool(self.norms) and self._stated["norm.kind"] == "layernorm"

    @property
    def is_pre_layernorm(self) -> bool:
        """Whether that LayerNorm stands before each sub-layer."""
        pre = self._stated["norm.placement"] == "pre"
        return pre and self.has_layernorm and "block_norm" not in self.own

    @property
    def shape(self) -> str:
        """Blocks, width, heads, MLP, positions and head: those that are built in."""
        model = self._stated
        told = [f"{model['n_layer']} blocks of width {model['d_model']}"]
        if "attention" not in self.own:
            told[0] += f" with {self._attention}"
        if "mlp" not in self.own:
            ratio = model["mlp.ratio"]
            matched = model["mlp.kind"] == "swiglu" and model.get("mlp.match_parameters")
            told.append(
                f"an MLP of {ratio} times the width with {called('mlp', model['mlp.kind'])}"
                + (" (made narrower to match the parameters of an ungated one)" if matched else "")
            )
        kind = model["positions.kind"]
        # An attention or embedding of the user's own may have the study's positions, or may not.
        within = "attention" if kind == "rotary" else "embedding"
        if not {"embedding", "positions", within} & self.own.keys():
            theta = model.get("positions.theta") if kind == "rotary" else None
            told.append(
                called("positions", kind) + (f" (base {plain(theta)})" if theta is not None else "")
            )
        if "head" not in self.own:
            tied = (
                "one matrix for input and output embeddings"
                if model["head.tied"]
                else "separate matrices for input and output embeddings"
            )
            told.append(tied + capped(model["head.softcap"], "logits"))
        return f"The model has {listed(told)}."

    @property
    def _attention(self) -> str:
        """`8 attention heads each`, and what else attention has."""
        model = self._stated
        kind = model["attention.kind"]
        text = f"{model['n_head']} attention heads each"
        if kind != BUILT_IN["attention.kind"]:
            return f"{text} of “{kind}” attention"
        if model["attention.n_kv_head"] is not None:
            text += f", {model['attention.n_kv_head']} of them for keys and values"
        if model["attention.qk_norm"] != "none":
            text += f", queries and keys normalised by {called('norm', model['attention.qk_norm'])}"
        text += capped(model["attention.softcap"], "scores")
        if model["attention.window"] is not None:
            text += f", in a window of {model['attention.window']} tokens"
        return text

    @property
    def embedding(self) -> str:
        """What enters the first block."""
        if "embedding" in self.own:
            return ""
        stage = self.setting["embedding"]
        if stage["norm"] == "none":
            return "Embeddings enter the first block as they are, without a norm."
        eps = "" if stage["eps"] is None else f" (ε of {plain(stage['eps'])})"
        what = {"sum": "The sum of token and position embeddings", "tokens": "Token embeddings"}
        where = what.get(stage["norm_at"], f"Embeddings at “{stage['norm_at']}”")
        return f"{where} are normalised by {called('norm', stage['norm'])}{eps}."

    @property
    def replaced(self) -> str:
        """The user's own modules; empty where there are none."""
        if not self.own:
            return ""
        told = [
            f"{SITES.get(site, f'the site “{site}”')} is “{path}”"
            + (f" (source digest {sources(self.digests[site])})" if site in self.digests else "")
            for site, path in self.own.items()
        ]
        return f"The user's own modules stand in the place of built-in parts: {listed(told)}."

    @property
    def initial(self) -> str:
        """How weights begin."""
        init = self.setting["init"]
        text = (
            f"Weights start from normal distributions with standard deviation {plain(init['std'])}"
        )
        if "embedding" not in self.own:
            text += f", token embeddings {plain(init['token_std'])}"
            if self._stated["positions.kind"] == "learned" and "positions" not in self.own:
                text += f" and positions {plain(init['position_std'])}"
        if init["scale_residual"]:
            text += (
                "; projections into the residual stream are scaled down by the square root of "
                "twice the number of blocks"
            )
        if init["salt"]:
            text += f"; their random streams carry the salt {init['salt']}"
        return f"{text}."
