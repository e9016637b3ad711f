"""The version of paribus, and the schema number in every record.

Increase `SCHEMA` by one when a key of a record is added, renamed or removed. A record with another
number is refused: there has been no release, so there are no old records to read.
"""

from __future__ import annotations

from typing import Any

from paribus.errors import ParibusError

VERSION = "1.0.0"
SCHEMA = 10
KEY = "schema_version"


def stamped(value: dict[str, Any], schema: int = SCHEMA) -> dict[str, Any]:
    """Return `value` with the schema number as its first key."""
    return {KEY: schema, **value}


def unstamped(value: Any, where: str) -> Any:
    """Check the schema number of a record, and return the record without it.

    `where` names the record in the error. Raises ParibusError if the number is not `SCHEMA`.
    """
    schema = value.get(KEY) if isinstance(value, dict) else None
    if schema != SCHEMA:
        raise ParibusError(
            f"{where} has schema version {schema!r}, but this version of paribus reads {SCHEMA}; "
            "create the record again"
        )
    return {key: item for key, item in value.items() if key != KEY}
