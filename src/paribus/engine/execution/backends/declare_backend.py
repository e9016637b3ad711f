"""What a backend is, what it starts, and how one is declared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

from paribus.declared import DECLARED
from paribus.study.choices import Options

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
    """A worker that a backend has started: `python -m paribus.engine.execution.worker`, somewhere.

    It works in the folder that the command was given in, with the same Python packages, and writes
    to the same results folder: all machines share a file system.
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
    """Starts workers. One object serves all that one command does, study after study.

    Attributes:
        name: how users call it.
        options: as declared, with what the user gave.
    """

    name: str = ""

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def start(self, hear: Hear) -> WorkerProcess:
        """Start a worker whose lines are given to `hear`."""

    def start_fresh(self, hear: Hear) -> WorkerProcess:
        """Start one that shares with those of `start` nothing that an interpreter draws.

        Such as the order of sets; a new interpreter shares none of it.
        """
        return self.start(hear)

    @abstractmethod
    def default_workers(self, device: str, devices: int) -> int:
        """How many workers to start where the user names no number, by what the first one found.

        `device` is "cpu", "cuda" or "mps"; `devices` is what the method of that name gives.
        """

    def devices(self, device: str, found: int) -> int:
        """How many GPUs, or memories of a CPU, its workers have in all; the first one `found` some.

        As many as found, where all workers are on one machine. Trials are spread over them, and
        workers that are more share their memory.
        """
        return found

    def is_surely_cpu(self, device: str) -> bool:
        """Whether workers asked for `device` will train on a CPU, as far as is known before."""
        return device == "cpu"


@dataclass(frozen=True)
class BackendClass:
    """What a file declares: a class of backends.

    Attributes:
        name: how users call it.
        options: the class of its options.
        make: the class; called with the options.
    """

    name: str
    options: type[Options]
    make: type[Backend]


B = TypeVar("B", bound=Backend)


def backend(name: str, *, options: type[Options] = Options) -> Callable[[type[B]], type[B]]:
    """Make a subclass of `Backend` one that is found by its name; the class stays what it is."""

    def declare(make: type[B]) -> type[B]:
        setattr(make, DECLARED, BackendClass(name, options, make))
        return make

    return declare
