"""What callers may state of a run, checked in one place."""

from __future__ import annotations

from paribus.errors import ParibusError


def require_positive(**stated: int | None) -> None:
    """Raise ParibusError for a number below 1, by its name; None is not stated."""
    for name, value in stated.items():
        if value is not None and value < 1:
            raise ParibusError(f"{name} = {value} must be at least 1")
