"""Executors: what starts the workers of a run. One may be the user's own code.

Where workers run is said on the command line or in Python, never in a study or a results folder:
those may be a stranger's.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeVar

from pydantic import Field

from paribus.declared import DECLARED, declared
from paribus.errors import ParibusError, blamed
from paribus.study.choices import Options, read_options, require_declared
from paribus.study.importing import load_own
from paribus.untrusted_io import STUDY_BYTES, is_regular, parse_toml, read_text

if TYPE_CHECKING:
    from paribus.runs.queue import Queue

RETRIES = 2
PACKAGE = "paribus.runs.executors"
WORD = "--backend"


class Retrying(Options):
    """Options of every executor."""

    retries: Annotated[int, Field(ge=0, le=100)] = RETRIES
    """How often a trial is begun again whose worker died; the first run registers it."""


class Workers(Protocol):
    """The workers of one run, seen from the command that follows it."""

    def check(self) -> None:
        """See whether they are well; start others for those that died. Raises ParibusError."""
        ...

    def stop(self) -> None:
        """End the workers that end with the command; called when it fails or is interrupted."""
        ...

    def leave(self) -> None:
        """Wait until they have left; called when the run is over."""
        ...


class Backend(ABC):
    """Starts the workers of a run, lists them, and cancels them.

    Attributes:
        name: how users call it.
        options: as declared, with what the user gave.
        is_here: whether workers run on this machine, and end with the command.
    """

    name: str = ""
    is_here = False

    def __init__(self, options: Any) -> None:
        self.options = options
        self.retries = getattr(options, "retries", RETRIES)

    @abstractmethod
    def start(self, queue: Queue, n_trials: int, devices_per_trial: int) -> Workers:
        """Start workers for a queue, or find those that an earlier command has started."""

    @property
    def record(self) -> dict[str, Any]:
        """Name and options, as backend.json has them; they count in no digest."""
        dump = getattr(self.options, "model_dump", None)
        return {"backend": self.name, "options": dump(mode="json") if dump else {}}


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
    """Declare a subclass of `Backend`, so that it is found by its name."""

    def declare(make: type[B]) -> type[B]:
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
        chosen.name = chosen.name or type(chosen).__name__
        return chosen
    where, options = f"{WORD} {chosen}", dict(options or {})
    kind, named, given_by = str(chosen), WORD, f"{WORD}-option"
    if chosen.endswith(".toml"):
        file = _configured(Path(chosen), where)
        given_by = f"{where}: options" if not options else f"{where} with {given_by}: options"
        kind, options, named = file.pop("kind"), file | options, where
    if ":" in kind:
        declaration = _own(kind, where)
    else:
        known = declared(PACKAGE, BackendClass)
        declaration = require_declared(kind, known, named, "backend", PACKAGE)
    values = read_options(declaration.options, options, given_by, kind)
    with blamed(where):  # it may be the user's code
        made = declaration.make(values)
    made.name = declaration.name
    return made


def shipped(kind: str, options: Mapping[str, Any]) -> Backend | None:
    """Return the shipped backend of that name; None for any other name."""
    is_shipped = kind in declared(PACKAGE, BackendClass)
    return find_backend(kind, options) if is_shipped else None


def _configured(file: Path, where: str) -> dict[str, Any]:
    """Return what a file of the user's own says of a backend: its kind and options."""
    _require_own(file, where)
    content = parse_toml(read_text(file, STUDY_BYTES), str(file))
    if not isinstance(content.get("kind"), str):
        raise ParibusError(f'{where}: it has no kind; write kind = "slurm" in its first line')
    return content


def _own(path: str, where: str) -> BackendClass:
    """Return what a class of the user's own declares."""
    _require_own(Path(path.partition(":")[0]), where)
    made: type = load_own(path, where, "backend", type, Path.cwd(), "the current folder")
    declaration = vars(made).get(DECLARED)
    if not (isinstance(declaration, BackendClass) and issubclass(made, Backend)):
        raise ParibusError(
            f"{where}: {made.__name__} is no backend: it must be a subclass of {PACKAGE}.Backend "
            'under @backend("name")'
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
