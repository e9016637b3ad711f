"""Every probe on a tiny case whose answer is computed by hand or by another way."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from paribus.engine.data import TOKEN_CLASSES
from paribus.engine.observation import StepView
from paribus.engine.probes import shipped_probes
from paribus.engine.probes.reduce import (
    CLASSES,
    GROUPS,
    QUANTILES,
    group_of,
    quantiles as quantiles_of,
)
from paribus.engine.rows import Rows
from paribus.engine.setting import Setting

from ..tools import as_rows

SETTING = Setting.model_validate(
    {
        "data": {"seq_len": 3},
        "model": {"n_layer": 2, "n_head": 2, "d_model": 4},
        "training": {"iterations": 10, "batch_size": 2},
    }
)
rng = np.random.default_rng(7)
# Two replicas of a few parameters, one group each, and one group that nobody has.
NAMES = (
    "embedding.tokens.weight",
    "embedding.positions.weight",
    "blocks.0.attention.qkv.weight",
    "blocks.1.mlp.up.bias",
    "final_norm.weight",
)


def numbers(*shape: int) -> torch.Tensor:
    return torch.from_numpy(rng.standard_normal(shape).astype(np.float32))


def view(**what: Any) -> StepView:
    given: dict[str, Any] = {
        "setting": SETTING,
        "t": 0,
        "tokens": torch.zeros(2, 2, 3, dtype=torch.int64),
        "token_classes": torch.arange(5),
    }
    given["outputs"] = {}
    given["corrections"] = {slot: {} for slot in what.get("slots", {})}
    what["slots"] = {slot: as_rows(kept) for slot, kept in what.get("slots", {}).items()}
    for name in ("weights", "gradients", "updates"):
        given[name] = Rows(torch.zeros(2, 0), {})
        if name in what:
            what[name] = as_rows(what[name])
    return StepView(**(given | what))


def parameters() -> dict[str, torch.Tensor]:
    return {name: numbers(2, 3, 4) for name in NAMES}


def flat(tensors: dict[str, torch.Tensor], group: str, replica: int) -> np.ndarray:
    mine = [t[replica].numpy().ravel() for name, t in tensors.items() if group_of(name) == group]
    return np.concatenate(mine) if mine else np.array([])


def by_group(values: torch.Tensor, expected: Callable[[str, int], Any]) -> None:
    for replica, (g, group) in itertools.product(range(2), enumerate(GROUPS)):
        if group in ("embedding norm", "other"):
            assert values[replica, g].isnan().all()
        else:
            np.testing.assert_allclose(values[replica, g], expected(group, replica), rtol=1e-5)


def quantiles(x: np.ndarray) -> list[float]:
    return [float(np.quantile(x, q)) for q in QUANTILES.values()]


def gradient_norm(measure: Any) -> None:
    gradients = parameters()
    by_group(measure(view(gradients=gradients)), lambda g, r: np.linalg.norm(flat(gradients, g, r)))


def update_ratio(measure: Any) -> None:
    weights, updates = parameters(), parameters()
    by_group(
        measure(view(weights=weights, updates=updates)),
        lambda g, r: np.linalg.norm(flat(updates, g, r)) / np.linalg.norm(flat(weights, g, r)),
    )
    zeros = {name: torch.zeros_like(value) for name, value in weights.items()}
    assert measure(view(weights=zeros, updates=updates)).isnan().all()  # of nothing: absent


def optimizer_slots(measure: Any) -> None:
    mean, square = parameters(), {n: value.square() for n, value in parameters().items()}
    corrections = {"exp_avg": dict.fromkeys(NAMES, 0.271), "exp_avg_sq": {}}
    values = measure(view(slots={"exp_avg": mean, "exp_avg_sq": square}, corrections=corrections))
    assert values.shape == (2, 2 * len(GROUPS), 1 + len(QUANTILES))

    def expected(kept: dict[str, torch.Tensor], divided_by: float) -> Callable[[str, int], Any]:
        def of(group: str, replica: int) -> list[float]:
            magnitudes = np.abs(flat(kept, group, replica)) / divided_by
            return [float(magnitudes.mean()), *quantiles(magnitudes)]

        return of

    by_group(values[:, : len(GROUPS)], expected(mean, 0.271))
    by_group(values[:, len(GROUPS) :], expected(square, 1.0))
    assert measure(view()).shape == (2, 0, 1 + len(QUANTILES))  # SGD without momentum, say


def below_eps(measure: Any) -> None:
    # Corrected by 1 - 0.95 at the first step: 4e-18 becomes 8e-17 < 1e-16, and 6e-18 does not.
    row = torch.tensor([4e-18, 4e-18, 4e-18, 6e-18]).expand(2, 4)
    corrections = {"exp_avg_sq": {NAMES[0]: 0.05}}
    values = measure(view(slots={"exp_avg_sq": {NAMES[0]: row}}, corrections=corrections))
    assert values[:, GROUPS.index("embedding")].tolist() == [0.75, 0.75]
    assert measure(view()).isnan().all()  # of another optimizer: absent


def embedding_norm(measure: Any) -> None:
    x = numbers(2, 2, 3, 4)
    tokens = torch.tensor([[[0, 1, 1], [0, 3, 3]], [[4, 4, 4], [4, 4, 0]]])
    values = measure(view(outputs={"embedding": x}, tokens=tokens))
    norms = np.linalg.norm(x.numpy(), axis=-1)
    for replica, (c, name) in itertools.product(range(2), enumerate(CLASSES)):
        of_class = norms[replica][
            np.ones((2, 3), bool)
            if name == "all"
            else tokens[replica].numpy() == TOKEN_CLASSES.index(name)
        ]
        if len(of_class):
            expected = [of_class.mean(), *quantiles(of_class)]
            np.testing.assert_allclose(values[replica, c], expected, rtol=1e-5)
        else:
            assert values[replica, c].isnan().all()


def stream_of(*shape: int) -> dict[str, torch.Tensor]:
    return {path: numbers(*shape) for path in ("embedding", "blocks.0", "blocks.1")}


def residual_norm(measure: Any) -> None:
    outputs = stream_of(2, 2, 3, 4)
    values = measure(view(outputs=outputs))
    for replica, (depth, x) in itertools.product(range(2), enumerate(outputs.values())):
        norms = np.linalg.norm(x[replica].numpy(), axis=-1).ravel()
        np.testing.assert_allclose(
            values[replica, depth], [norms.mean(), *quantiles(norms)], rtol=1e-5
        )


def mean_cosine(x: np.ndarray) -> float:
    """Over all pairs of rows, one pair at a time."""
    pairs = itertools.combinations(x, 2)
    return float(np.mean([a @ b / np.linalg.norm(a) / np.linalg.norm(b) for a, b in pairs]))


def three_cosines(x: np.ndarray) -> list[float]:
    variants = (x, x - x.mean(axis=0), x - x.mean(axis=1, keepdims=True))
    return [mean_cosine(variant) for variant in variants]


def position_similarity(measure: Any) -> None:
    outputs = stream_of(2, 2, 3, 4)
    values = measure(view(outputs=outputs))
    for replica, (depth, x) in itertools.product(range(2), enumerate(outputs.values())):
        expected = np.mean([three_cosines(window) for window in x[replica].numpy()], axis=0)
        np.testing.assert_allclose(values[replica, depth], expected, rtol=1e-4)
    alike = {path: torch.ones(2, 2, 3, 4) for path in outputs}
    np.testing.assert_allclose(measure(view(outputs=alike))[..., 0], 1, rtol=1e-6)


def embedding_similarity(measure: Any) -> None:
    weights = {name: numbers(2, 5, 4) for name in NAMES[:2]}
    values = measure(view(weights=weights))
    for replica, (k, name) in itertools.product(range(2), enumerate(weights)):
        expected = three_cosines(weights[name][replica].numpy())
        np.testing.assert_allclose(values[replica, k], expected, rtol=1e-4)
    only_tokens = measure(view(weights={NAMES[0]: weights[NAMES[0]]}))
    assert only_tokens[:, 1].isnan().all()


def logits(measure: Any) -> None:
    z = torch.tensor([[[[0.0, 0.0]]], [[[math.log(3), -math.log(5)]]]])
    values = measure(view(outputs={"": z}))
    np.testing.assert_allclose(values[0], [0, 0, math.log(2)], rtol=1e-6)
    expected = [math.log(15) / 2, math.log(5), math.log(3.2)]
    np.testing.assert_allclose(values[1], expected, rtol=1e-6)


def attention_logits(measure: Any) -> None:
    qkv = [numbers(2, 2, 3, 12) for _ in range(2)]
    paths = {
        f"blocks.{i}.attention.query_key": x[..., :8].unflatten(-1, (4, 2)).transpose(2, 3)
        for i, x in enumerate(qkv)
    }
    values = measure(view(outputs=paths))
    for replica, block in itertools.product(range(2), range(2)):
        q, k = (
            qkv[block][replica, ..., s : s + 4].numpy().reshape(2, 3, 2, 2) for s in (0, 4)
        )  # [B, T, H, K]
        scores = [
            q[b, t, h] @ k[b, s, h] / math.sqrt(2)
            for b, h, t in itertools.product(range(2), range(2), range(3))
            for s in range(t + 1)
        ]
        assert float(values[replica, block]) == pytest.approx(max(scores), rel=1e-5)


def embedding_gain(measure: Any) -> None:
    gain = numbers(2, 4)
    values = measure(view(weights={"embedding.norm.weight": gain}))
    for replica in range(2):
        x = gain[replica].numpy()
        expected = [x.mean(), *quantiles(x)]
        np.testing.assert_allclose(values[replica, 0], expected, rtol=1e-5)
    assert values[:, 1].isnan().all()


CASES = {
    case.__name__: case
    for case in (
        attention_logits,
        below_eps,
        embedding_gain,
        embedding_norm,
        embedding_similarity,
        gradient_norm,
        logits,
        optimizer_slots,
        position_similarity,
        residual_norm,
        update_ratio,
    )
}


@pytest.mark.parametrize("shape", [(1, 9, 2048), (2, 7, 1), (3, 5, 64)])
def test_quantiles_are_those_of_pytorch_to_the_bit(shape):
    values = torch.randn(shape, generator=torch.Generator().manual_seed(1))
    values[..., ::7] = torch.nan
    values[:, 1], values[:, 2, 0] = torch.nan, torch.inf
    at = torch.tensor(list(QUANTILES.values()))
    expected = values.nanquantile(at, dim=-1).movedim(0, -1)
    assert torch.equal(quantiles_of(values).nan_to_num(-1.0), expected.nan_to_num(-1.0))


def test_every_probe_has_a_case():
    assert CASES.keys() == shipped_probes().keys()


@pytest.mark.parametrize("name", CASES)
def test_the_known_answer(name):
    CASES[name](shipped_probes()[name].measure)


def test_groups_are_by_the_parameter_s_place():
    found = {
        "embedding.tokens.weight": "embedding",
        "embedding.own_thing": "embedding",
        "embedding.positions.weight": "positions",
        "embedding.norm.bias": "embedding norm",
        "blocks.3.attention.out.bias": "attention",
        "blocks.3.attention_norm.weight": "norms",
        "blocks.3.mlp.down.weight": "mlp",
        "blocks.3.mlp_norm.bias": "norms",
        "final_norm.weight": "norms",
        "something.else": "other",
    }
    assert {name: group_of(name) for name in found} == found
