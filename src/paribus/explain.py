"""One-line explanations of validation errors: the value, the rule and the fix."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from paribus.errors import nearest

MEMBERS = ("bool", "int", "float", "str")  # of a union, as pydantic calls them
# How it calls members that have others in them, and our tag of a table in a union.
OF_TYPES = ("list[", "tuple[", "literal[", "table[")
TYPES = {
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a string",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "too_short": "a nonempty list or table",
    "string_too_short": "a nonempty string",
    "string_pattern_mismatch": "a name without / or \\ that does not begin with a dot",
}
RULES = ("value_error", "too_long", "string_too_long")  # whose messages are whole sentences
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def explain(
    error: ValidationError, model: type[BaseModel] = BaseModel, also: Sequence[str] = ()
) -> str:
    """Summarize a validation error as one line that lists all problems.

    Args:
        error: the validation error.
        model: model whose keys are suggested in place of unknown keys.
        also: additional top-level keys to suggest.
    """
    problems: dict[tuple[Any, ...], list[Any]] = {}  # by place; several of a value of a union
    for problem in error.errors(include_url=False):
        place = tuple(part for part in problem["loc"] if not str(part).startswith(OF_TYPES))
        if place and place[-1] in MEMBERS and problem["type"] not in (*UNKNOWN_KEY, "missing"):
            place = place[:-1]
        problems.setdefault(place, []).append(problem)
    # An unknown key explains a missing one (it may be its misspelling), so it goes first.
    ordered = sorted(problems, key=lambda place: problems[place][0]["type"] != "extra_forbidden")
    known = [*_keys(model), *also]
    return "; ".join(dict.fromkeys(_text(place, problems[place], known) for place in ordered))


def _text(place: tuple[Any, ...], problems: list[Any], known: list[str]) -> str:
    """Describe the problems at one location in the input."""
    location = [str(part) for part in place]
    if place and isinstance(place[0], int):  # of a dataclass, by its place
        location[0] = f"argument {place[0] + 1}"
    key, value, kind = ".".join(location), problems[0]["input"], problems[0]["type"]
    rules = [
        TYPES.get(problem["type"])
        or problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        for problem in problems
    ]
    *choices, last = " or ".join(dict.fromkeys(rules)).split(" or ")
    rule = f"{', '.join(choices)} or {last}" if choices else last
    if kind in UNKNOWN_KEY:
        *table, name = location
        keys = [option.split(".") for option in known]
        table = [part for part in table if any(part in option for option in keys)]
        beside = [option[-1] for option in keys if option[:-1] == table]
        same = [option for option in known if option.split(".")[-1] == name]
        own = f"; for an option of a custom module, set '{'.'.join(table)}.options.{name}'"
        hint = own if "options" in beside else ""
        return f"unknown key '{key}': {nearest(name, same or beside)}{hint}"
    if location and location[-1] == "[key]":  # of a table whose keys are these
        return f"key '{key.removesuffix('.[key]')}' must be {rule}"
    if kind == "missing":
        return f"'{key}' is missing; add it"
    if not key:
        return rule
    if kind in RULES and len(problems) == 1:
        return f"{key}: {rule}"
    hint = f"; set {key}.name instead" if f"{key}.name" in known else ""
    if location[-1] == "seeds" and isinstance(value, int):
        hint = f", such as {list(range(1, 6))}"
    return f"{key} = {value!r} must be {rule}{hint}"


def _keys(model: Any, prefix: str = "") -> Iterator[str]:
    """Yield the dotted keys of a model and, recursively, of nested models.

    User-defined dict keys and list indices are omitted.
    """
    if isinstance(model, type) and issubclass(model, BaseModel):
        for name, field in model.model_fields.items():
            key = f"{prefix}{field.alias or name}"
            yield key
            yield from _keys(field.annotation, f"{key}.")
    for inner in get_args(model):
        yield from _keys(inner, prefix)
