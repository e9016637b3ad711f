"""TensorBoard: `paribus run STUDY --log tensorboard`, then `tensorboard --logdir DIR`."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from paribus.study import Study

FOLDER = "tensorboard"


class TensorBoard:
    """A trial's run of TensorBoard, in the results folder."""

    def __init__(self, study: Study, results: Path, arm: str, seed: int) -> None:
        self._writer = SummaryWriter(str(results / FOLDER / arm / f"seed-{seed}"))
        self.end = self._writer.close

    def write(self, step: int, values: dict[str, float]) -> None:
        """Write each number as a scalar."""
        for tag, value in values.items():
            self._writer.add_scalar(tag, value, step)
