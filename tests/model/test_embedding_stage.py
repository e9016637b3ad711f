"""The arms and their mechanisms: each against its own formula, computed by hand with NumPy."""

import math
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.model import build_model, initial_parameters
from paribus.engine.setting import Data, Setting, Training
from paribus.engine.setting.architecture import Embedding, Init, Model

D, T, V = 128, 16, 40
TOKENS = np.arange(2 * T).reshape(2, T) % V


def setting(norm: str, norm_at: Any = "sum", **init: float) -> Setting:
    return Setting(
        data=Data(seq_len=T),
        model=Model(
            n_layer=1, d_model=D, embedding=Embedding(norm=norm, norm_at=norm_at), init=Init(**init)
        ),
        training=Training(iterations=1),
    )


def stage(norm: str, norm_at: Any = "sum", **init: float) -> tuple[np.ndarray, dict]:
    """([2, T, D] what enters block 1 at initialisation, the initial parameters)."""
    spec = setting(norm, norm_at, **init)
    model = build_model(spec, V)
    initial = {n: p.value for n, p in initial_parameters(model, spec, seed=3).items()}
    model.load_state_dict({name: torch.from_numpy(value) for name, value in initial.items()})
    with torch.no_grad():
        return model.embedding(torch.from_numpy(TOKENS)).numpy(), initial


def embedded(initial: dict) -> tuple[np.ndarray, np.ndarray]:
    tokens = initial["embedding.tokens.weight"].astype(np.float64)[TOKENS]
    return tokens, initial["embedding.positions.weight"].astype(np.float64)


def layer_norm(x: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)


def rms_norm(x: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-6)


FORMULAS = {
    "none": lambda x: x,
    "layernorm": layer_norm,
    "rmsnorm": rms_norm,
    "rms_free": rms_norm,
    "center": lambda x: x - x.mean(-1, keepdims=True),
    "fixed_scale": lambda x: x / math.sqrt(2 * 0.02**2),
}


@pytest.mark.parametrize("norm", FORMULAS)
@pytest.mark.parametrize("norm_at", ["sum", "tokens"])
def test_embeddings_are_normalised_by_the_formula(norm, norm_at):
    """Tokens alone: Le Scao et al. 2022 and StableEmbedding (Dettmers et al. 2021)."""
    found, initial = stage(norm, norm_at)
    tokens, positions = embedded(initial)
    if norm_at == "sum":
        expected = FORMULAS[norm](tokens + positions)
    else:
        scale = math.sqrt(2) if norm == "fixed_scale" else 1.0  # of tokens, which are smaller
        expected = scale * FORMULAS[norm](tokens) + positions
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize(
    ("norm_at", "init"),
    [("sum", {}), ("sum", {"token_std": 1.0, "position_std": 0.0}), ("tokens", {})],
)
def test_a_fixed_scale_matches_layernorm_s_norm_at_initialisation(norm_at, init):
    scaled = np.linalg.norm(stage("fixed_scale", norm_at, **init)[0], axis=-1).mean()
    assert scaled == pytest.approx(math.sqrt(D), rel=0.03)
