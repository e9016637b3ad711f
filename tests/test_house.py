"""The shape of the code: docstrings, and names that say one thing each.

What is not so yet is listed here with what it is now. A list only ever gets shorter.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import paribus

SOURCE = Path(paribus.__file__).parent
# {file: public names without a docstring}
WITHOUT_DOCSTRING: dict[str, set[str]] = {
    "engine/export/modeling_paribus.py": {
        "ParibusModel.forward"
    },  # as every module of transformers
}
# {name: why several files may have it}
TWINS = {
    "none": "the choice `none` at two sites of the model: norms/ and positions/",
    "study": "the room, and in it the class",
    "data": "the room, and in study/ the keys that it reads",
}


@cache
def trees() -> dict[str, ast.Module]:
    """{file: what it holds}."""
    return {
        path.relative_to(SOURCE).as_posix(): ast.parse(path.read_text("utf-8"))
        for path in sorted(SOURCE.rglob("*.py"))
    }


def undocumented(of: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[str]:
    """Public functions, classes and methods without a docstring."""
    for node in of.body:
        if not isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            continue
        if node.name.startswith("_"):
            continue
        if ast.get_docstring(node) is None:
            yield prefix + node.name
        if isinstance(node, ast.ClassDef):
            yield from undocumented(node, f"{prefix}{node.name}.")


def test_public_names_say_what_they_are() -> None:
    silent = {
        file: names - WITHOUT_DOCSTRING.get(file, set())
        for file, tree in trees().items()
        if (names := set(undocumented(tree))) - WITHOUT_DOCSTRING.get(file, set())
    }
    assert not silent, f"without a docstring: {silent}"
    assert not [file for file, tree in trees().items() if ast.get_docstring(tree) is None]


def test_names_of_modules_and_rooms_say_one_thing_each() -> None:
    places = defaultdict(set)
    for file in trees():
        path = Path(file)
        if path.name == "__init__.py":
            path = path.parent
        places[path.stem].add(path.as_posix())
    twins = {name: where for name, where in places.items() if len(where) > 1}
    assert twins.keys() <= TWINS.keys(), {n: w for n, w in twins.items() if n not in TWINS}
    assert all(twins[name] for name in TWINS if name in twins)


def test_lists_of_exceptions_name_what_there_is() -> None:
    assert WITHOUT_DOCSTRING.keys() <= trees().keys()
