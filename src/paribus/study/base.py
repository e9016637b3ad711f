"""Pydantic base classes and field types for study files: frozen, strict, no unknown keys."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from paribus.metric import LONGEST

# How large a study may be: far more than anybody trains, far less than what hangs it.
MOST_STEPS = 10**7
MOST_SEEDS = 100_000
MOST_ARMS = 256
MOST_RESAMPLES = 10**6

# A folder's name has at most 255 bytes on the usual file systems, a character up to four, and
# `-tuning` may be appended to a study's.
MOST_NAME, MOST_TITLE, MOST_PROSE = 60, 200, 4000  # characters
# Control characters (C0, C1), line breaks, and those that reverse the direction of following text.
CONTROLS = re.compile("[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def _line(value: str) -> str:
    if CONTROLS.search(value):
        raise ValueError(
            f"{value!r:.60} contains a line break or control character; use one line without them"
        )
    return value


Name = Annotated[
    str,
    # Any script is welcome; separators and control characters are not.
    Field(min_length=1, max_length=MOST_NAME, pattern=r"^[^/\\.\p{Cc}][^/\\\p{Cc}]*$"),
    AfterValidator(_line),
]
Title = Annotated[str, Field(max_length=MOST_TITLE), AfterValidator(_line)]
Word = Annotated[str, Field(min_length=1, max_length=LONGEST)]
Prose = Annotated[str, Field(max_length=MOST_PROSE)]
Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
# Keys of random streams, which records keep as 64-bit numbers.
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Spec(BaseModel):
    """Base class for a study and its tables: immutable, and validated without coercion."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


class TrialSetting(Spec):
    """Base class for the settings of a trial (one training run of an arm)."""

    @property
    def own_named(self) -> dict[str, str]:
        """Import paths of all custom code that a trial uses.

        The keys are module positions in the model (for custom modules) or study keys.
        """
        return {}

    @property
    def own_parts(self) -> tuple[str, ...]:
        """Sorted import paths of custom code, excluding custom data sources."""
        named = self.own_named.items()
        return tuple(sorted({path for key, path in named if not key.startswith("data.")}))


class Part(Spec):
    """Base class for tables that are hashable even if they contain dicts."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


def later(default: Any) -> Any:
    """Return a `Field` that is excluded from dumps if its value equals `default`.

    A new key declared this way does not change the digests of existing studies.
    """
    return Field(exclude_if=lambda value: value == default)


def shortened(name: str, suffix: str = "") -> str:
    """Append `suffix` to `name`, truncating `name` to keep the result within `MOST_NAME`."""
    return name[: MOST_NAME - len(suffix)] + suffix
