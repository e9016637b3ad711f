"""TensorBoard as a sink: `paribus run STUDY --log tensorboard`, then `tensorboard --logdir DIR`."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

from paribus.results import TrialFolder
from paribus.study import Study

FOLDER = "tensorboard"


class TensorBoard:
    """A run of TensorBoard for every trial: live loss, then every step and score at its end."""

    def __init__(self, study: Study, results: Path) -> None:
        self._folder = results / FOLDER
        self._writers: dict[tuple[str, int], SummaryWriter] = {}

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """Write the loss of the last step, in nats/token, under `live/`."""
        if loss is not None:
            self._write(arm, seed, t, {"live/train_loss": loss})

    def finished(self, trial: TrialFolder) -> None:
        """Write every step, probe and score of a trial."""
        for table in (trial.read_columns("steps.parquet"), trial.read_columns("probes.parquet")):
            for row in table.to_pylist():
                step = row.pop("step")
                self._write(trial.arm, trial.seed, step, row)
        last = len(trial.read_columns("steps.parquet", ["step"]))
        scores = trial.read_json("evaluation.json")
        self._write(trial.arm, trial.seed, last, {f"evaluation/{k}": v for k, v in scores.items()})
        self._writers.pop((trial.arm, trial.seed)).close()

    def close(self) -> None:
        """Close what is open."""
        for writer in self._writers.values():
            writer.close()
        self._writers.clear()

    def _write(self, arm: str, seed: int, step: int, values: dict[str, float | None]) -> None:
        if (arm, seed) not in self._writers:
            path = self._folder / arm / f"seed-{seed}"
            self._writers[arm, seed] = SummaryWriter(str(path))
        for tag, value in values.items():
            if value is not None:
                self._writers[arm, seed].add_scalar(tag, value, step)
