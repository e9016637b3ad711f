"""Validation errors in one line: the value, the rule and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from paribus.errors import MOST_MEANT, did_you_mean, nearest

MEMBERS = ("bool", "int", "float", "str")  # of a union, as pydantic calls them
OF_TYPES = ("list[", "tuple[", "literal[")  # how it calls members that have others in them
MOST_SHOWN = 3  # problems that are named; the others are counted
TYPES = {
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "string_type": "a text",
    "tuple_type": "a list",
    "list_type": "a list",
    "dict_type": "a table",
    "model_type": "a table",
    "too_short": "a list or table that is not empty",
    "string_too_short": "a text that is not empty",
    "string_pattern_mismatch": "a name without / or \\ that does not begin with a dot",
}
UNKNOWN_KEY = ("extra_forbidden", "unexpected_keyword_argument")


def explain(
    error: ValidationError, model: type[BaseModel] = BaseModel, also: Sequence[str] = ()
) -> str:
    """Describe the first problems of `error`, and count the others.

    For an unknown key, a similar key of `model` is suggested, or of `also` at the top level.
    """
    problems: dict[tuple[Any, ...], list[Any]] = {}  # by place; several of a value of a union
    for problem in error.errors(include_url=False):
        place = tuple(part for part in problem["loc"] if not str(part).startswith(OF_TYPES))
        if place and place[-1] in MEMBERS and problem["type"] not in (*UNKNOWN_KEY, "missing"):
            place = place[:-1]
        problems.setdefault(place, []).append(problem)
    # An unknown key explains a missing one (it may be its misspelling), so it goes first.
    ordered = sorted(problems, key=lambda place: problems[place][0]["type"] != "extra_forbidden")
    texts = list(dict.fromkeys(_text(place, problems[place], model, also) for place in ordered))
    rest = f" (and {len(texts) - MOST_SHOWN} more)" if len(texts) > MOST_SHOWN else ""
    return "; ".join(texts[:MOST_SHOWN]) + rest


def _text(
    place: tuple[Any, ...], problems: list[Any], model: type[BaseModel], also: Sequence[str]
) -> str:
    """Describe what is wrong at one place."""
    location = [str(part) for part in place]
    if place and isinstance(place[0], int):  # of a dataclass, by its place
        location[0] = f"argument {place[0] + 1}"
    key, value, kind = ".".join(location), problems[0]["input"], problems[0]["type"]
    rules = [
        TYPES.get(problem["type"])
        or problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
        for problem in problems
    ]
    rule = " or ".join(dict.fromkeys(rules))
    if kind in UNKNOWN_KEY:
        known = _keys_at(model, location[:-1])
        known += also if len(location) == 1 else ()
        return f"unknown key '{key}': {likely(key, known, _all_keys(model))}"
    if location and location[-1] == "[key]":  # of a table whose keys are these
        return f"unknown key '{key.removesuffix('.[key]')}': it must be {rule}"
    if kind == "missing":
        return f"'{key}' is missing; it must be given"
    if (kind == "value_error" and len(problems) == 1) or not key:
        return f"{key}: {rule}" if key else rule
    if kind in ("too_long", "string_too_long"):
        limit = problems[0]["ctx"]["max_length"]
        entries = "entries" if kind == "too_long" else "characters"
        return f"{key} has {len(value):,} {entries} and may have {limit:,}; shorten it"
    # 'model.positions = "rotary"' means its kind, and `decision = "superiority"` its rule.
    meant = [option for option in ("kind", "name", "rule") if option in _keys_at(model, location)]
    way_out = f"; did you mean {key}.{meant[0]}?" if kind == "model_type" and meant else ""
    return f"{key} = {value!r} must be {rule}{way_out}"


def likely(key: str, known: Iterable[str], everywhere: Iterable[str]) -> str:
    """Suggest what an unknown dotted key means: the same key elsewhere, or a similar one beside it.

    If there is an `options` table beside it, the key may also belong there.
    """
    table, _, name = key.rpartition(".")
    known, options = list(known), f"{table}.options"
    elsewhere = [option for option in everywhere if option.rpartition(".")[2] == name]
    if 0 < len(elsewhere) <= MOST_MEANT:
        return did_you_mean([f"{options}.{name}"] * ("options" in known) + elsewhere)
    text = nearest(name, known)
    is_value = "options" in known and not text.startswith("did")
    return f"{text}; values of a part's own go into '{options}'" if is_value else text


def _keys_at(model: Any, path: list[str]) -> list[str]:
    for part in path:
        fields = _model_in(model).model_fields
        if part in fields:
            model = fields[part].annotation
        # else: a key of a table or an index of a list, whose type is what the field holds
    return sorted(field.alias or name for name, field in _model_in(model).model_fields.items())


def _all_keys(model: type[BaseModel]) -> list[str]:
    """Return the dotted keys of a model and its nested models. Keys inside tables and lists are
    excluded, because they contain a name or an index chosen by the user."""
    keys = []
    for name, field in model.model_fields.items():
        key, kind = field.alias or name, get_origin(field.annotation)
        inner_model = BaseModel if kind in (dict, tuple, list) else _model_in(field.annotation)
        keys += [key, *(f"{key}.{inner}" for inner in _all_keys(inner_model))]
    return keys


def _model_in(annotation: Any) -> type[BaseModel]:
    """Return the first model named in a type such as `tuple[Endpoint, ...]` or `Claims | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_model_in(argument) for argument in get_args(annotation)]
    return next((model for model in inner if model is not BaseModel), BaseModel)
