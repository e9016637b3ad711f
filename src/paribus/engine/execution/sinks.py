"""Where else a run can be followed: trackers, by name.

A sink hears of progress and of finished trials; it changes nothing and keeps nothing that counts.
TensorBoard ships; others attach by the entry point group `paribus.sinks`: a name for a class or
function that is called with (study, results folder's path) and gives a `Sink`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Callable, Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Protocol

from paribus.errors import ParibusError, nearest
from paribus.results import TrialFolder
from paribus.study import Study

GROUP = "paribus.sinks"


class Sink(Protocol):
    """Someone who follows a run."""

    def progress(self, arm: str, seed: int, t: int, loss: float | None) -> None:
        """A trial has done t steps; `loss` is that of the last one, in nats/token."""
        ...

    def finished(self, trial: TrialFolder) -> None:
        """A trial is finished: its folder holds every step and every score."""
        ...

    def close(self) -> None:
        """The run is over, or was interrupted."""
        ...


def known_sinks(names: Sequence[str]) -> list[Callable[[Study, Path], Sink]]:
    """What opens the sinks of these names.

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


class Sinks:
    """Sinks, opened by name. One that raises is dropped with a warning; the run goes on."""

    def __init__(self, names: Sequence[str], study: Study, results: Path) -> None:
        self._open: dict[str, Sink] = {}
        for name, make in zip(names, known_sinks(names), strict=True):
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
