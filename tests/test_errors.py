"""Every error has a known code, and its text names the value and the rule or the way out."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import paribus
from paribus.errors import CODES

SOURCE = Path(paribus.__file__).parent
# Words of a rule or a way out, or names of texts that are assembled elsewhere and end with one.
ADVICE = re.compile(r";|\bmust\b|\bneeds?\b|such as|`paribus|: (state|say|name|set|use|give) ")
HINTS = {"error", "problem", "why", "hint", "known", "meant", "message", "such", "explain"}
HINTS |= {"nearest", "NOT_CHOSEN"}


def messages() -> Iterator[tuple[str, str, ast.expr]]:
    """Yield place, code and message of every ParibusError that the package makes."""
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "ParibusError":
                codes = [k.value for k in node.keywords if k.arg == "code"]
                if all(isinstance(code, ast.Constant) for code in codes):
                    code = str(codes[0].value) if codes else "value"  # type: ignore[attr-defined]
                    yield f"{path.relative_to(SOURCE)}:{node.lineno}", code, node.args[0]


def test_codes_are_those_that_are_listed():
    assert {code for _, code, _ in messages()} == set(CODES)


def test_a_message_has_a_value_and_a_rule_or_a_way_out():
    lacking, checked = [], set()
    for place, code, message in messages():
        parts = list(ast.walk(message))
        literals = [part.value for part in parts if isinstance(part, ast.Constant)]
        text = "".join(literal for literal in literals if isinstance(literal, str))
        names = {getattr(part, "id", "") for part in parts}
        if not isinstance(message, ast.JoinedStr | ast.Constant):
            continue  # assembled elsewhere
        checked.add(code)
        has_value = isinstance(message, ast.JoinedStr) or ";" in text or "--" in text or "." in text
        if not has_value or not (ADVICE.search(text) or names & HINTS):
            lacking.append(f"{place}: {text}")
    assert lacking == [] and checked == set(CODES)
