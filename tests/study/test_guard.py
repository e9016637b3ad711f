"""Own code that replaces a function of a library, or of paribus, is refused by its name."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

from paribus.errors import ParibusError
from paribus.model.mlps.gelu import GELU
from paribus.study.importing import load_own


def load(folder: Path, text: str) -> None:
    (folder / "ideas.py").write_text(text + "\nclass Mine:\n    pass\n")
    load_own("ideas.py:Mine", "model.modules.mlp = 'ideas.py:Mine'", "class", bool, folder)


@pytest.mark.parametrize(
    ("owner", "name", "line"),
    [
        (F, "gelu", "import torch.nn.functional as F; F.gelu = F.relu"),
        (torch, "matmul", "import torch; torch.matmul = torch.bmm"),
        (torch.Tensor, "norm", "import torch; torch.Tensor.norm = lambda self: self"),
        (torch.nn.LayerNorm, "forward", "from torch import nn; nn.LayerNorm.forward = print"),
        (GELU, "forward", "from paribus.model.mlps.gelu import GELU; GELU.forward = print"),
    ],
)
def test_a_replaced_function_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, line: str
) -> None:
    monkeypatch.setattr(owner, name, getattr(owner, name))  # puts it back afterwards
    with pytest.raises(ParibusError, match=rf"'ideas.py:Mine' replaces [\w.]+\.{name}\b"):
        load(tmp_path, line)


def test_what_replaces_nothing_is_loaded(tmp_path: Path) -> None:
    load(tmp_path, "import torch, numpy, math, json, wave\nfrom torch import nn\ngelu = print\n")
