"""Trackers that follow a run: TensorBoard, Weights & Biases, and others by entry points."""

from __future__ import annotations

import contextlib
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, Protocol

from paribus.errors import ParibusError, nearest
from paribus.results import TrialFolder
from paribus.study import Study

GROUP = "paribus.sinks"


class Sink(Protocol):
    """A tracker that follows a run; it changes nothing and keeps nothing that counts.

    TensorBoard and Weights & Biases ship; others attach by the entry point group `paribus.sinks`: a
    name for a class or function that is called with (study, results folder's path) and gives a
    `Sink`, such as an `EachTrial`.
    """

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """Hear that a trial has done t steps, the last with `loss` nats/token."""
        ...

    def finished(self, trial: TrialFolder) -> None:
        """Hear that a trial is finished: its folder holds every step and every score."""
        ...

    def close(self) -> None:
        """Hear that the run is over, or was interrupted."""
        ...


class EachTrial(ABC):
    """A sink that has a run of its own for every trial: live loss, then every step and score."""

    def __init__(self, study: Study, results: Path) -> None:
        self.study, self.results = study, results
        self._open: dict[tuple[str, int], Any] = {}

    @abstractmethod
    def begin(self, arm: str, seed: int) -> Any:
        """Return what `write` and `end` are given: the tracker's run of one trial."""

    @abstractmethod
    def write(self, run: Any, step: int, values: dict[str, float]) -> None:
        """Write finite numbers of one step by name; a step may come again, with other names."""

    @abstractmethod
    def end(self, run: Any) -> None:
        """End a run."""

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """Write the loss of the last step, in nats/token, under `live/`."""
        self._write(arm, seed, t, {"live/train_loss": loss})

    def finished(self, trial: TrialFolder) -> None:
        """Write every step, probe and score of a trial, and end its run."""
        arm, seed = trial.arm, trial.seed
        steps, probes = (trial.read_columns(f"{name}.parquet") for name in ("steps", "probes"))
        for row in (*steps.to_pylist(), *probes.to_pylist()):
            self._write(arm, seed, row.pop("step"), row)
        scores = trial.read_json("evaluation.json")
        self._write(arm, seed, len(steps), {f"evaluation/{k}": v for k, v in scores.items()})
        self.end(self._open.pop((arm, seed)))

    def close(self) -> None:
        """End what is open."""
        while self._open:
            self.end(self._open.popitem()[1])

    def _write(self, arm: str, seed: int, step: int, values: dict[str, float | None]) -> None:
        if (arm, seed) not in self._open:
            self._open[arm, seed] = self.begin(arm, seed)
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            self.write(self._open[arm, seed], step, known)


def known_trackers(names: Sequence[str]) -> list[Callable[[Study, Path], Sink]]:
    """Return what opens the sinks of these names.

    Raises ParibusError for an unknown name, and where what it needs is not installed.
    """
    known = {point.name: point for point in entry_points(group=GROUP)}
    found = []
    for name in names:
        if name not in known:
            raise ParibusError(f"--log {name}: no such tracker: {nearest(name, known)}")
        try:
            found.append(known[name].load())
        except ImportError as error:
            raise ParibusError(
                f"--log {name} needs a package that is not installed ({error}); "
                f"pip install 'paribus[{name}]'"
            ) from None
    return found


class Trackers:
    """Sinks, opened by name. One that raises is dropped with a warning; the run goes on."""

    def __init__(self, names: Sequence[str], study: Study, results: Path) -> None:
        self._open: dict[str, Sink] = {}
        for name, make in zip(names, known_trackers(names), strict=True):
            with self._dropping(name):
                self._open[name] = make(study, results)

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """Tell each; as `Sink.progress`."""
        self._tell(lambda sink: sink.progress(arm, seed, t, loss))

    def finished(self, trial: TrialFolder) -> None:
        """Tell each; as `Sink.finished`."""
        self._tell(lambda sink: sink.finished(trial))

    def close(self) -> None:
        """Tell each; as `Sink.close`."""
        self._tell(lambda sink: sink.close())

    def _tell(self, what: Callable[[Sink], None]) -> None:
        for name, sink in list(self._open.items()):
            with self._dropping(name):
                what(sink)

    @contextlib.contextmanager
    def _dropping(self, name: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            self._open.pop(name, None)
            logging.getLogger("paribus").warning(
                "--log %s: the tracker failed (%s: %s) and is dropped; the run goes on",
                name,
                type(error).__name__,
                " ".join(str(error).split()),
            )
