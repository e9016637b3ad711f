"""What every part of a specification is: frozen, strictly typed, without unknown keys."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Spec(BaseModel):
    """Base of every part; nothing mutates or clamps one."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class Part(Spec):
    """Something with tables. Specs are compared, and looked up, by their values."""

    def __hash__(self) -> int:
        return hash(self.model_dump_json())
