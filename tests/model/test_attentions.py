"""An attention in one file: multi-head latent attention, whose cache is not keys and values."""

import pytest
import torch

from paribus.engine.check import check_arm
from paribus.engine.cost import model_size
from paribus.engine.model import (
    KeyValueCache,
    attentions,
    build_model,
    initial_parameters,
    load_parameters,
)
from paribus.engine.model.parts import parts
from paribus.engine.probes import shipped_probes
from paribus.engine.training import Trainer

LATENT = '''
import torch
from torch import nn
from torch.nn import functional as F
from paribus.extend import part
from paribus.engine.model import visible

@part("latent", cached=True)
class Latent(nn.Module):
    """Keys and values are made of C numbers a token, and R that all heads share."""
    cached, residual_projections, C, R = True, ("out",), 6, 2

    def __init__(self, model, turn=None):
        super().__init__()
        self.layer, self.H, self.K, D = model.layer, model.n_head, model.head_width, model.d_model
        self.down = nn.Linear(D, self.C + self.R)
        self.query = nn.Linear(D, self.H * (self.K + self.R))
        self.up = nn.Linear(self.C, 2 * self.H * self.K)
        self.out = nn.Linear(D, D)

    def forward(self, x, cache=None):
        (B, T, D), H, start = x.shape, self.H, 0 if cache is None else cache.length
        latent, shared = self.down(x)[:, None].split((self.C, self.R), dim=-1)  # [B, 1, T, .]
        if cache is not None:
            latent, shared = cache.append(self.layer, latent, shared)
        S = latent.shape[2]
        k, v = self.up(latent[:, 0]).view(B, S, H, -1).transpose(1, 2).chunk(2, dim=-1)
        k = torch.cat([k, shared.expand(B, H, S, self.R)], dim=-1)
        q = self.query(x).view(B, T, H, -1).transpose(1, 2)
        y = F.scaled_dot_product_attention(q, k, v, visible(start, T, S, None, x.device))
        return self.out(y.transpose(1, 2).reshape(B, T, D))
'''


@pytest.fixture
def registered(tmp_path):
    """As if the file lay beside the attentions that ship."""
    (tmp_path / "latent.py").write_text(LATENT)
    attentions.__path__.append(str(tmp_path))
    parts.cache_clear()
    yield
    attentions.__path__.remove(str(tmp_path))
    parts.cache_clear()


@pytest.mark.parametrize(
    "key", [{"model.modules.attention": "latent.py:Latent"}, {"model.attention.kind": "latent"}]
)
def test_latent_attention_trains_and_decodes_as_it_reads(
    registered, small_study, small_dataset, key
):
    study = small_study(key, arms={"a": {}}, baseline="a")
    assert check_arm(study, "a", small_dataset, torch.device("cpu"), 2) == []
    setting = study.setting("a")
    probes = [shipped_probes()["attention_logits"]]
    together = Trainer(setting, [1, 2], small_dataset, folder=study.folder, probes=probes)
    assert together.probes == ()
    together.step()
    for r, seed in enumerate((1, 2)):
        alone = Trainer(setting, [seed], small_dataset, folder=study.folder)
        alone.step()
        found, known = together.state(r).measured, alone.state(0).measured
        torch.testing.assert_close(*map(torch.from_numpy, (found, known)), rtol=1e-4, atol=1e-5)

    model = build_model(setting, 29, study.folder).eval()
    assert model.can_cache
    drawn = initial_parameters(model, setting, seed=3)
    load_parameters(model, {name: 10 * one.value for name, one in drawn.items()})
    model.double()
    tokens = torch.randint(0, 29, (2, 16), generator=torch.Generator().manual_seed(1))
    cache = KeyValueCache(n_layer=2)
    with torch.no_grad():
        pieces = [model(piece, cache) for piece in tokens.split([7, 1, 8], dim=1)]
        torch.testing.assert_close(torch.cat(pieces, dim=1), model(tokens), rtol=1e-9, atol=1e-9)
    assert model_size(setting, 29, study.folder)[1]


def test_custom_positions_are_those_of_the_study_folder(small_study, tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    turn = """
from torch import nn
class Turn(nn.Module):
    stands, folder = "attention", {!r}
    def __init__(self, model):
        super().__init__()
    def forward(self, q, k, positions):
        return q, k
"""
    (tmp_path / "turn.py").write_text(turn.format("study"))
    (elsewhere / "turn.py").write_text(turn.format("elsewhere"))
    (tmp_path / "own.py").write_text(
        "from torch import nn\n"
        "from paribus.extend import study_positions\n"
        "class Own(nn.Identity):\n"
        "    def __init__(self, model):\n"
        "        super().__init__()\n"
        "        self.turn = study_positions(model, 'attention')\n"
    )
    own = {"model.modules.attention": "own.py:Own", "model.modules.positions": "turn.py:Turn"}
    setting = small_study(own, arms={"baseline": {}}).setting("baseline")
    monkeypatch.chdir(elsewhere)
    model = build_model(setting, 29, tmp_path)
    assert [block.attention.turn.folder for block in model.blocks] == ["study"] * 2
