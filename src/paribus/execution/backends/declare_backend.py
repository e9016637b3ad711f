"""What a backend is, what it starts, and how one is found."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar, Protocol, TypeVar

from paribus.declared import DECLARED, declared
from paribus.errors import ParibusError, nearest

PACKAGE = "paribus.execution.backends"

# Called with every line that a worker says, and at its end with None, from any thread.
Hear = Callable[[str | None], None]


@dataclass(frozen=True)
class End:
    """How a worker ended.

    Attributes:
        how: such as "exit code 1", with a way out where there is one.
        last_words: its last line that was no message, such as an interpreter's error; or empty.
    """

    how: str
    last_words: str


class WorkerProcess(Protocol):
    """A worker that a backend has started: `python -m paribus.execution.worker`, somewhere.

    On the machine of the one who starts it `paribus.execution.launch` lets it die with that one.
    """

    def send(self, line: str) -> None:
        """Bring it a line. Where it has left, nothing happens: that is heard as its end."""
        ...

    def stop(self) -> None:
        """Ask it to write a checkpoint and leave, by the end of its input; does not wait."""
        ...

    def close(self) -> None:
        """Wait until it has left, by force if it does not; then nothing of it is left behind."""
        ...

    def end(self) -> End:
        """How it ended, of one that has left in the middle of something."""
        ...


class Backend(ABC):
    """Starts workers."""

    name: ClassVar[str]

    @abstractmethod
    def start(self, hear: Hear) -> WorkerProcess:
        """Start a worker whose lines are given to `hear`."""

    @abstractmethod
    def default_workers(self, device: str, devices: int) -> int:
        """How many workers to start where the user names no number, by what the first one found."""

    @abstractmethod
    def is_surely_cpu(self, device: str) -> bool:
        """Whether workers asked for `device` will train on a CPU, as far as is known before."""


B = TypeVar("B", bound=Backend)


def backend(of: type[B]) -> type[B]:
    """Make a subclass of `Backend` one that is found by its name."""
    setattr(of, DECLARED, of())
    return of


def find_backend(name: str) -> Backend:
    """The backend of that name. Raises ParibusError where there is none."""
    known = declared(PACKAGE, Backend)  # type: ignore[type-abstract]
    if name not in known:
        raise ParibusError(
            f"there is no backend '{name}': {nearest(name, known)} They are declared in "
            f"{PACKAGE.replace('.', '/')}/, one file each"
        )
    return known[name]
