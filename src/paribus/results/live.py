"""`live.json`: where a run stands, for `paribus status --follow`; nothing counts in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from paribus.results.formats import read_json, write_json
from paribus.results.store import ResultsFolder
from paribus.study import Study

FILE = "live.json"
SECONDS = 2.0  # between two writes of it


@dataclass
class Progress:
    """The progress of a run.

    Attributes:
        n_trials, n_finished: trials of the study, and those that are finished.
        tokens, tokens_done: training tokens of the study, and those that have been trained on.
        tokens_before: those of `tokens_done` that earlier runs had done.
        unit: what is counted, where it is not tokens: "trials", of a trainer that tells no tokens.
        running: steps done and last training loss (nats/token) of each trial under way, by label.
        news: what has just happened, if worth a line.
        doing: what is done once every token has been trained on; empty before.
    """

    n_trials: int
    n_finished: int
    tokens: int
    tokens_done: int
    tokens_before: int
    running: dict[str, tuple[int, float | None]] = field(default_factory=dict)
    news: str = ""
    doing: str = ""
    unit: str = "tokens"
    _began: float = field(default_factory=time.monotonic)

    @property
    def tokens_per_second(self) -> float:
        """Over this run."""
        return (self.tokens_done - self.tokens_before) / max(time.monotonic() - self._began, 1e-9)

    @property
    def seconds_left(self) -> float | None:
        """Of training, at the speed so far; None before there is one."""
        speed = self.tokens_per_second
        return (self.tokens - self.tokens_done) / speed if speed > 0 else None


Watch = Callable[[Progress], None]


class Live:
    """Writes `live.json` every few seconds of a run, for `paribus status --follow`."""

    def __init__(self, folder: ResultsFolder) -> None:
        self._path = folder.path / FILE
        self._written = 0.0

    def note(self, progress: Progress) -> None:
        """Write the progress, at most every SECONDS."""
        if time.monotonic() - self._written >= SECONDS:
            self._written = time.monotonic()
            about = {
                "running": progress.running,
                "tokens": progress.tokens,
                "tokens_done": progress.tokens_done,
                "tokens_per_second": progress.tokens_per_second,
                "seconds_left": progress.seconds_left,
                "doing": progress.doing,
                "unit": progress.unit,
                "written_at": time.time(),
            }
            write_json(self._path, about)

    def close(self) -> None:
        """Remove the file: the run is over."""
        self._path.unlink(missing_ok=True)


class Followed:
    """A run that counts trials: its progress is told to `watch`, and written to `live.json`."""

    def __init__(self, study: Study, folder: ResultsFolder, watch: Watch | None) -> None:
        self._primary = study.primary.metric
        self._folder, self._live, self._watch = folder, Live(folder), watch
        n, done = len(study.trials), sum(folder.trial(*t).is_finished for t in study.trials)
        self._progress = Progress(n, done, n, done, done, unit="trials")
        self._tell()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.close()

    def running(self, trial: tuple[str, int], step: int, value: float | None) -> None:
        """Note what a trial has printed last."""
        self._progress.running[self._folder.trial(*trial).label] = step, value
        self._tell()

    def finished(self, trial: tuple[str, int]) -> None:
        """Note that a trial's records are sealed, and what came out."""
        folder, name, progress = self._folder.trial(*trial), self._primary, self._progress
        progress.running.pop(folder.label, None)
        progress.n_finished += 1
        progress.tokens_done += 1
        value = folder.read_json("evaluation.json").get(name)
        told = (
            f"finished: {name} {value:.6g}"
            if value is not None
            else f"failed: {failed}"
            if (failed := folder.read_json("trial.json").get("failed"))
            else f"finished without a finite {name}"
        )
        self._tell(f"{folder.label} {told}")

    def _tell(self, news: str = "") -> None:
        self._progress.news = news
        self._live.note(self._progress)
        if self._watch is not None:
            self._watch(self._progress)
        self._progress.news = ""


def read_live(folder: Path) -> dict[str, Any] | None:
    """Return what a run in `folder` last said; None where none is under way."""
    path = folder / FILE
    return read_json(path) if path.is_file() else None
