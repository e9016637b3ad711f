"""What a run under way says of itself to others: `live.json`, for `paribus watch`.

It is rewritten every few seconds and gone when the run ends; nothing that counts is read from it.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paribus.results import ResultsFolder
from paribus.results.formats import read_json, write_json

if TYPE_CHECKING:
    from paribus.engine.execution.followers import Progress

FILE = "live.json"
SECONDS = 2.0
MOST_POINTS = 60  # of a trial's loss curve


class Live:
    """Writes `live.json` while it is open."""

    def __init__(self, folder: ResultsFolder) -> None:
        self._path = folder.path / FILE
        self._curves: dict[str, list[tuple[int, float | None]]] = {}
        self._written = 0.0

    def note(self, progress: Progress) -> None:
        """Remember where the run stands, and write it where it is time to."""
        for label, point in progress.running.items():
            curve = self._curves.setdefault(label, [])
            if not curve or curve[-1] != point:
                curve.append(point)
            if len(curve) > 2 * MOST_POINTS:
                del curve[1:-1:2]
        if time.monotonic() - self._written >= SECONDS:
            self._written = time.monotonic()
            running = {label: self._curves[label] for label in progress.running}
            about = {
                "running": running,
                "tokens": progress.tokens,
                "tokens_done": progress.tokens_done,
                "tokens_per_second": progress.tokens_per_second,
                "seconds_left": progress.seconds_left,
                "doing": progress.doing,
                "written_at": time.time(),
            }
            write_json(self._path, about)

    def close(self) -> None:
        """The run is over: the file goes."""
        with contextlib.suppress(FileNotFoundError):
            self._path.unlink()


def read_live(folder: Path) -> dict[str, Any] | None:
    """What a run in `folder` last said; None where none is under way."""
    path = folder / FILE
    return read_json(path) if path.is_file() else None
