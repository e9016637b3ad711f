"""The source of a user's own parts, and what importing them must leave as it is."""

import hashlib
from pathlib import Path

import pytest

from paribus.study.custom_code import changed_sources, digests_of, own_files

from ..tools import refused

FILES = {
    "ideas.py": """
import torch, helpers
from inner.deep import Part as P
from inner import other
class Mine(P):
    def forward(self, x):
        from late import lazily
        return lazily(helpers.shift(x))
""",
    "helpers.py": "def shift(x):\n    return x\n",
    "inner/__init__.py": "",
    "inner/deep.py": "from . import sibling\nclass Part(sibling.Root):\n    pass\n",
    "inner/sibling.py": "from ..helpers import shift\nclass Root:\n    pass\n",
    "inner/other.py": "import ideas\nthing = 1\n",
    "late.py": "def lazily(x):\n    return x\n",
    "alone.py": "A = 1\n",
}


@pytest.fixture
def folder(tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def found(folder: Path, path: str = "ideas.py:Mine") -> set[str]:
    files = own_files(path, folder, "model.modules.mlp")
    return {file.relative_to(folder.resolve()).as_posix() for file in files}


def test_every_file_that_is_imported_from_beside_it_is_there(folder):
    assert found(folder) == FILES.keys() - {"alone.py"}


@pytest.mark.parametrize(
    ("code", "files"),
    [
        ("import pkg.h", {"pkg/__init__.py": "", "pkg/h.py": ""}),
        ("import pkg.h as h", {"pkg/h.py": ""}),
        ("import pkg", {"pkg/__init__.py": "from . import h", "pkg/h.py": ""}),
        ("from pkg import *", {"pkg/__init__.py": "from pkg.h import f", "pkg/h.py": ""}),
        ("def f():\n    from a import h", {"a.py": "import h", "h.py": ""}),
    ],
)
def test_ways_to_import_another_file(tmp_path, code, files):
    for name, text in (files | {"ideas.py": code}).items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert found(tmp_path) == {"ideas.py", *files}


def test_what_is_no_python_is_said(tmp_path):
    (tmp_path / "a.py").write_text("class A(:\n")
    with refused("value", match="model.modules.mlp"):
        own_files("a.py:A", tmp_path, "model.modules.mlp")
    with refused("missing", match="b.py"):
        own_files("b.py:A", tmp_path, "model.modules.mlp")


def test_a_digest_is_of_the_whole_file(folder):
    before = digests_of(["ideas.py:Mine"], "probes.own", folder)
    content = (folder / "late.py").read_bytes()
    assert before["ideas.py:Mine"]["late.py"] == f"file:{hashlib.sha256(content).hexdigest()}"
    (folder / "late.py").write_text("def lazily(x):\n    return 2 * x\n")
    (folder / "alone.py").write_text("A = 2\n")
    after = digests_of(["ideas.py:Mine"], "probes.own", folder)
    assert changed_sources(*(each["ideas.py:Mine"] for each in (before, after))) == {"late.py"}
