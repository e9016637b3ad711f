"""Options shared by several commands, and helper functions for printing.

Heavy packages are imported lazily, so that `--help` is fast.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from cyclopts import Parameter
from cyclopts.types import NonNegativeFloat, PositiveFloat, PositiveInt
from cyclopts.validators import Number
from rich.console import Console, RenderableType
from rich.theme import Theme

from paribus.errors import ParibusError

if TYPE_CHECKING:
    from paribus.report.table_model import Table
    from paribus.study import Study

StudyName = Annotated[
    str, Parameter(help="The name of an example (`paribus check` lists them), or a TOML file.")
]
Folder = Annotated[Path, Parameter(help="The results folder of a study.")]
Overrides = Annotated[
    list[str] | None, Parameter(name="--set", help="Override a key of the study: key=value.")
]
ResultsPath = Annotated[
    Path | None,
    Parameter(
        name="--results",
        help="The results folder; by default results/<study> next to the study file.",
    ),
]
Step = Annotated[int | None, Parameter(help="Use the checkpoint of this step (see training.keep).")]
Trust = Annotated[
    bool, Parameter(help="Run custom code of the study; read the code before you trust it.")
]
Json = Annotated[bool, Parameter(help="Print only JSON on standard output.")]
Pdf = Annotated[bool, Parameter(negative="--no-pdf", help="Also write the PDF.")]


TAKEN = ("workers", "backend", "backend_option")  # by a program, and a trainer of the user's own


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Command-line options for the device and the execution backend.

    Attributes:
        device: Train on this device.
        backend: Run trials on this backend: local, slurm, ray, or a TOML file.
        backend_option: An option of the backend: key=value.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    backend: str = "local"
    backend_option: list[str] | None = None

    def options(self, study: Study | None = None) -> dict[str, Any]:
        """Return the options as keyword arguments accepted by the study's trainer.

        Raises ParibusError if the backend is unknown or the trainer does not accept an option that
        was set.
        """
        from paribus.runs.executors import find_backend
        from paribus.study.trainer import COMMAND, STACKED

        values = {f.name: getattr(self, f.name) for f in fields(self)}
        own = parse_overrides(values.pop("backend_option"))
        values["backend"] = find_backend(values["backend"], own)
        if study is None or study.trainer == STACKED:
            return values
        takes = TAKEN if study.trainer == COMMAND or ":" in study.trainer else ()
        changed = [f.name for f in fields(self) if getattr(self, f.name) != f.default]
        if unused := [f"--{k.replace('_', '-')}" for k in changed if k not in takes]:
            raise ParibusError(
                f"trainer '{study.trainer}' of '{study.name}' does not accept "
                f"{' and '.join(unused)} (for the built-in engine); remove it",
                code="conflict",
            )
        return {name: value for name, value in values.items() if name in TAKEN}


@Parameter(name="*")
@dataclass(frozen=True)
class Trying(Where):
    """Command-line options for running one training step of each arm.

    Attributes:
        eager: Disable CUDA graphs, for modules that read tensor values on the CPU (slower).
    """

    eager: bool = False


@Parameter(name="*")
@dataclass(frozen=True)
class Crew(Where):
    """Command-line options for the backend and the number of workers.

    Attributes:
        workers: The number of worker processes; by default 1 per core or GPU (command: 1).
    """

    workers: PositiveInt | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Training(Crew):
    """Command-line options for training.

    Attributes:
        stack: The number of trials that a worker trains together; by default 1, or all that fit
            on a GPU.
        eager: Disable CUDA graphs, for modules that read tensor values on the CPU (slower).
        wandb: Log every trial to Weights & Biases.
    """

    stack: int | None = None
    eager: bool = False
    wandb: bool = False


@Parameter(name="*")
@dataclass(frozen=True)
class Planned(Crew):
    """Command-line options for estimating the cost, by a measurement or for a given device.

    Attributes:
        stack: The number of trials that a worker trains together; by default 1, or all that fit
            on a GPU.
        tflops: A device's peak from its data sheet, in 10^12 dense FLOPs per second; skips the
            measurement.
        utilisation: With --tflops, the share of the peak that training reaches; by default 0.4.
        count: With --tflops, the number of devices; by default as many as one trial uses.
        price: The price per device and hour.
    """

    stack: int | None = None
    tflops: PositiveFloat | None = None
    utilisation: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] | None = None
    count: PositiveInt | None = None
    price: NonNegativeFloat | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Answer:
    """Command-line options for printing verdicts.

    Attributes:
        verbose: Also print all tests, controls and cautions.
        json: Print verdict.json instead of the summary; all other output goes to stderr.
        markdown: Print the summary as Markdown; all other output goes to stderr.
        exit_verdict: Exit with a code for the verdict; of several, the worst counts, in this
            order: BETTER 0, SAME 12, DESCRIPTIVE 14, UNRESOLVED 13, WORSE 11, INVALID 3.
    """

    verbose: bool = False
    json: bool = False
    markdown: bool = False
    exit_verdict: bool = False

    def __post_init__(self) -> None:
        """Redirect messages to stderr if standard output is JSON or Markdown."""
        if self.json or self.markdown:
            console.stderr = True


TRYING, CREW, TRAINING = Trying(), Crew(), Training()
PLANNED, PLAIN = Planned(), Answer()
# The styles of words.
THEME = Theme({"good": "green", "bad": "red", "plain": "cyan", "open": "yellow"})
console = Console(highlight=False, soft_wrap=False, theme=THEME)


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse `key=value` strings into a dict of overrides."""
    from paribus.study import parse_override

    return dict(parse_override(text) for text in texts or ())


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Build a terminal table from column labels and rows of cells."""
    from paribus.report.table_model import table_of

    labels = list(head)
    return table_of(title, "", [dict(zip(labels, row, strict=True)) for row in rows], title)


def show(*parts: RenderableType) -> None:
    """Print tables and marked-up text. Indented lines are commands and therefore not wrapped."""
    for part in parts:
        for line in part.splitlines() if isinstance(part, str) else [part]:
            console.print(line, soft_wrap=str(line).startswith("  ") or None)


def show_path(line: str) -> None:
    """Print a line that contains a path, without wrapping, so that the path can be copied."""
    console.print(line, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print a value to standard output as indented JSON."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_stamped(value: Mapping[str, Any]) -> None:
    """Print a command's output as JSON, including a schema number.

    The schema number is increased when a key is renamed, removed or redefined.
    """
    from paribus.digests import plain
    from paribus.schema import stamped

    print_json(stamped(plain(value), 1))
