"""An exported model is ours: the same logits in anybody's program."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from .conftest import ARMS


def load(folder: Path) -> Any:
    remote = (folder / "modeling_paribus.py").exists()
    model, info = transformers.AutoModelForCausalLM.from_pretrained(
        folder, trust_remote_code=remote, output_loading_info=True
    )
    assert not any(info.values())
    return model.eval()


@pytest.mark.parametrize("arm", ARMS)
@torch.no_grad()
def test_logits_are_ours(arm, trained, exported, tokens):
    ours, got = trained.model(arm)(tokens), load(exported(arm))(tokens).logits
    assert got.dtype == torch.float32
    assert ours.std() > 0.1  # else equality would say little
    torch.testing.assert_close(got, ours, rtol=0, atol=1e-5)


def test_it_can_be_trained_on_and_saved_again(exported, tokens, tmp_path):
    model = load(exported("layernorm"))
    assert model.head is None  # tied: the token matrix, and no parameter of its own
    model(tokens, labels=tokens).loss.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    model.save_pretrained(tmp_path / "again")
    torch.testing.assert_close(load(tmp_path / "again")(tokens).logits, model(tokens).logits)


STRANGER = """
import json, sys
import transformers
for name in sys.argv[1:]:
    model = transformers.AutoModelForCausalLM.from_pretrained(name, trust_remote_code=True)
    tokenizer = transformers.AutoTokenizer.from_pretrained(name, trust_remote_code=True)
    ids = tokenizer("All else equal,", return_tensors="pt")["input_ids"]
    print(json.dumps(model(ids).logits[0, -1].tolist()))
assert "paribus" not in sys.modules
"""


@torch.no_grad()
@pytest.mark.slow
def test_a_stranger_loads_it(trained, exported, offline, tmp_path):
    arms = ["baseline", "layernorm"]
    done = subprocess.run(
        [sys.executable, "-c", STRANGER, *(str(exported(arm)) for arm in arms)],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env=os.environ | {"HF_HOME": str(tmp_path), "HF_MODULES_CACHE": str(tmp_path / "modules")},
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    tokens = torch.from_numpy(trained.dataset.tokenizer.encode("All else equal,"))[None]
    for arm, line in zip(arms, done.stdout.splitlines(), strict=True):
        ours = trained.model(arm)(tokens)[0, -1]
        torch.testing.assert_close(torch.tensor(json.loads(line)), ours, rtol=0, atol=1e-5)
