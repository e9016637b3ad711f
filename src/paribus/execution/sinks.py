"""Where else a run can be followed: trackers, by name.

A sink hears of progress and of finished trials; it changes nothing and keeps nothing that counts.
TensorBoard ships; others attach by the entry point group `paribus.sinks`: a name for a class or
function that is called with (study, results folder's path) and gives a `Sink`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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


def find_sinks(names: Sequence[str], study: Study, results: Path) -> list[Sink]:
    """The sinks of these names, opened."""
    return [make(study, results) for make in known_sinks(names)]
