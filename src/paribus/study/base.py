"""Base classes of specifications: frozen, strictly typed, without unknown keys."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SerializerFunctionWrapHandler,
    model_serializer,
)

# How large a study may be: far more than anybody trains, far less than what hangs it.
MOST_STEPS = 10**7
MOST_SEEDS = 100_000
MOST_ARMS = 256
MOST_ENTRIES = 1_000  # of any other list or table
MOST_RESAMPLES = 10**6

Steps = Annotated[int, Field(gt=0, le=MOST_STEPS)]
# Keys of random streams, which records keep as 64-bit numbers.
Seed = Annotated[int, Field(ge=0, le=2**63 - 1)]


class Spec(BaseModel):
    """Base of every part; nothing mutates or clamps one."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True
    )


class TrialSetting(Spec):
    """Base of the settings of a trial."""

    @property
    def own_named(self) -> dict[str, str]:
        """The import paths of all code of the user's own that a trial is made with, by where they
        are named: the site of a module, or the key of the study."""
        return {}

    @property
    def own_parts(self) -> tuple[str, ...]:
        """Those of them that compute, sorted: all but what gives or sorts text alone."""
        named = self.own_named.items()
        return tuple(sorted({path for key, path in named if not key.startswith("data.")}))


class Part(Spec):
    """Something with tables. Specs are compared, and looked up, by their values."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())


class Grown(Part):
    """A part that has got keys since its first records: those are left out where they have their
    defaults, so that the digests of earlier records stay as they are."""

    later: ClassVar[tuple[str, ...]] = ()

    @model_serializer(mode="wrap")
    def _as_before(self, dump: SerializerFunctionWrapHandler) -> dict[str, Any]:
        table: dict[str, Any] = dump(self)
        for key in self.later:
            default = type(self).model_fields[key].get_default(call_default_factory=True)
            if getattr(self, key) == default:
                table.pop(key, None)
            elif isinstance(default, Spec) and key in table:
                usual = default.model_dump()
                table[key] = {k: v for k, v in table[key].items() if v != usual[k]}
        return table
