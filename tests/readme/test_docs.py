"""The documentation is true: its studies load, its commands parse, verbs and keys are there."""

from __future__ import annotations

import importlib.util
import re
import shlex
import tomllib
from pathlib import Path
from typing import Any

import pytest
from cyclopts import CycloptsError

from paribus.cli import VERBS, app
from paribus.engine.setting import Setting
from paribus.errors import ParibusError
from paribus.study import Study
from paribus.study.study import built

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.DOTALL | re.MULTILINE)
# What fragments are merged into, where they are no study of their own.
BASE: dict[str, Any] = {
    "name": "base",
    "seeds": [1, 2, 3, 4, 5],
    "data": {"corpus": "pydoc"},
    "training": {"iterations": 30},
    "arms": {"baseline": {}, "layernorm": {"set": {"model.embedding.norm": "layernorm"}}},
}


def blocks(kind: str) -> list[tuple[str, str]]:
    return [
        (f"{page.name}:{number}", text)
        for page in PAGES
        for number, (found, text) in enumerate(BLOCK.findall(page.read_text()), 1)
        if found == kind
    ]


def merged(base: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    found = dict(base)
    for key, value in part.items():
        there = found.get(key)
        both = isinstance(there, dict) and isinstance(value, dict)
        found[key] = merged(there, value) if both else value
    return found


@pytest.mark.parametrize(("where", "text"), blocks("toml"), ids=lambda one: one[:30])
def test_every_study_of_the_documentation_loads(where: str, text: str) -> None:
    """A fragment within a small study; what is not there (own code, texts) is not looked for."""
    table = tomllib.loads(text)
    if "trainer" not in table:
        table = merged(BASE, table)
    table.setdefault("arms", {}).setdefault("baseline", {})
    try:
        built(table, folder=ROOT)
    except ParibusError as error:
        pytest.fail(f"{where}: {error}")


def commands() -> list[tuple[str, str]]:
    found = []
    for where, text in blocks("sh"):
        for line in text.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|", line):
                words = shlex.split(part, comments=True)
                if "paribus" in words[:2]:  # after NAME=value, too
                    found.append((where, shlex.join(words[words.index("paribus") + 1 :])))
    return found


@pytest.mark.parametrize(("where", "command"), commands(), ids=lambda one: one[:40])
def test_every_command_of_the_documentation_is_one(where: str, command: str) -> None:
    words = [re.sub(r"^[A-Z]+(\.\.\.)?$", "name", word) for word in shlex.split(command)]
    try:
        app.parse_args(words, exit_on_error=False, print_error=False)
    except CycloptsError as error:
        pytest.fail(f"{where}: paribus {command}: {error}")


def test_the_reference_has_every_verb_and_key() -> None:
    about = importlib.util.spec_from_file_location("reference", ROOT / "docs" / "reference.py")
    assert about is not None and about.loader is not None
    made = importlib.util.module_from_spec(about)
    about.loader.exec_module(made)
    pages = made.pages()
    for verb in VERBS:
        assert f"## {verb}\n" in pages["reference/verbs.md"]
        assert f"`paribus {verb}`" in pages["llms.txt"]
    for name in Study.model_fields:
        assert f"`{name}`" in pages["reference/keys.md"]
    for name in Setting.model_fields:
        assert f"## {name}\n" in pages["reference/keys.md"]
    assert "training.schedule" in pages["reference/keys.md"]
    for page in re.findall(r"\]\(([\w/-]+\.md)\)", pages["llms.txt"]):
        assert page in pages or (ROOT / "docs" / page).is_file(), page


def test_every_page_is_in_the_contents() -> None:
    contents = (ROOT / "mkdocs.yml").read_text()
    for page in (ROOT / "docs").glob("*.md"):
        assert f" {page.name}\n" in contents, page.name
