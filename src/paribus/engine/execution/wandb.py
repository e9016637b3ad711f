"""Weights & Biases: `paribus run STUDY --log wandb`.

The project is the study, the group is the arm, and the config is what the arm is trained with.
`WANDB_MODE=offline` keeps all on this machine, in `wandb` of the results folder; `wandb login` and
every other variable of wandb's own work as they do elsewhere.
"""

from __future__ import annotations

from pathlib import Path

import wandb

from paribus.study import Study

STEP = "step"


class WeightsAndBiases:
    """A trial's run of wandb; several are open at once."""

    def __init__(self, study: Study, results: Path, arm: str, seed: int) -> None:
        self._run = wandb.init(
            project=study.name,
            group=arm,
            name=f"{arm}/seed-{seed}",
            config={"arm": arm, "seed": seed} | study.setting(arm).model_dump(mode="json"),
            dir=str(results),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Its own count only ever grows, and the steps of a trial are written again at its end.
        self._run.define_metric("*", step_metric=STEP)
        self.end = self._run.finish

    def write(self, step: int, values: dict[str, float]) -> None:
        """Log the numbers of a step."""
        self._run.log({STEP: step} | values)
