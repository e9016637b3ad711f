"""A mistake is one line: what is to be warned of comes once nothing refuses the study any more."""

import contextlib

import pytest

from ..tools import in_one_process, verb
from .test_cli import write_study

OWN = """
import sys, warnings
from torch import nn

class Refused(nn.Module):
    def __init__(self, model):
        print("a library that talks", file=sys.stderr)
        warnings.warn("and warns")
        super().__init__()

    def forward(self, x):
        return x[..., :1]
"""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["syntax.toml"], "valid TOML"),
        (["study.toml", "--set", "data.path=nowhere.txt"], "not exist"),
        (["study.toml", "--set", "decision.rule=luck"], "'luck'"),
        (["study.toml", "--set", "model.modules.mlp=own.py:Refused"], "must give (2, 16, 16)"),
        (["study.toml", "--results", "other"], "a study"),
        (["study.toml", "--results", "text.txt/deeper"], "cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(arguments, words, tmp_path, monkeypatch, caplog):
    monkeypatch.chdir(write_study(tmp_path))  # of two seeds, of which much is to be warned
    (tmp_path / "own.py").write_text(OWN)
    (tmp_path / "syntax.toml").write_text("[")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    before = sorted(tmp_path.rglob("*"))
    talks = "own.py" in arguments[-1]  # what a process of its own is for
    with contextlib.nullcontext() if talks else in_one_process():
        code, out, err = verb("run", *arguments)
    assert (code, out, err.count("\n")) == (2, "", 1), (out, err)
    assert words in err and not caplog.messages
    left = [path for path in sorted(tmp_path.rglob("*")) if "__pycache__" not in path.parts]
    assert left == before
