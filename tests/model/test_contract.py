"""A part of the user's own that cannot work is named before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.engine.data import Dataset
from paribus.errors import ParibusError
from paribus.study import Study

from ..conftest import Maker

PARTS = '''
import torch
import torch.nn.functional as F
from torch import nn
from paribus.engine.model import Attention, KeyValueCache

class Part(nn.Identity):
    def __init__(self, model):
        super().__init__()


class Wide(Part):
    def forward(self, x, *more):
        return x.repeat(1, 1, 2)

class Pair(Part):
    def forward(self, x, *more):
        return x, x

class Breaks(Part):
    def __init__(self, model):
        super().__init__(model)
        self.inner = nn.Linear(7, 7)
    def forward(self, x, *more):
        return self.inner(x)

class NoTokens(Part):
    pass

class Nowhere(Part):
    """Positions that do not say where they stand."""

class Double(Part):
    def forward(self, x, *more):
        return x.double()

class Centred(Part):
    def forward(self, x, *more):
        return x.sub_(x.mean())

class Shrinks(Part):
    def forward(self, x, tokens):
        return x @ tokens.mul_(0.9).T

class Unbuilt(nn.Module):
    def __init__(self, model):
        pass

class Narrow(Part):
    def __init__(self, model):
        super().__init__(model)
        self.tokens = nn.Embedding(model.vocab_size, 8)

class Turns(Part):
    stands = "attention"
    def forward(self, q, k, places):
        return q, k

class TurnsOne(Turns):
    def forward(self, q, k, places):
        return q


class TurnsAhead(Turns):
    def forward(self, q, k, places):
        return q, k + k.roll(-1, dims=2)

class Adds(Part):
    stands = "embedding"
    def forward(self, places):
        return 0.1 * places[:1].float()

class Forgets(Attention):
    """Remembers by itself, so rows that go on in another order find what was of others."""
    cached = True
    def __init__(self, model):
        super().__init__(model)
        self.mine = KeyValueCache(model.n_layer, model.seq_len)
    def forward(self, x, cache=None):
        if cache is None:
            return super().forward(x)
        self.mine.length = cache.length
        return super().forward(x, self.mine)

class Peeks(Attention):
    """Masks what it reads first alone: of tokens that are read later at once, it sees all."""
    cached = True
    def _mixed(self, q, k, v, start):
        return F.scaled_dot_product_attention(q, k, v, is_causal=start == 0)

class Frozen(Breaks):
    def __init__(self, model):
        super().__init__(model)
        self.inner.weight.requires_grad_(False)


class Lazy(Part):
    def __init__(self, model):
        super().__init__(model)
        self.inner = nn.LazyLinear(model.d_model)

class Unsure(Part):
    def __init__(self, model):
        super().__init__(model)
        self.places = nn.Parameter(torch.zeros(3))
    def init_parameter(self, name, shape, rng):
        return rng.standard_normal(shape) * float("nan")


class Plain(Attention):
    """Has no positions, whatever the study says."""

class Misplaced(Part):
    """Turns each piece as if it began the text: wrong with a cache alone."""
    cached, residual_projections = True, ("out",)
    def __init__(self, model):
        super().__init__(model)
        self.q, self.k, self.out = (nn.Linear(16, 16, bias=False) for _ in range(3))
        self.layer = model.layer or 0
    def forward(self, x, cache=None):
        angle = torch.arange(x.shape[1], device=x.device, dtype=x.dtype)[:, None]
        k = torch.cat([self.k(x)[..., :8] * angle.cos(), self.k(x)[..., 8:] * angle.sin()], -1)
        k, v = k[:, None], x[:, None]
        start = 0 if cache is None else cache.length
        if cache is not None:
            k, v = cache.append(self.layer, k, v)
        seen = torch.ones(x.shape[1], k.shape[2], dtype=torch.bool, device=x.device).tril(start)
        scores = (self.q(x)[:, None] @ k.transpose(2, 3) / 4).masked_fill(~seen, -1e9)
        return self.out((scores.softmax(-1) @ v)[:, 0])


'''


@pytest.fixture
def study_of(small_study: Maker, tmp_path: Path) -> Maker:
    (tmp_path / "ideas.py").write_text(PARTS)

    def make(site: str, name: str, **more: object) -> Study:
        own = {f"model.modules.{site}": f"ideas.py:{name}"}
        return small_study(
            own | {k.replace("__", "."): v for k, v in more.items()}, arms={"a": {}}, baseline="a"
        )

    return make


@pytest.mark.parametrize(
    ("site", "name", "message"),
    [
        ("mlp", "Wide", r"modules.mlp = 'ideas.py:Wide' gives \[2, 16, 32\] .* and must give"),
        ("final_norm", "Pair", r"final_norm = 'ideas.py:Pair' gives \(\[2, 16, 16\] float32, "),
        (
            "attention",
            "Breaks",
            r"'ideas.py:Breaks' fails where it is given \(\[2, 16, 16\] float32\): R",
        ),
        ("head", "Part", r"modules.head = 'ideas.py:Part' fails where|gives \[2, 16, 16\]"),
        ("embedding", "NoTokens", "has no `tokens`"),
        ("positions", "Nowhere", "set stands = "),
        ("block_norm", "Double", r"gives .* float64 and must give \[2, 16, 16\] float32"),
        ("block_norm", "Centred", "block_norm = 'ideas.py:Centred' writes to what it is given"),
        ("head", "Shrinks", r"head = 'ideas.py:Shrinks' writes to what it is given"),
        ("mlp", "Unbuilt", r"mlp = 'ideas.py:Unbuilt' cannot be built as Unbuilt\(model\)"),
        ("embedding", "Narrow", r"have the shape \(29, 8\), and a tied head needs \(29, 16\)"),
        ("positions", "TurnsOne", r"positions = .* gives \[2, 2, 16, 8\] .* and must give \(\["),
        ("positions", "TurnsAhead", "positions = 'ideas.py:TurnsAhead'.*tokens after it"),
        ("positions", "Adds", r"'ideas.py:Adds' gives \[1\] float32 and must give \[16, 16\]"),
        ("attention", "Forgets", "'ideas.py:Forgets'.* (fails when a text is read|differs by)"),
        (
            "attention",
            "Misplaced",
            "'ideas.py:Misplaced'.* read in pieces with a cache, .* differs",
        ),
        ("attention", "Peeks", "'ideas.py:Peeks'.* read in pieces with a cache, .* differs by"),
        ("mlp", "Frozen", "'blocks.0.mlp.inner.weight' of a custom module is frozen"),
        ("mlp", "Lazy", "'blocks.0.mlp.inner.weight' of a custom module has no shape yet"),
        ("mlp", "Unsure", "init_parameter .*finite .*'blocks.0.mlp.places'"),
    ],
)
def test_a_part_that_cannot_work_is_named(
    study_of: Maker, small_dataset: Dataset, site: str, name: str, message: str
) -> None:
    with pytest.raises(ParibusError, match=message) as caught:
        check_arm(study_of(site, name), "a", small_dataset, torch.device("cpu"), 2)
    assert "\n" not in str(caught.value)
