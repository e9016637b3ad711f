"""Trackers of a run: TensorBoard, and Weights & Biases.

A tracker does not affect the run or its records.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from paribus.declared import PROVIDED, provided
from paribus.errors import ParibusError, nearest
from paribus.results import ResultsFolder, TrialFolder
from paribus.study import Study


class EachTrial(ABC):
    """A tracker with a separate run for every trial: live loss, then every step and score."""

    def __init__(self, study: Study, results: Path) -> None:
        self.study, self.results = study, results
        self._open: dict[tuple[str, int], Any] = {}

    @abstractmethod
    def begin(self, arm: str, seed: int) -> Any:
        """Open the tracker's run of one trial, and return it for `write` and `end`."""

    @abstractmethod
    def write(self, run: Any, step: int, values: dict[str, float]) -> None:
        """Write the finite numbers of one step, by name; later calls may add names to the step."""

    @abstractmethod
    def end(self, run: Any) -> None:
        """End a run."""

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """Write the loss of step t, in nats/token, under `live/`."""
        self._write(arm, seed, t, {"live/train_loss": loss})

    def finished(self, trial: TrialFolder) -> None:
        """Write every step, probe and score of a finished trial, and end its run."""
        arm, seed = trial.arm, trial.seed
        steps, probes = (trial.read_columns(f"{name}.parquet") for name in ("steps", "probes"))
        for row in (*steps.to_pylist(), *probes.to_pylist()):
            self._write(arm, seed, row.pop("step"), row)
        scores = trial.read_json("evaluation.json")
        self._write(arm, seed, len(steps), {f"evaluation/{k}": v for k, v in scores.items()})
        self.end(self._open.pop((arm, seed)))

    def close(self) -> None:
        """End all open trials, because the run is over or was interrupted."""
        while self._open:
            self.end(self._open.popitem()[1])

    def _write(self, arm: str, seed: int, step: int, values: dict[str, float | None]) -> None:
        if (arm, seed) not in self._open:
            self._open[arm, seed] = self.begin(arm, seed)
        if known := {name: value for name, value in values.items() if value is not None}:
            self.write(self._open[arm, seed], step, known)


def load_trackers(names: Sequence[str]) -> dict[str, Any]:
    """Return the functions that open these trackers, by name.

    Raises ParibusError for an unknown name, and if a required package is not installed.
    """
    loaded = {}
    for name in names:
        if name not in PROVIDED["tracker"]:
            raise ParibusError(
                f"--log {name}: no such tracker: {nearest(name, PROVIDED['tracker'])}",
                code="unknown",
            )
        try:
            loaded[name] = provided("tracker", name)
        except ImportError as error:
            raise ParibusError(
                f"--log {name} needs a package that is not installed ({error}); "
                f"pip install 'paribus[{name}]'",
                code="not_installed",
            ) from None
    return loaded


class Trackers:
    """Trackers of a run. One that raises is dropped with a warning; the run goes on."""

    def __init__(self, loaded: Mapping[str, Any], study: Study, results: Path) -> None:
        self._open = dict(loaded)
        for name, tracker in loaded.items():
            self._open[name] = self._call(name, tracker, study, results)

    def follow(self, event: dict[str, Any], home: ResultsFolder) -> None:
        """Report steps and finished trials of a results folder to the trackers."""
        if event["event"] == "trained":
            for (arm, seed), loss in zip(event["trials"], event["losses"], strict=True):
                self.tell("progress", arm, seed, event["t"], loss)
        elif event["event"] == "finished":
            for arm, seed in event["trials"]:
                self.tell("finished", home.trial(arm, seed))

    def tell(self, method: str, *arguments: Any) -> None:
        """Call `method` (`progress`, `finished` or `close`) of every open tracker."""
        for name, tracker in [*self._open.items()]:
            if tracker is not None:
                self._call(name, getattr(tracker, method), *arguments)

    def _call(self, name: str, function: Callable[..., Any], *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except Exception as error:
            self._open[name] = None
            logging.getLogger("paribus").warning(
                "--log %s: the tracker failed (%s: %s) and is dropped; the run goes on",
                name,
                type(error).__name__,
                " ".join(str(error).split()),
            )
        return None
