"""What a user's part is made of: editing that is noticed, editing anything else is not."""

from __future__ import annotations

from pathlib import Path

import pytest

from paribus.errors import ParibusError
from paribus.study.closure import closure

IDEAS = '''
"""Ideas."""
import torch
from torch import nn
import helpers
from helpers import scale
from inner.deep import Part as P
from inner import other

FACTOR = 2
UNUSED = 3

def used(x):
    return x * FACTOR

def unused(x):
    return x

class Base(nn.Module):
    pass

class Mine(Base):
    def forward(self, x):
        from late import lazily
        return used(scale(x)) + helpers.shift(x) + P()(x) + other.thing + lazily(x)

class Unrelated(nn.Module):
    pass

if __name__ == "__main__":
    print("a try")
'''
FILES = {
    "ideas.py": IDEAS,
    "helpers.py": "K = 1\n\ndef scale(x):\n    return K * x\n\ndef shift(x):\n    return x\n\n"
    "def nobody(x):\n    return x\n",
    "inner/__init__.py": "",
    "inner/deep.py": "from . import sibling\nfrom .sibling import Root\n\nclass Part(Root):\n"
    "    pass\n",
    "inner/sibling.py": "class Root:\n    pass\n\nclass Lonely:\n    pass\n",
    "inner/other.py": "thing = 1\nnothing = 2\n",
    "late.py": "def lazily(x):\n    return x\n",
    "alone.py": "A = 1\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(folder: Path, path: str = "ideas.py:Mine") -> dict[str, str]:
    digests = closure(path, folder, "model.modules.mlp")
    return {str(file.relative_to(folder.resolve())): digest for file, digest in digests.items()}


def edit(folder: Path, name: str, old: str, new: str) -> set[str]:
    """The files whose digests an edit changes."""
    before = found(folder)
    text = (folder / name).read_text()
    assert old in text or not old
    (folder / name).write_text(text.replace(old, new, 1) if old else text + new)
    after = found(folder)
    return {file for file in before | after if before.get(file) != after.get(file)}


def test_every_file_that_is_imported_is_there(folder: Path) -> None:
    assert found(folder).keys() == FILES.keys() - {"alone.py"}


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ideas.py", "FACTOR = 2", "FACTOR = 5"),
        ("ideas.py", "return x * FACTOR", "return x + FACTOR"),
        ("ideas.py", "class Base(nn.Module):\n    pass", "class Base(nn.Module):\n    a = 1"),
        ("ideas.py", "used(scale(x))", "scale(x)"),
        ("ideas.py", "import torch\n", "import torch\ntorch.set_default_dtype(torch.float64)\n"),
        ("ideas.py", "", "\nMine.forward = unused\n"),
        ("ideas.py", "", "\nsetattr(Mine, 'forward', unused)\n"),
        ("ideas.py", "class Unrelated(nn.Module):\n    pass", "class Un:\n    Mine.f = unused"),
        ("ideas.py", "class Unrelated", "@used\nclass Unrelated"),
        ("ideas.py", "", "\nif torch.cuda.is_available():\n    FACTOR = 3\n"),
        ("ideas.py", "", "\nfor Base.x in (1, 2):\n    pass\n"),
        ("helpers.py", "K = 1", "K = 2"),
        ("helpers.py", "return x\n", "return x + 1\n"),
        ("helpers.py", "K = 1", "import torch\nK = 1\ntorch.manual_seed(3)"),
        ("inner/sibling.py", "class Root:\n    pass", "class Root:\n    a = 1"),
        ("inner/__init__.py", "", "print('here')\n"),
        ("inner/other.py", "thing = 1", "thing = 2"),
        ("late.py", "return x", "return 2 * x"),
    ],
)
def test_an_edit_of_what_is_used_is_noticed(folder: Path, name: str, old: str, new: str) -> None:
    assert name in edit(folder, name, old, new)


@pytest.mark.parametrize(
    ("name", "old", "new"),
    [
        ("ideas.py", "class Unrelated(nn.Module):\n    pass", ""),
        ("ideas.py", "class Unrelated(nn.Module):\n    pass", "class Other:\n    b = {1: 2}"),
        ("ideas.py", "UNUSED = 3", "UNUSED = 4"),
        ("ideas.py", '"""Ideas."""', '"""Other words."""'),
        (
            "ideas.py",
            "",
            "\nfrom paribus.engine.probes import probe\n@probe('a', unit='1')\ndef p(s): ...\n",
        ),
        ("ideas.py", 'print("a try")', 'print("another")'),
        ("ideas.py", "import torch\n", "import torch\nimport math\n"),
        ("ideas.py", "def unused(x):\n    return x", "def unused(x):\n    return 2 * x"),
        ("helpers.py", "def nobody(x):\n    return x", "def nobody(x):\n    return 0"),
        ("inner/sibling.py", "class Lonely:\n    pass", ""),
        ("inner/other.py", "nothing = 2", "nothing = 3"),
        ("alone.py", "A = 1", "A = 2"),
    ],
)
def test_an_edit_of_anything_else_is_not(folder: Path, name: str, old: str, new: str) -> None:
    assert edit(folder, name, old, new) == set()


