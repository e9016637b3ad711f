"""The shape of the code: docstrings."""

import ast
from collections.abc import Iterator
from pathlib import Path

import paribus

SOURCE = Path(paribus.__file__).parent


def undocumented(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    """Yield public functions, classes and methods without a docstring."""
    for inner in node.body:
        is_named = isinstance(inner, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef)
        if is_named and not inner.name.startswith("_"):
            if ast.get_docstring(inner) is None:
                yield prefix + inner.name
            if isinstance(inner, ast.ClassDef):
                yield from undocumented(inner, f"{prefix}{inner.name}.")


def test_public_names_and_files_have_docstrings():
    silent = set()
    for path in sorted(SOURCE.rglob("*.py")):
        file, tree = path.relative_to(SOURCE).as_posix(), ast.parse(path.read_text("utf-8"))
        silent |= set(undocumented(tree, f"{file}: "))
        silent |= {file} if ast.get_docstring(tree) is None else set()
    assert silent == set()
