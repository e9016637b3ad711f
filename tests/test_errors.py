"""Contract of every ParibusError in the source: a known code, and a rule or a way out."""

import ast
from pathlib import Path
from typing import get_args

import paribus
from paribus.errors import Code

# A fix after a semicolon, a rule that says what is valid, or text that another function writes.
FIXES = (";", "must ", "?", "explain(", "nearest(", "why}", "problem}", "error}")
SOURCES = Path(paribus.__file__).parent


def test_every_error_has_a_known_code_and_a_way_out():
    errors = [
        (path, node)
        for path in SOURCES.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ParibusError"
    ]
    assert len(errors) > 250
    for path, node in errors:
        message, where = ast.unparse(node.args[0]), f"{path}:{node.lineno}"
        codes = [k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)]
        assert set(codes) <= set(get_args(Code)), where
        is_text = not isinstance(node.args[0], (ast.Name, ast.Call, ast.Subscript))
        assert not is_text or any(fix in message for fix in FIXES), where
