"""What a replica goes on from: named arrays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paribus.errors import ParibusError

MEASURED = "measured"  # in the names of `ReplicaState.arrays`
WEIGHTS = "weights"  # the same, before a parameter's name; slots of optimizers have names beside it


@dataclass(frozen=True)
class ReplicaState:
    """All that is needed to go on with one replica, and to record it.

    Attributes:
        t: steps done.
        arrays: float32, by name: `weights/<parameter>`, what the optimizer keeps for it such as
            `exp_avg/<parameter>`, in float16 `loss_scale/...`, and `measured` [t, C]:
            `Trainer.columns`, then `Trainer.probe_columns`; NaN where not measured.
        batch_digest: the running digest of its batches.
        diverged_at: the step at which it turned non-finite, or None.
    """

    t: int
    arrays: Mapping[str, np.ndarray]
    batch_digest: str
    diverged_at: int | None

    @property
    def measured(self) -> np.ndarray:
        """[t, C] of `arrays`."""
        return self.arrays[MEASURED]


def require_shapes(arrays: Mapping[str, np.ndarray], expected: Mapping[str, Sequence[int]]) -> None:
    """Raise ParibusError where `arrays` have other names or shapes than what is trained."""
    words = None
    for name in sorted(expected.keys() | arrays.keys()):
        if name not in arrays:
            words = f"has no '{name}'"
        elif name not in expected:
            words = f"has '{name}', which is not trained here"
        elif arrays[name].shape != tuple(expected[name]):
            words = f"has '{name}' as {arrays[name].shape}; here it is {tuple(expected[name])}"
        if words:
            raise ParibusError(
                f"the checkpoint is of another model, optimizer or probes: it {words}; go on with "
                "what it was written by, or delete it and train the trial again"
            )
