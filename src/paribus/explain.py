"""A validation error in one line: the value, the rule and the way out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

from paribus.errors import MOST_MEANT, did_you_mean, nearest

MEMBERS = frozenset({"bool", "int", "float", "str"})  # of a union, as pydantic calls them
MOST_TOLD = 3  # problems that are told; the others are counted
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


def explain(
    error: ValidationError, model: type[BaseModel] = BaseModel, also: Sequence[str] = ()
) -> str:
    """Return the first problems of `error` in words, and how many more there are.

    The keys of `model`, and at its top those of `also`, are what an unknown one may have meant.
    """
    # A list that is too short because its entries were refused is no problem of its own.
    found = error.errors(include_url=False)
    problems = [
        one
        for one in found
        if one["type"] != "too_short"
        or not any(o is not one and o["loc"][: len(one["loc"])] == one["loc"] for o in found)
    ]
    problems = _joined(problems)
    # An unknown key explains a missing one (it may be its misspelling), so it goes first.
    problems.sort(key=lambda problem: problem["type"] != "extra_forbidden")
    told = list(dict.fromkeys(_explain_one(one, model, also) for one in problems))
    more = f" (and {len(told) - MOST_TOLD} more)" if len(told) > MOST_TOLD else ""
    return "; ".join(told[:MOST_TOLD]) + more


def _joined(problems: list[Any]) -> list[Any]:
    """Return `problems`, with those of a value that may be of several types as one."""
    unions: dict[Any, list[Any]] = {}
    for one in problems:
        if one["loc"] and _is_member(one["loc"][-1]):
            unions.setdefault(one["loc"][:-1], []).append(one)
    joined: dict[int, Any] = {id(one): one for one in problems}
    for at, (first, *others) in unions.items():
        if others:
            *rules, last = dict.fromkeys(map(_rule, (first, *others)))
            words = f"{', '.join(rules)} or {last}" if rules else last
            joined[id(first)] = {**first, "loc": at, "type": "union", "msg": words}
            for one in others:
                del joined[id(one)]
    return list(joined.values())


def _is_member(place: Any) -> bool:
    """Return whether that is what pydantic calls a type of a union."""
    return place in MEMBERS or _is_type(place)


def _is_type(place: Any) -> bool:
    """Return whether that is what pydantic calls a type that has others in it."""
    return str(place).startswith(("list[", "tuple[", "literal["))


def _rule(problem: Any) -> str:
    said = problem["msg"].removeprefix("Input should be ").removeprefix("Value error, ")
    return TYPES.get(problem["type"]) or str(said)


def _explain_one(problem: Any, model: type[BaseModel], also: Sequence[str]) -> str:
    location = [str(part) for part in problem["loc"] if not _is_type(part)]
    if problem["loc"] and isinstance(problem["loc"][0], int):  # of a dataclass, by its place
        location[0] = f"argument {problem['loc'][0] + 1}"
    key, value, kind = ".".join(location), problem["input"], problem["type"]
    if kind == "invalid_key":
        return f"key {problem['loc'][-1]!r} must be a text"
    if kind in ("extra_forbidden", "unexpected_keyword_argument"):
        known = _keys_at(model, location[:-1])
        known += also if len(location) == 1 else ()
        return f"unknown key '{key}': {likely(key, known, _all_keys(model))}"
    if location and location[-1] == "[key]":  # of a table whose keys are these
        return f"unknown key '{key.removesuffix('.[key]')}': it must be {_rule(problem)}"
    if kind == "missing":
        return f"'{key}' is missing; it must be given"
    if kind == "value_error":
        message = str(problem["ctx"]["error"])
        return f"{key}: {message}" if key else message
    if kind == "too_long":
        most, there = problem["ctx"]["max_length"], len(value)
        return f"{key} has {there:,} entries and may have {most:,}; state fewer"
    if kind == "string_too_long":
        most, there = problem["ctx"]["max_length"], len(value)
        return f"{key} may have {most:,} characters and has {there:,}; shorten it"
    if kind in TYPES:
        # 'model.positions = "rotary"' means its kind, and `decision = "superiority"` its rule.
        meant = [one for one in ("kind", "name", "rule") if one in _keys_at(model, location)]
        way_out = f"; did you mean {key}.{meant[0]}?" if kind == "model_type" and meant else ""
        return f"{key} = {value!r} must be {TYPES[kind]}{way_out}"
    return f"{key} = {value!r} must be {_rule(problem)}"


def _keys_at(model: Any, path: list[str]) -> list[str]:
    for part in path:
        fields = _model_in(model).model_fields
        if part in fields:
            model = fields[part].annotation
        # else: a key of a table or an index of a list, whose type is what the field holds
    return sorted(field.alias or name for name, field in _model_in(model).model_fields.items())


def likely(key: str, known: Iterable[str], everywhere: Iterable[str]) -> str:
    """Return `nearest` of the keys beside a dotted one; but of one that is known elsewhere, where.

    Where a part is chosen its own values are in `options`, which anything might be meant for.
    """
    table, _, name = key.rpartition(".")
    known, options = list(known), f"{table}.options"
    elsewhere = [one for one in everywhere if one.rpartition(".")[2] == name]
    if 0 < len(elsewhere) <= MOST_MEANT:
        return did_you_mean([f"{options}.{name}"] * ("options" in known) + elsewhere)
    told = nearest(name, known)
    if "options" in known and not told.startswith("did"):
        told += f"; values of a part's own go into '{options}'"
    return told


def _all_keys(model: type[BaseModel]) -> list[str]:
    """Return the dotted keys of a model and of the models in it; not those of tables and lists,
    which have a name or a number of the user's before them."""
    found = []
    for name, field in model.model_fields.items():
        key, kind = field.alias or name, get_origin(field.annotation)
        held = BaseModel if kind in (dict, tuple, list) else _model_in(field.annotation)
        found += [key, *(f"{key}.{inner}" for inner in _all_keys(held))]
    return found


def _model_in(annotation: Any) -> type[BaseModel]:
    """Return the first model named in a type such as `tuple[Endpoint, ...]` or `Claims | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    inner = [_model_in(argument) for argument in get_args(annotation)]
    return next((model for model in inner if model is not BaseModel), BaseModel)
