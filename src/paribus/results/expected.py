"""What every file of a results folder must hold, checked wherever one is read; see `records` too.

A seal says that a record is the one that was written; some files have none (registration.json,
timing.json, throughput.parquet ...), and may have been edited, cut short or put there by somebody
else. What is read has the shape that its reader relies on, or is refused in one line.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from paribus.errors import ParibusError

Check = Callable[[Any], bool]


def _is(*kinds: type) -> Check:
    # JSON's true is no number.
    return lambda value: (
        isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
    )


def _number(value: Any) -> bool:
    # Compared, not converted: an integer may be larger than any float. NaN is in no interval.
    largest = sys.float_info.max
    return (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and -largest <= value <= largest
    )


def _positive(value: Any) -> bool:
    return _number(value) and value > 0


def _count(value: Any) -> bool:
    """A number of things, as a 64-bit integer holds it."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**63


def _list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _table_of(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _both(one: Check, other: Check) -> Check:
    return lambda value: one(value) and other(value)


def _either(one: Check, other: Check) -> Check:
    return lambda value: one(value) or other(value)


def _holding(**checks: Check) -> Check:
    """A table that has these keys, whatever else it has."""
    return lambda value: (
        isinstance(value, dict) and all(k in value and ok(value[k]) for k, ok in checks.items())
    )


def _where_there(checks: dict[str, Check]) -> Check:
    """A table that may have these keys, whatever else it has."""
    return lambda value: (
        isinstance(value, dict) and all(ok(value[k]) for k, ok in checks.items() if k in value)
    )


def _empty_or(check: Check) -> Check:
    return lambda value: value == {} or check(value)


text, whole, table = _is(str), _is(int), _is(dict)
optional_whole: Check = lambda value: value is None or whole(value)  # noqa: E731
optional_number: Check = lambda value: value is None or _number(value)  # noqa: E731

# Keys that a reader relies on, with what they must hold, by file name.
FILES: dict[str, dict[str, Check]] = {
    "study.json": {},
    "analysis.json": {"contrasts": _list_of(table), "controls": _list_of(table)},
    "verdict.json": {"verdicts": _list_of(table)},
    "trial.json": {
        "arm": text,
        "seed": whole,
        "setting": table,
        "metrics": _table_of(table),
        "drawings": _list_of(table),
        "data": _holding(digests=_both(_table_of(text), _holding(corpus=text, train=text))),
        "tasks": lambda tasks: table(tasks) and text(tasks.get("prompts_sha256", "")),
        "consumed": _holding(token_classes=_table_of(whole), times_seen=_list_of(whole)),
        "batch_digest": text,
        "blocks": _holding(kind=text, items=_count, blocks=_count),
        "tokens": whole,
        "iterations": whole,
        "own_modules": table,
        "diverged_at": optional_whole,
    },
    "initial.json": {},
    "evaluation.json": {},
    "timing.json": {"training_seconds": _positive, "evaluation_seconds": _number},
    "live.json": {
        "tokens": _number,
        "tokens_done": _number,
        "tokens_per_second": _number,
        "seconds_left": optional_number,
        "doing": text,
        "written_at": _number,
        "running": table,
    },
    "data.json": {},
    "repeated.json": {},
    "tuning.json": {
        "select": text,
        "rounds": _list_of(_holding(folder=text, candidates=_count, root=text)),
        "candidates": _list_of(table),
        "trials": _list_of(_holding(arm=text, candidate=_count, seed=whole, value=optional_number)),
        "chosen": _table_of(_holding(candidate=_count, values=table)),
        "caveats": _table_of(_list_of(text)),
    },
    "about.json": {
        "not_offered": _list_of(_is(list)),
        "prompts_sha256": text,
        "sha256": _table_of(text),
    },
}

# What is said of a text.
DESCRIBED: dict[str, Check] = {
    "token_classes": _table_of(_table_of(_count)),
    "duplicates": _table_of(_table_of(_count)),
    "leakage": _empty_or(_holding(in_training=_count, validation_tokens=_count)),
    "looked_at": _empty_or(_holding(tokens=_count, duplicates=_count)),
    "rules": _empty_or(
        _holding(near_duplicate_jaccard=_number, shingle_characters=_count, run_tokens=_count)
    ),
}

# Keys that need not be there, with what they must hold where they are.
OPTIONAL: dict[str, dict[str, Check]] = {
    "trial.json": {
        "causality": _either(
            _holding(not_proven=text),
            _holding(training=_number, evaluation=_number, positions=_number),
        ),
        "stack": _list_of(_is(list)),
        "flops": _empty_or(_holding(per_token=_count, by=text)),
    },
    "timing.json": {"curve_seconds": _list_of(_number)},
    "data.json": DESCRIBED | {"arms": _table_of(_where_there(DESCRIBED))},
}

# What every value must be, by file name.
EVERY: dict[str, Check] = {
    "initial.json": _both(
        _holding(shape=_list_of(whole), rule=text, sha256=text), _where_there({"distinct": _count})
    ),
    "evaluation.json": optional_number,
    "repeated.json": _holding(
        seed=whole, steps=whole, trial=text, differs_at=optional_whole, differs=text
    ),
}

# Columns that a reader relies on, by file name.
COLUMNS: dict[str, tuple[str, ...]] = {
    "steps.parquet": ("step", "train_loss"),
    "probes.parquet": ("step",),
    "curve.parquet": ("step", "loss_sum_nats", "predicted"),
    "evaluation.parquet": ("measure", "part", "value", "total", "count", "unit"),
    "blocks.parquet": ("loss_sum_nats", "brier_sum", "correct", "predicted", "characters"),
    "tasks.parquet": ("task", "shots", "items", "correct", "accuracy"),
    "items.parquet": ("task", "shots", "item", "correct"),
    "throughput.parquet": ("arm", "seed", "kind", "tokens", "seconds", "bytes"),
}
# Of these, what files of schema 0 may lack.
LATER_COLUMNS = frozenset({"bytes"})
# Of these, the ones that are words; all others are numbers, or true and false.
WORDS = frozenset({"measure", "part", "unit", "task", "arm", "kind"})
# Numbers that must be there in every row and be greater than zero.
POSITIVE = {"throughput.parquet": ("tokens", "seconds"), "curve.parquet": ("predicted",)}


def require_json(path: Path, value: Any) -> None:
    """Raise ParibusError where a parsed file of a results folder is not what its name says."""
    name = path.name
    wanted = FILES.get(name)
    if wanted is None:
        return
    if not isinstance(value, dict):
        raise _refused(path, f"it holds a {_kind(value)} where a table belongs")
    for key in wanted:
        if key not in value:
            raise _refused(path, f"'{key}' is missing")
    every = EVERY.get(name)
    for key, inner in value.items() if every else ():
        if every and not every(inner):
            raise _refused(path, f"'{key}' is {str(inner)[:60]!r}")
    for key, check in (wanted | OPTIONAL.get(name, {})).items():
        if key in value and not check(value[key]):
            raise _refused(path, f"'{key}' is {str(value[key])[:60]!r}")


def require_columns(path: Path, names: list[str]) -> None:
    """Raise ParibusError where a Parquet file lacks a column that its readers rely on."""
    wanted = COLUMNS.get(path.name, ())
    lacking = [name for name in wanted if name not in names and name not in LATER_COLUMNS]
    if lacking:
        raise _refused(path, f"it has no column {', '.join(lacking)}")


def require_values(path: Path, found: pa.Table) -> None:
    """Raise ParibusError where a column that must be positive is not."""
    for name in COLUMNS.get(path.name, ()):
        if name in found.column_names:
            _require_kind(path, name, found[name].type)
    for name in POSITIVE.get(path.name, ()):
        if name not in found.column_names:
            continue
        column = found[name]
        numeric = pa.types.is_integer(column.type) or pa.types.is_floating(column.type)
        if numeric and not column.null_count:
            values = column.to_numpy()
            if np.all(np.isfinite(values) & (values > 0)):
                continue
        raise _refused(path, f"'{name}' is not a number above zero in every row")


def _require_kind(path: Path, name: str, kind: pa.DataType) -> None:
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
    words = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    numbers = pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_boolean(kind)
    if not (words if name in WORDS else numbers or pa.types.is_null(kind)):
        raise _refused(path, f"column '{name}' holds {kind}")


def _kind(value: Any) -> str:
    return {list: "list", str: "text", type(None): "null"}.get(type(value), "number")


def _refused(path: Path, why: str) -> ParibusError:
    return ParibusError(
        f"{path} is not what was written there: {why}; restore it, or delete it and run again"
    )
