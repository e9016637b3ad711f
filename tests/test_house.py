"""The shape of the code: docstrings.

What is not so yet is listed here with what it is now. A list only ever gets shorter.
"""

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import paribus

SOURCE = Path(paribus.__file__).parent
# {file: public names without a docstring}
WITHOUT_DOCSTRING: dict[str, set[str]] = {
    "engine/export/modeling_paribus.py": {"ParibusModel.forward"}  # as every module of transformers
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


def test_public_names_say_what_they_are():
    silent = {
        file: names - WITHOUT_DOCSTRING.get(file, set())
        for file, tree in trees().items()
        if (names := set(undocumented(tree))) - WITHOUT_DOCSTRING.get(file, set())
    }
    assert not silent, f"without a docstring: {silent}"
    assert not [file for file, tree in trees().items() if ast.get_docstring(tree) is None]


def test_lists_of_exceptions_name_what_there_is():
    assert WITHOUT_DOCSTRING.keys() <= trees().keys()
