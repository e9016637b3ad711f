"""A mistake is one line: what is to be warned of comes once nothing refuses the study any more."""

import pytest

from .test_cli import verb, write_study

OWN = """
import sys, warnings
import torch
from torch import nn

class Refused(nn.Module):
    def __init__(self, model):
        print("a library that talks", file=sys.stderr)
        warnings.warn("and warns")
        super().__init__()

    def forward(self, x):
        return x[..., :1]

"""


@pytest.fixture
def folder(tmp_path):
    """A study of two seeds, of which much is to be warned, and what mistakes are made of."""
    write_study(tmp_path)
    (tmp_path / "own.py").write_text(OWN, encoding="utf-8")
    (tmp_path / "syntax.toml").write_text("[", encoding="utf-8")
    (tmp_path / "latin.txt").write_bytes(b"\xe9t\xe9 " * 50)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    return tmp_path


@pytest.mark.parametrize("name", ["run", pytest.param("register", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["syntax.toml"], "valid TOML"),
        (["study.toml", "--set", "data.path=nowhere.txt"], "not exist"),
        (["study.toml", "--set", "data.seq_len=5000"], "one window"),
        (["study.toml", "--set", "decision.rule=luck"], "'luck'"),
        (["study.toml", "--set", "model.modules.mlp=own.py:Refused"], "must give (2, 16, 16)"),
        (["study.toml", "--results", "other"], "a study"),
        (["study.toml", "--results", "text.txt/deeper"], "cannot write"),
    ],
)
def test_a_mistake_is_one_line_and_leaves_nothing(name, arguments, words, folder, caplog):
    before = sorted(folder.rglob("*"))
    done = verb(name, *arguments, cwd=folder)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1), done
    assert words in done.stderr
    assert not caplog.messages
    left = [path for path in sorted(folder.rglob("*")) if "__pycache__" not in path.parts]
    assert left == before


def test_an_unwritable_folder_is_told_first(folder, monkeypatch):
    monkeypatch.setattr(
        "paribus.runs.executors.local.Local.start", lambda *_: pytest.fail("a worker was started")
    )
    done = verb("run", "study.toml", "--results", "text.txt/deeper", cwd=folder)
    assert "cannot write" in done.stderr
