"""Do the replicas of a stack compute apart? A step of the first is made beside other neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from paribus.engine.training import WEIGHTS, ReplicaState, Trainer
from paribus.errors import ParibusError

AT_ONCE = 2**24  # bytes that are compared


def require_apart(
    where: str,
    own: Sequence[str],
    stack: Trainer,
    start: list[ReplicaState],
    after: list[ReplicaState],
) -> None:
    """Raise ParibusError where a step of the first replica follows what the others are.

    Those have their weights turned round, and then none that is finite. `after` is where a step
    from `start` led; `own` is the code that a step runs, for the error.
    """
    for factor in (-1, np.nan):
        others = [replace(one, arrays=_scaled(one, factor)) for one in start[1:]]
        stack.restore([start[0], *others])
        stack.step()
        found = differing(after[:1], [stack.state(0)])
        if found:
            raise ParibusError(
                f"{where}: what one replica of a stack computes follows its neighbours "
                f"({some(found)}); own code{in_brackets(own)} works over the first axis, "
                "R, of which every row is a trial of its own: let it work within each row, "
                "whatever --stack is"
            )


def states(stack: Trainer) -> list[ReplicaState]:
    """What each replica goes on from."""
    return [stack.state(replica) for replica in range(len(stack.seeds))]


def differing(ours: list[ReplicaState], theirs: list[ReplicaState]) -> list[str]:
    """Names of the arrays that differ in some replica."""
    return [
        name
        for name in ours[0].arrays
        if any(
            not _same_bits(a.arrays[name], b.arrays[name])
            for a, b in zip(ours, theirs, strict=True)
        )
    ]


def _same_bits(ours: np.ndarray, theirs: np.ndarray) -> bool:
    """Also of numbers that are not equal to themselves."""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return False
    one, other = (np.ascontiguousarray(x).reshape(-1).view(np.uint8) for x in (ours, theirs))
    return all(
        np.array_equal(one[start : start + AT_ONCE], other[start : start + AT_ONCE])
        for start in range(0, len(one), AT_ONCE)
    )


def some(names: list[str]) -> str:
    """The first of them, and how many more there are."""
    return names[0] + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def in_brackets(own: Sequence[str]) -> str:
    """Import paths of own code, where there is any."""
    return f" ({', '.join(own)})" if own else ""


def _scaled(state: ReplicaState, factor: float) -> dict[str, np.ndarray]:
    """Its arrays, with other weights."""
    return {
        name: np.float32(factor) * values if name.startswith(f"{WEIGHTS}/") else values
        for name, values in state.arrays.items()
    }
