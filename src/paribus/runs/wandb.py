"""Weights & Biases: `paribus run STUDY --wandb`.

The project is the study, the group is the arm, and the config is what the arm is trained with.
`WANDB_MODE=offline` keeps all on this machine, in `wandb` of the results folder; `wandb login` and
every other variable of wandb's own work as they do elsewhere.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import wandb

from paribus.results import ResultsFolder
from paribus.study import Study
from paribus.study.trainer import Trial

STEP = "step"


class WeightsAndBiases:
    """Logs each trial as a run of wandb: live loss, then every step, probe and score.

    After an error it logs nothing more; the study's run goes on.
    """

    def __init__(self, study: Study, results: Path) -> None:
        self._study, self._results = study, results
        self._runs: dict[Trial, Any] = {}  # of unfinished trials
        self._is_broken = False

    def follow(self, event: dict[str, Any], home: ResultsFolder) -> None:
        """Log the steps and the finished trials of an event; `home` is their results folder."""
        if self._is_broken or event["event"] not in ("trained", "finished"):
            return
        try:
            for k, (arm, seed) in enumerate(event["trials"]):
                if event["event"] == "trained":
                    live = {"live/train_loss": event["losses"][k]}
                    self._write(arm, seed, event["t"], live)
                else:
                    self._finish(arm, seed, home)
        except Exception as error:
            self._is_broken = True
            words = " ".join(str(error).split())
            logging.getLogger("paribus").warning(
                "wandb failed (%s: %s); the run goes on without it", type(error).__name__, words
            )

    def close(self) -> None:
        """End the runs of unfinished trials, because the study's run is over."""
        while self._runs and not self._is_broken:
            self._runs.popitem()[1].finish()

    def _finish(self, arm: str, seed: int, home: ResultsFolder) -> None:
        trial = home.trial(arm, seed)
        steps, probes = (trial.read_columns(f"{name}.parquet") for name in ("steps", "probes"))
        for row in (*steps.to_pylist(), *probes.to_pylist()):
            self._write(arm, seed, row.pop(STEP), row)
        scores = trial.read_json("evaluation.json")
        scores = {f"evaluation/{metric}": value for metric, value in scores.items()}
        self._write(arm, seed, len(steps), scores)
        self._runs.pop((arm, seed)).finish()

    def _write(self, arm: str, seed: int, step: int, values: dict[str, float | None]) -> None:
        """Log the finite numbers of a step; open the trial's run at its first step."""
        if (arm, seed) not in self._runs:
            setting = self._study.setting(arm).model_dump(mode="json")
            run = self._runs[arm, seed] = wandb.init(
                project=self._study.name,
                group=arm,
                name=f"{arm}/seed-{seed}",
                config={"arm": arm, "seed": seed} | setting,
                dir=str(self._results),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
            )
            # Its own count only ever grows, and the steps of a trial are written again at its end.
            run.define_metric("*", step_metric=STEP)
        finite = {metric: value for metric, value in values.items() if value is not None}
        self._runs[arm, seed].log({STEP: step} | finite)
