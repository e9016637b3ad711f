"""Every part that ships and the user's own, exported: the logits and texts are ours."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors.numpy
import torch
import transformers

from paribus.engine.export.hugging_face import hugging_face_model, is_gpt2, is_llama, remote_code
from paribus.engine.model import GPT, build_model, initial_parameters, load_parameters
from paribus.engine.model.parts import parts
from paribus.engine.setting.architecture import SUPPORTED_KINDS
from paribus.study import own_digests

from ..model.variants import VARIANTS
from ..tools import refused


def load(folder: Path) -> Any:
    remote = (folder / "modeling_paribus.py").exists()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=remote, output_loading_info=True
    )
    assert not any(info.values())
    return model.eval()


V, T = 29, 16
LARGE = {"model.init.std": 0.3, "model.init.position_std": 0.3}
GPT2 = {
    *("positions learned", "mlp gelu", "mlp gelu_tanh", "mlp relu2", "norm layernorm"),
    *("qk_norm none", "embedding none", "untied", "no bias"),
}

OWN = '''
import torch
import torch.nn.functional as F
from torch import nn

class TokenShift(nn.Module):
    """An attention of one's own with a buffer that is not stored."""
    residual_projections = ("out",)

    def __init__(self, model):
        super().__init__()
        self.mix, self.out = (nn.Linear(model.d_model, model.d_model) for _ in range(2))
        weights = torch.ones(model.seq_len, model.seq_len).tril()
        self.register_buffer("weights", weights / weights.sum(1, keepdim=True), persistent=False)

    def forward(self, x):
        T = x.shape[1]
        return self.out(self.weights[:T, :T] @ self.mix(x))

class Relu(nn.Module):
    """Position by position, and says so."""
    cached = True
    residual_projections = ("down",)

    def __init__(self, model):
        super().__init__()
        self.up, self.down = nn.Linear(model.d_model, 24), nn.Linear(24, model.d_model)

    def forward(self, x):
        return self.down(F.relu(self.up(x)))

class Shares(Relu):
    def forward(self, x, shared):
        return super().forward(x)

class Sines(nn.Module):
    stands, cached = "embedding", True

    def __init__(self, model):
        super().__init__()
        self.width = model.d_model

    def forward(self, positions):
        channels = torch.arange(self.width, device=positions.device)
        return torch.sin(positions[:, None] / 2.0**channels)

class Doubled(nn.Module):
    cached = True

    def __init__(self, model):
        super().__init__()

    def forward(self, x, tokens):
        return 2 * F.linear(x, tokens)
