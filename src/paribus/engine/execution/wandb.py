"""Weights & Biases: `paribus run STUDY --log wandb`.

The project is the study, the group is the arm, and the config is what the arm is trained with.
`WANDB_MODE=offline` keeps all on this machine, in `wandb` of the results folder; `wandb login` and
every other variable of wandb's own work as they do elsewhere.
"""

from __future__ import annotations

from typing import Any

import wandb

from paribus.runs.trackers import EachTrial

STEP = "step"


class WeightsAndBiases(EachTrial):
    """A run of wandb for every trial."""

    def begin(self, arm: str, seed: int) -> Any:
        """Start the run of a trial; several are open at once."""
        setting = self.study.setting(arm).model_dump(mode="json")
        run = wandb.init(
            project=self.study.name,
            group=arm,
            name=f"{arm}/seed-{seed}",
            config={"arm": arm, "seed": seed} | setting,
            dir=str(self.results),
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        # Its own count only ever grows, and the steps of a trial are written again at its end.
        run.define_metric("*", step_metric=STEP)
        return run

    def write(self, run: Any, step: int, values: dict[str, float]) -> None:
        """Log the numbers of a step."""
        run.log({STEP: step} | values)

    def end(self, run: Any) -> None:
        """Finish the run."""
        run.finish()
