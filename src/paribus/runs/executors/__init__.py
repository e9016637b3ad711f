"""Executors: what starts the workers of a run. One may be the user's own code.

Where workers run is said on the command line or in Python, never in a study or a results folder:
those may be a stranger's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import Field

from paribus.declared import DECLARED, declared
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, read_options, require_declared
from paribus.study.importing import load_own
from paribus.untrusted_io import STUDY_BYTES, is_regular, parse_toml, read_text

if TYPE_CHECKING:
    from paribus.runs.queue import Queue

PACKAGE = "paribus.runs.executors"
WORD = "--backend"


class Retrying(Options):
    """Options of every executor."""

    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a trial is begun again whose worker died; the first run registers it."""


class Backend(ABC):
    """Starts the workers of a run, and follows them.

    Attributes:
        name: how users call it.
        options: as declared, with what the user gave.
        is_here: whether workers run on this machine, and end with the command.
    """

    name = "own"
    is_here = False

    def __init__(self, options: Any) -> None:
        self.options = options

    @abstractmethod
    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> None:
        """Start workers for a queue, or find those that an earlier command has started."""

    @abstractmethod
    def check(self) -> None:
        """Start other workers for those that died. Raises ParibusError if that is too often."""

    @abstractmethod
    def leave(self, *, is_interrupted: bool) -> None:
        """Wait until workers have left: the run is over, or the command was interrupted."""

    def workers(self, devices_per_trial: int) -> int | None:
        """Return how many trials a worker runs at the same time; None leaves it to the machine."""
        return None


@dataclass(frozen=True)
class BackendClass:
    """A class of backends, its name and the class of its options."""

    name: str
    options: type[Retrying]
    make: type[Backend]


B = TypeVar("B", bound=Backend)


def backend(name: str, *, options: type[Retrying] = Retrying) -> Callable[[type[B]], type[B]]:
    """Declare a backend, so that it is found by its name."""

    def declare(make: type[B]) -> type[B]:
        make.name = name
        setattr(make, DECLARED, BackendClass(name, options, make))
        return make

    return declare


def find_backend(chosen: str | Backend, options: Mapping[str, Any] | None = None) -> Backend:
    """Return the backend of a name, of an import path, or of a TOML file with a kind and options.

    A file of the user's own is relative to the current folder, as every path of a command line, and
    must not lie in a results folder. `options` take precedence over those of a TOML file. A backend
    that exists already is returned as it is.

    Raises ParibusError if there is none, for options that it does not declare, and if it cannot be
    made.
    """
    if isinstance(chosen, Backend):
        return chosen
    where, kind, values = f"{WORD} {chosen}", chosen, dict(options or {})
    named, origin = WORD, f"{WORD}-option"
    if chosen.endswith(".toml"):
        _require_own(Path(chosen), where)
        content = parse_toml(read_text(Path(chosen), STUDY_BYTES), chosen)
        kind, values, named = content.pop("kind", None), content | values, where
        origin = f"{where}: options"
        if not isinstance(kind, str):
            raise ParibusError(f'{where}: it has no kind; write kind = "slurm" in its first line')
    if ":" in kind:
        declaration = _own(kind, where)
    else:
        known = declared(PACKAGE, BackendClass)
        declaration = require_declared(kind, known, named, "backend", PACKAGE)
    read = read_options(declaration.options, values, origin, kind)
    with blamed(where):  # it may be the user's code
        return declaration.make(read)


def _own(path: str, where: str) -> BackendClass:
    """Return what a class of the user's own declares."""
    _require_own(Path(path.partition(":")[0]), where)
    cls: type = load_own(path, where, "backend", type, Path.cwd(), "the current folder")
    declaration = vars(cls).get(DECLARED)
    if not (isinstance(declaration, BackendClass) and issubclass(cls, Backend)):
        raise ParibusError(
            f"{where}: {cls.__name__} is not a backend: it must be a subclass of "
            f'{PACKAGE}.jobs.JobBackend under @backend("name")'
        )
    return declaration


def _require_own(file: Path, where: str) -> None:
    """Raise ParibusError if a file lies in a results folder, which is data and is not run."""
    for home in file.resolve().parents:
        if any(is_regular(home / name) for name in ("registration.json", "study.json")):
            raise ParibusError(
                f"{where}: it lies in the results folder {home}, which is data and is not run; "
                "move it to a folder of your own"
            )