'''
OWN_SITES = {"attention": "TokenShift", "mlp": "Relu", "positions": "Sines", "head": "Doubled"}


@pytest.fixture
def exported(small_study, tmp_path):
    """(our model with weights of a seed, the exported folder)."""

    def make(overrides: dict[str, Any]) -> tuple[GPT, Path]:
        study = small_study(LARGE | overrides, arms={"baseline": {}})
        setting = study.setting("baseline")
        model = build_model(setting, V, study.folder).eval()
        drawn = {n: one.value for n, one in initial_parameters(model, setting, seed=3).items()}
        rng = np.random.default_rng(1)
        drawn = {n: v + 0.1 * rng.standard_normal(v.shape).astype("f4") for n, v in drawn.items()}
        load_parameters(model, drawn)
        out = tmp_path / "out"
        out.mkdir()
        config, weights = hugging_face_model(setting, V, drawn)
        special = dict.fromkeys(("bos_token_id", "eos_token_id", "pad_token_id"), 0)
        (out / "config.json").write_text(json.dumps(config | special))
        safetensors.numpy.save_file(weights, out / "model.safetensors", metadata={"format": "pt"})
        if not (is_gpt2(setting) or is_llama(setting)):
            record = {"own_modules": own_digests(setting, study.folder)}
            for name, code in remote_code(setting, study.folder, "x", record).items():
                (out / name).write_bytes(code)
        return model, out

    return make


def require_ours(ours: GPT, theirs: Any) -> None:
    tokens = torch.randint(1, V, (2, T), generator=torch.Generator().manual_seed(1))
    expected = ours(tokens)
    assert expected.std() > 0.02
    torch.testing.assert_close(theirs(tokens).logits, expected, rtol=1e-5, atol=1e-5)


def require_generates_ours(ours: GPT, theirs: Any, *, padded: bool) -> None:
    """Greedily, rows of two lengths where that can be."""
    tokens = torch.randint(1, V, (2, 5), generator=torch.Generator().manual_seed(2))
    starts = [tokens[0], tokens[1, 2:] if padded else tokens[1]]
    batch = torch.zeros(2, 5, dtype=torch.long)
    for row, start in zip(batch, starts, strict=True):
        row[5 - len(start) :] = start
    generated = theirs.generate(
        batch,
        attention_mask=(batch != 0).long(),
        min_new_tokens=8,
        max_new_tokens=8,
        do_sample=False,
    )
    for row, start in zip(generated, starts, strict=True):
        text = start.tolist()
        for token in row[5:].tolist():
            logits = ours(torch.tensor([text]))[0, -1]
            logits[0] = -torch.inf  # the end, which is kept from coming
            assert token == int(logits.argmax())
            text.append(token)


@pytest.mark.parametrize("name", VARIANTS)
@torch.no_grad()
def test_equal_logits(exported, name):
    chosen = {key.removeprefix("model."): value for key, value in VARIANTS[name].items()}
    if any(chosen.get(key, kinds[0]) not in kinds for key, kinds in SUPPORTED_KINDS.items()):
        with refused("unsupported"):
            exported(VARIANTS[name])
        return
    ours, folder = exported(VARIANTS[name])
    theirs = load(folder)
    require_ours(ours, theirs)
    kind = type(theirs)
    if name in GPT2:
        assert kind is transformers.GPT2LMHeadModel
    elif name == "llama":
        assert kind is transformers.LlamaForCausalLM
    else:
        assert kind.__name__ == "ParibusForCausalLM"
    if name in ("llama", "much", "window", "positions none", "grouped"):
        require_generates_ours(ours, theirs, padded=True)


@pytest.mark.parametrize("key", ["norm.kind", "mlp.kind", "attention.kind"])
def test_a_part_added_in_one_file_is_refused(exported, key, monkeypatch):
    known = parts(key.replace(".kind", "s"))
    monkeypatch.setitem(known, "added", next(iter(known.values())))
    with refused("unsupported", match=key):
        exported({f"model.{key}": "added"})


@pytest.mark.parametrize("site", OWN_SITES)
@torch.no_grad()
def test_a_part_of_one_s_own_is_exported_with_its_source(exported, tmp_path, site):
    (tmp_path / "ideas.py").write_text(OWN)
    ours, folder = exported({f"model.modules.{site}": f"ideas.py:{OWN_SITES[site]}"})
    assert (folder / "own_ideas.py").read_text() == OWN
    theirs = load(folder)
    require_ours(ours, theirs)
    can_pad = site in ("mlp", "head")
    require_generates_ours(ours, theirs, padded=can_pad)
    if not can_pad:
        with pytest.raises(ValueError, match="equal length"):
            theirs(torch.ones(1, 3, dtype=torch.long), attention_mask=torch.tensor([[0, 1, 1]]))


@pytest.mark.parametrize(
    ("name", "words"), [("Shares", "shares tensors"), ("Relu", r"uses helper\.py")]
)
def test_parts_that_cannot_be_exported_are_refused(exported, tmp_path, name, words):
    (tmp_path / "helper.py").write_text("WIDTH = 24\n")
    code = OWN.replace("import torch\n", "import torch\nfrom helper import WIDTH\n", 1)
    (tmp_path / "ideas.py").write_text(code.replace("24", "WIDTH"))
    with refused("unsupported", match=words):
        exported({"model.modules.mlp": f"ideas.py:{name}"})
