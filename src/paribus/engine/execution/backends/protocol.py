"""A backend: how one is declared and chosen. It may be the user's own code.

Where workers run is said on the command line or in Python, never in a study or a results folder:
those may be a stranger's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol, TypeVar

from pydantic import Field

from paribus.declared import DECLARED, declared
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, read_options, require_declared
from paribus.study.importing import load_own
from paribus.untrusted_io import STUDY_BYTES, is_regular, parse_toml, read_text

# Called with every line that a worker says, and at its end with None, from any thread.
Hear = Callable[[str | None], None]


RETRIES = 2


class Retrying(Options):
    """Base of the options of a backend that lets its user say how often a task is begun again."""

    retries: Annotated[int, Field(ge=0, le=100)] = RETRIES
    """How often a trial is begun again whose worker died; the first run registers it."""


@dataclass(frozen=True)
class End:
    """The end of a worker.

    Attributes:
        how: such as "exit code 1", with a way out where there is one.
        last_words: its last line that was no message, such as an interpreter's error; or empty.
    """

    how: str
    last_words: str


class WorkerProcess(Protocol):
    """A worker that a backend has started: a process that runs `WORKER`, somewhere.

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
        """Return how it ended, of one that has left in the middle of something."""
        ...


class Backend(ABC):
    """Starts workers. One object serves all that one command does, study after study.

    Attributes:
        name: how users call it.
        options: as declared, with what the user gave.
    """

    name: str = ""
    retries: int = RETRIES
    """How often a task whose worker died is begun again."""

    def __init__(self, options: Any) -> None:
        self.options = options
        self.retries = getattr(options, "retries", RETRIES)

    @abstractmethod
    def start(self, hear: Hear) -> WorkerProcess:
        """Start a worker whose lines are given to `hear`."""

    def start_fresh(self, hear: Hear) -> WorkerProcess:
        """Start one that shares with those of `start` nothing that an interpreter draws.

        Such as the order of sets; a new interpreter shares none of it.
        """
        return self.start(hear)

    def start_bare(self, hear: Hear) -> WorkerProcess:
        """Start one that has loaded nothing of the engine: it runs other people's programs."""
        return self.start(hear)

    @abstractmethod
    def default_workers(self, device: str, devices: int) -> int:
        """Return how many workers to start where the user names no number.

        `device` is "cpu", "cuda" or "mps"; `devices` is what the method of that name gives.
        """

    def devices(self, device: str, found: int) -> int:
        """Count the GPUs, or memories of a CPU, of all its workers; the first one `found` some.

        As many as found, where all workers are on one machine. Trials are spread over them, and
        workers that are more share their memory.
        """
        return found


@dataclass(frozen=True)
class BackendClass:
    """A class of backends, as a file declares it.

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


PACKAGE = "paribus.engine.execution.backends"
WORD = "--backend"
OF_RESULTS = ("registration.json", "study.json")  # either makes a folder one of results


def find_backend(chosen: str | Backend, options: Mapping[str, Any] | None = None) -> Backend:
    """Return the backend of that name, or at that import path; one that is made already stays.

    A file of the user's own starts at the current folder, as every path of a command line, and does
    not lie in a results folder.

    A TOML file says its kind (a name, or an import path) and options; `options` come before those.

    Raises ParibusError where there is none, for options that it does not declare, and where it
    cannot be made.
    """
    if isinstance(chosen, Backend):
        chosen.name = chosen.name or type(chosen).__name__
        return chosen
    where, options = f"{WORD} {chosen}", dict(options or {})
    kind, named, given_by = str(chosen), WORD, f"{WORD}-option"
    if chosen.endswith(".toml"):
        told = _configured(Path(chosen), where)
        given_by = f"{where}: options" if not options else f"{where} with {given_by}: options"
        kind, options, named = told.pop("kind"), told | options, where
    if ":" in kind:
        of = _own(kind, where)
    else:
        of = require_declared(kind, declared(PACKAGE, BackendClass), named, "backend", PACKAGE)
    given = read_options(of.options, options, given_by, kind)
    try:
        made = of.make(given)
    except Exception as error:  # it may be the user's code
        raise ParibusError(f"{where}: {type(error).__name__}: {error}") from error
    made.name = of.name
    return made


def shipped(kind: str, options: Mapping[str, Any]) -> Backend | None:
    """Return the backend of that name, which is no code of the user's; None where there is none."""
    is_there = kind in declared(PACKAGE, BackendClass)
    return find_backend(kind, options) if is_there else None


def _configured(file: Path, where: str) -> dict[str, Any]:
    """Return what a file of the user's own says of a backend: its kind and options."""
    if held := _results_folder(file.resolve()):
        raise ParibusError(
            f"{where}: it lies in the results folder {held}, which may be somebody else's; move it "
            "to a folder of your own"
        )
    found = parse_toml(read_text(file, STUDY_BYTES), str(file))
    if not isinstance(found.get("kind"), str):
        raise ParibusError(f'{where}: it has no kind; write kind = "slurm" in its first line')
    return found


def called(backend: Backend, method: str, *arguments: Any) -> Any:
    """Return what a method of a backend gives. Raises ParibusError where it fails, in its words."""
    with blamed(f"backend '{backend.name}': {method} failed"):
        return getattr(backend, method)(*arguments)


def _own(path: str, where: str) -> BackendClass:
    """Return what a class of the user's own declares."""
    file = Path(path.partition(":")[0])
    if file.suffix == ".py" and (held := _results_folder(file.resolve())):
        raise ParibusError(
            f"{where}: {file} lies in the results folder {held}, which is data and is not run; "
            "move it to a folder of your own"
        )
    found: type = load_own(path, where, "backend", type, Path.cwd(), "the current folder")
    of = vars(found).get(DECLARED)
    if not (isinstance(of, BackendClass) and issubclass(found, Backend)):
        raise ParibusError(
            f"{where}: {found.__name__} is no backend: it must be a subclass of "
            f'{PACKAGE}.Backend under @backend("name")'
        )
    return of


def _results_folder(file: Path) -> Path | None:
    """Return the results folder that `file` lies in."""
    return next(
        (one for one in file.parents if any(is_regular(one / name) for name in OF_RESULTS)), None
    )
