"""The schema number that every written file carries, and the table by which older files are read.

A file without a number is of schema 0: it was written before there were numbers. `MIGRATIONS` is
the one place where a name that a key once had is known. A study file (TOML) may use any spelling
there ever was. Digests are of the bytes that were sealed, so a file is never rewritten when it is
read; and a file of a later schema than ours is refused, for we cannot know what it says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from paribus.errors import ParibusError

SCHEMA = 1  # of what is written now
KEY = "schema_version"


@dataclass(frozen=True)
class Migration:
    """How a file of a schema before `since` becomes one of it.

    Attributes:
        since: the first schema that is written as `change` leaves it.
        file: the name of the file, `registration.json` for those that were superseded too.
        change: what is done to its value, in place or anew; returns it.
    """

    since: int
    file: str
    change: Callable[[Any], Any]


def renamed(path: str, name: str) -> Callable[[Any], Any]:
    """A change: the last key of the dotted `path` is called `name` now. `*` is any key."""
    *tables, old = path.split(".")

    def change(value: Any) -> Any:
        for table in _tables(value, tables):
            if old in table:
                if name in table:
                    raise ParibusError(f"'{name}' and '{old}', its old name, are both stated")
                table[name] = table.pop(old)
        return value

    return change


def absent(path: str, value: Any) -> Callable[[Any], Any]:
    """A change: where the last key of the dotted `path` is missing, it stands for `value`."""
    *tables, key = path.split(".")

    def change(whole: Any) -> Any:
        for table in _tables(whole, tables):
            table.setdefault(key, value)
        return whole

    return change


def _tables(value: Any, path: list[str]) -> list[dict[str, Any]]:
    """The tables at `path` below `value`; a list stands for each of its entries."""
    if isinstance(value, list):
        return [table for one in value for table in _tables(one, path)]
    if not isinstance(value, dict):
        return []
    if not path:
        return [value]
    key, *rest = path
    inner = value.values() if key == "*" else [value[key]] if key in value else []
    return [table for one in inner for table in _tables(one, rest)]


MIGRATIONS: tuple[Migration, ...] = (
    # verdict.json was a bare list, which can carry no number.
    Migration(1, "verdict.json", lambda value: {"verdicts": value}),
)


def stamped(value: dict[str, Any], schema: int = SCHEMA) -> dict[str, Any]:
    """`value` with the schema number in front, which schema 0 has not.

    Raises ParibusError where a key of its own takes the place.
    """
    if value.get(KEY, schema) != schema:
        raise ParibusError(f"'{KEY}' is the number of a file's schema; choose another name")
    return {KEY: schema, **value} if schema else value


def upgraded(name: str, value: Any, where: str) -> tuple[Any, int]:
    """What a file called `name` says, as one of today's schema says it; and its own schema.

    `where` is what errors call the file. Raises ParibusError for a schema that we do not know.
    """
    schema = value.pop(KEY, 0) if isinstance(value, dict) else 0
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 0:
        raise ParibusError(f"{where}: {KEY} is {str(schema)[:40]!r}, and no number; restore it")
    if schema > SCHEMA:
        raise ParibusError(
            f"{where} has schema {schema}, and this paribus reads up to {SCHEMA}; read it with a "
            "newer one"
        )
    # Superseded registrations are numbered, and hold what the one in force does.
    file = re.sub(r"^registration-\d+\.json$", "registration.json", name)
    for migration in MIGRATIONS:
        if migration.file == file and migration.since > schema:
            value = migration.change(value)
    return value, schema
