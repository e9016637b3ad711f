"""Package version, and the schema version that is stored in every record.

Increment `SCHEMA` when a key of a record is added, renamed or removed. Records with a different
schema version are rejected; no migration is needed before the first release.
"""

from __future__ import annotations

from typing import Any

from paribus.errors import ParibusError

VERSION = "1.0.0"
SCHEMA = 10
KEY = "schema_version"


def stamped(value: dict[str, Any], schema: int = SCHEMA) -> dict[str, Any]:
    """Return a copy of a dict with the schema version as its first key."""
    return {KEY: schema, **value}


def unstamped(value: Any, where: str) -> Any:
    """Check a record's schema version, and return the record without it.

    Raises ParibusError if the version is not `SCHEMA`; `where` describes the record in the message.
    """
    schema = value.get(KEY) if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise ParibusError(
            f"{where} has schema version {schema!r}, but paribus {VERSION} requires {SCHEMA}; "
            "run the study again"
        )
    return {key: item for key, item in value.items() if key != KEY}