@pytest.mark.parametrize(
    ("line", "files"),
    [
        ("exec('FACTOR = 3')", {"ideas.py"}),
        ("from helpers import *", {"helpers.py"}),
        ("import importlib\nimportlib.import_module('alone')", {"alone.py", "helpers.py"}),
        ("__import__('alone')", {"alone.py"}),
    ],
)
def test_what_reading_cannot_know_counts_whole(folder: Path, line: str, files: set[str]) -> None:
    with (folder / "ideas.py").open("a") as file:
        file.write(f"\n{line}\n")
    for name in files:
        assert edit(folder, name, "", "\nanything = 1\n") == {name}


def test_a_package_is_followed_below_itself(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(folder)
    before = found(folder, "inner.deep:Part")
    assert before.keys() == {"inner/__init__.py", "inner/deep.py", "inner/sibling.py"}


def test_modules_that_import_each_other(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("import b\nclass A:\n    x = b.B\n")
    (tmp_path / "b.py").write_text("import a\nclass B:\n    def f(self): return a.A\n")
    assert found(tmp_path, "a.py:A").keys() == {"a.py", "b.py"}


def test_what_is_no_python_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("class A(:\n")
    with pytest.raises(ParibusError, match=r"model.modules.mlp: a.py is no Python file"):
        closure("a.py:A", tmp_path, "model.modules.mlp")
    with pytest.raises(ParibusError, match="no file"):
        closure("b.py:A", tmp_path, "model.modules.mlp")


HELPER = "def f(x):\n    return x * 1\n"
REGISTRY = "R = []\nclass B:\n    def __init_subclass__(c): R.append(c)\n"
SUBCLASS = "from r import B\nclass S(B):\n    def f(x): return x * 1\n"
CLASS_BODY = (
    "K = 1\ndef up():\n    global K\n    K = 1 * 1\nclass Z:\n    up()\ndef f(x): return K\n"
)


@pytest.mark.parametrize(
    ("start", "used", "files"),
    [
        ("import pkg.h", "pkg.h.f", {"pkg/__init__.py": "", "pkg/h.py": HELPER}),
        ("import pkg.h", "pkg.h.f", {"pkg/h.py": HELPER}),
        ("import pkg", "pkg.h.f", {"pkg/__init__.py": "from . import h", "pkg/h.py": HELPER}),
        ("import pkg as p", "p.h.f", {"pkg/__init__.py": "from pkg import h", "pkg/h.py": HELPER}),
        ("import a", "a.h.f", {"a.py": "import h", "h.py": HELPER}),
        ("from a import h", "h.f", {"a.py": "import h", "h.py": HELPER}),
        ("from a import *", "h.f", {"a.py": "import h", "h.py": HELPER}),
        ("from importlib import import_module", "import_module('h').f", {"h.py": HELPER}),
        ("import importlib as il", "il.import_module('h').f", {"h.py": HELPER}),
        ("import importlib.util as u", "u.find_spec", {"h.py": HELPER}),
        ("import h, sys", "sys.modules['h'].f", {"h.py": HELPER}),
        ("import sys as s", "s.modules['h'].f", {"h.py": HELPER}),
        ("from sys import modules as m", "m['h'].f", {"h.py": HELPER}),
        ("import h\nfrom r import R", "R[0].f", {"r.py": REGISTRY, "h.py": SUBCLASS}),
        (
            "import h\nfrom r import B",
            "B.__subclasses__()[0].f",
            {"r.py": "class B:\n    pass\n", "h.py": SUBCLASS},
        ),
        ("from h import f", "f", {"h.py": CLASS_BODY}),
    ],
)
def test_ways_to_reach_another_file(
    tmp_path: Path, start: str, used: str, files: dict[str, str]
) -> None:
    code = f"{start}\nclass M:\n    def forward(self, x): return {used}(x)\n"
    for name, text in (files | {"ideas.py": code}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    before = closure("ideas.py:M", tmp_path, "here")
    edited = tmp_path / next(name for name in files if name.endswith("h.py"))
    edited.write_text(edited.read_text().replace("* 1", "* 2"))
    assert closure("ideas.py:M", tmp_path, "here") != before
