"""TensorBoard: `paribus run STUDY --log tensorboard`, then `tensorboard --logdir DIR`."""

from __future__ import annotations

from torch.utils.tensorboard import SummaryWriter

from paribus.runs.trackers import EachTrial

FOLDER = "tensorboard"


class TensorBoard(EachTrial):
    """A run of TensorBoard for every trial, in the results folder."""

    def begin(self, arm: str, seed: int) -> SummaryWriter:
        """Return the writer of a trial."""
        return SummaryWriter(str(self.results / FOLDER / arm / f"seed-{seed}"))

    def write(self, run: SummaryWriter, step: int, values: dict[str, float]) -> None:
        """Write each number as a scalar."""
        for tag, value in values.items():
            run.add_scalar(tag, value, step)

    def end(self, run: SummaryWriter) -> None:
        """Close the writer."""
        run.close()
