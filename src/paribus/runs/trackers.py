"""Trackers of a run: TensorBoard, and Weights & Biases.

A tracker does not affect the run or its records. It is a class: `T(study, results, arm, seed)`
opens its run of one trial; `write(step, values)` writes the finite numbers of a step, by name, and
may add names to an earlier step; `end()` ends the run.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paribus.declared import PROVIDED, provided
from paribus.errors import ParibusError, nearest
from paribus.results import ResultsFolder
from paribus.study import Study


def load_trackers(names: Sequence[str]) -> dict[str, Any]:
    """Return these trackers, by name.

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
    """Trackers of a run: live loss, then every step, probe and score of a finished trial.

    One that raises is dropped with a warning; the run goes on.
    """

    def __init__(self, loaded: Mapping[str, Any], study: Study, results: Path) -> None:
        self._loaded, self._study, self._results = dict(loaded), study, results
        self._open: dict[tuple[str, str, int], Any] = {}

    def follow(self, event: dict[str, Any], home: ResultsFolder) -> None:
        """Report steps and finished trials of a results folder to the trackers."""
        if event["event"] not in ("trained", "finished"):
            return
        for k, (arm, seed) in enumerate(event["trials"]):
            for name in [*self._loaded]:
                with self._dropping(name):
                    if event["event"] == "trained":
                        live = {"live/train_loss": event["losses"][k]}
                        self._write(name, arm, seed, event["t"], live)
                    else:
                        self._finish(name, arm, seed, home)

    def close(self) -> None:
        """End all open trials, because the run is over or was interrupted."""
        while self._open:
            (name, *_), run = self._open.popitem()
            if name in self._loaded:
                with self._dropping(name):
                    run.end()

    def _finish(self, name: str, arm: str, seed: int, home: ResultsFolder) -> None:
        trial = home.trial(arm, seed)
        steps, probes = (trial.read_columns(f"{name}.parquet") for name in ("steps", "probes"))
        for row in (*steps.to_pylist(), *probes.to_pylist()):
            self._write(name, arm, seed, row.pop("step"), row)
        scores = trial.read_json("evaluation.json")
        scores = {f"evaluation/{metric}": value for metric, value in scores.items()}
        self._write(name, arm, seed, len(steps), scores)
        self._open.pop((name, arm, seed)).end()

    def _write(
        self, name: str, arm: str, seed: int, step: int, values: dict[str, float | None]
    ) -> None:
        key = (name, arm, seed)
        if key not in self._open:
            self._open[key] = self._loaded[name](self._study, self._results, arm, seed)
        if known := {metric: value for metric, value in values.items() if value is not None}:
            self._open[key].write(step, known)

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            del self._loaded[name]
            logging.getLogger("paribus").warning(
                "--log %s: the tracker failed (%s: %s) and is dropped; the run goes on",
                name,
                type(error).__name__,
                " ".join(str(error).split()),
            )
