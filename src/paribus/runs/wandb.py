"""Logging to Weights & Biases: `paribus run STUDY --wandb`.

The project is named after the study and the group after the arm. The config contains the arm's
settings. `WANDB_MODE=offline` stores everything locally, in the folder `wandb` inside the results
folder. `wandb login` and wandb's environment variables work as usual.
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
    """Logger of trials as wandb runs, with live losses, steps, probes and scores.

    If wandb fails, logging stops and the study continues.
    """

    def __init__(self, study: Study, results: Path) -> None:
        self._study, self._results = study, results
        self._runs: dict[Trial, Any] = {}  # of unfinished trials
        self._is_broken = False

    def follow(self, event: dict[str, Any], home: ResultsFolder) -> None:
        """Log an event, such as training steps or finished trials.

        Args:
            event: event reported by a worker.
            home: results folder of the trials.
        """
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
                "wandb failed (%s: %s); the run continues without it", type(error).__name__, words
            )

    def close(self) -> None:
        """Finish the wandb runs of unfinished trials."""
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
        """Log all values except None at a step, and start the trial's wandb run if necessary."""
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
