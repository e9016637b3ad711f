"""Own code that replaces a function of a library, or of paribus, is refused by its name."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from paribus.engine.evaluation import leaks
from paribus.engine.model.mlps.ungated import GELU
from paribus.errors import ParibusError
from paribus.study.guard import require_unchanged, watched
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
        (GELU, "forward", "import paribus.engine.model.mlps.ungated as m; m.GELU.forward = print"),
    ],
)
def test_a_replaced_function_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: object, name: str, line: str
) -> None:
    monkeypatch.setattr(owner, name, getattr(owner, name))  # puts it back afterwards
    with pytest.raises(ParibusError, match=rf"'ideas.py:Mine' replaces [\w.]+\.{name}\b"):
        load(tmp_path, line)


@pytest.mark.parametrize(
    ("setting", "line"),
    [
        ("torch.get_num_threads", "import torch; torch.set_num_threads(3)"),
        (
            "torch.get_float32_matmul_precision",
            "import torch; torch.set_float32_matmul_precision('medium')",
        ),
        ("torch.is_grad_enabled", "import torch; torch.set_grad_enabled(False)"),
        ("torch.get_default_dtype", "import torch; torch.set_default_dtype(torch.float64)"),
        ("torch.backends.cudnn.benchmark", "import torch; torch.backends.cudnn.benchmark = True"),
        ("numpy.geterr", "import numpy; numpy.seterr(all='raise')"),
        ("os.getcwd", "import os; os.chdir('/')"),
    ],
)
def test_a_changed_setting_is_named(tmp_path: Path, setting: str, line: str) -> None:
    threads, precision = torch.get_num_threads(), torch.get_float32_matmul_precision()
    cwd, errors, benchmark = Path.cwd(), np.geterr(), torch.backends.cudnn.benchmark
    try:
        with pytest.raises(
            ParibusError, match=rf"'ideas.py:Mine' changes {re.escape(setting)}(\(\))? from .* to "
        ):
            load(tmp_path, line)
    finally:
        torch.set_num_threads(threads)
        torch.set_float32_matmul_precision(precision)
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.backends.cudnn.benchmark = benchmark
        np.seterr(**errors)
        os.chdir(cwd)


def test_what_replaces_nothing_is_loaded(tmp_path: Path) -> None:
    load(tmp_path, "import torch, numpy, math, json, wave\nfrom torch import nn\ngelu = print\n")


def test_what_is_taken_away_is_named_and_what_is_added_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = watched()
    monkeypatch.setattr(torch, "mine", print, raising=False)
    monkeypatch.setattr(torch.Tensor, "mine", print, raising=False)
    require_unchanged(before, "nobody")
    monkeypatch.delattr(torch.Tensor, "norm")
    with pytest.raises(ParibusError, match=r"somebody replaces torch.Tensor.norm and \d+ more,"):
        require_unchanged(before, "somebody")


@pytest.mark.parametrize(
    "line",
    [
        "leaks.LARGE_LOGIT = 1e30",
        "leaks.CEILING[next(iter(leaks.CEILING))] = 1e30",
    ],
)
def test_a_changed_constant_of_paribus_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str
) -> None:
    """It would let a look ahead pass for rounding."""
    monkeypatch.setattr(leaks, "LARGE_LOGIT", leaks.LARGE_LOGIT)
    monkeypatch.setattr(leaks, "CEILING", leaks.CEILING.copy())
    with pytest.raises(
        ParibusError, match=r"'ideas.py:Mine' changes paribus.engine.evaluation.leaks.[A-Z_]+ from"
    ):
        load(tmp_path, f"from paribus.engine.evaluation import leaks; {line}")


def test_another_body_within_a_function_of_paribus_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaks.rounding, "__code__", leaks.rounding.__code__)
    with pytest.raises(ParibusError, match=r"'ideas.py:Mine' replaces .*leaks.rounding"):
        load(
            tmp_path,
            "from paribus.engine.evaluation import leaks\n"
            "def none(setting, dtype=None): return 1e30\n"
            "leaks.rounding.__code__ = none.__code__",
        )
