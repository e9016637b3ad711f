"""A trial of one model over many devices: every rank walks the same way, and the first one writes.

What a rank decides by itself (a clock, a request to leave) the first decides for all.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any

from paribus.engine.execution.trial.checkpoints import Checkpoint, UnusableError
from paribus.engine.execution.trial.sharded_checkpoints import ShardedCheckpoints
from paribus.engine.execution.trial.trial import Stack
from paribus.engine.training import MEASURED
from paribus.engine.training.safeguards import SCALE
from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.engine.training.ranks import Ranks
    from paribus.engine.training.sharded import ShardedReplica


class ShardedTrial(Stack):
    """One trial on its way from the first step, or its checkpoint, to the seal."""

    @property
    def _ranks(self) -> Ranks:
        assert self.task.ranks is not None
        return self.task.ranks

    @property
    def _replica(self) -> ShardedReplica:
        replica: Any = self.trainer.replicas
        return replica

    @cached_property
    def _written(self) -> ShardedCheckpoints:
        return ShardedCheckpoints(self.checkpoints, self._ranks)

    def _newest_first(self) -> list[Checkpoint | UnusableError]:
        """Return the checkpoints, where all ranks see the same. Raises ParibusError."""
        seen = list(self.checkpoints.newest_first())
        steps = [getattr(found, "t", None) for found in seen]
        if any(of != steps for of in self._ranks.of_all(steps)):
            raise ParibusError(
                f"ranks see other checkpoints in {self.checkpoints.path}; a results folder has to "
                "be on a file system that all of them share"
            )
        return seen

    def _take_up(self, found: Checkpoint) -> None:
        arrays = self._written.load(found, self._replica.tensors())
        (one,) = found.about["replicas"]
        self.trainer.take_up(
            found.t, arrays[MEASURED], one["batch_digest"], one["diverged_at"],
            {name: of for name, of in arrays.items() if name.startswith(f"{SCALE}/")},
        )  # fmt: skip

    def _begin_again(self) -> None:
        self.trainer = self._built()  # some of a checkpoint may have been loaded

    def checkpoint(self, seconds: float) -> None:
        """Begin to save, on whose training `seconds` were spent; training may go on."""
        history = self.trainer.history(0)
        told = {"batch_digest": history.batch_digest, "diverged_at": history.diverged_at}
        self._written.begin(
            self.trainer.t,
            self._replica.tensors(),
            {MEASURED: history.measured, **self.trainer.scaling_arrays},
            identity=self._identity,
            about={
                "seconds": seconds,
                "stack": 1,
                "ranks": self._ranks.size,
                "replicas": [told],
                "curve": self.curve.saved,
                "machines": self._machines,
            },
        )
        if self.trainer.t == self.trainer.setting.iterations:
            self._written.settle(wait=True)

    def _decided(self, leaves: bool, is_due: bool) -> tuple[bool, bool]:
        if self._written.is_writing:
            self._written.settle()
        leaves, is_due = self._ranks.decided(leaves, is_due)
        # One that is on its way when another is due would be waited for.
        return leaves, is_due and not self._written.is_writing

    def train(self, on_progress: Any, leaving: Any) -> bool:
        """Train to the end; False, with a checkpoint, where it is asked to leave before."""
        done = super().train(on_progress, leaving)
        self._written.settle(wait=True)
        return done

    def remove_checkpoints(self) -> None:
        """Remove what is no longer gone on from, once no rank reads or writes it."""
        if self._written.is_writing:
            self._written.settle(wait=True)
        self._ranks.wait()
        if self.writes:
            super().remove_checkpoints()
        self._ranks.wait()

    @property
    def seconds(self) -> float:
        """Spent on training so far, as rank 0 counts it."""
        return float(self._ranks.of_all(super().seconds)[0])
