"""Options shared by several verbs, and functions that print.

This module imports nothing heavy at the top, so that help is fast.
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
    list[str] | None, Parameter(name="--set", help="Change a key of the study: key=value.")
]
ResultsPath = Annotated[
    Path | None,
    Parameter(
        name="--results",
        help="The results folder; by default results/<study> beside the study file.",
    ),
]
Step = Annotated[
    int | None, Parameter(help="Use the weights kept after this step (training.keep).")
]
Trust = Annotated[
    bool, Parameter(help="Run the custom code that a results folder names; read that code first.")
]
Json = Annotated[bool, Parameter(help="Print JSON, and nothing else, on standard output.")]
Pdf = Annotated[bool, Parameter(negative="--no-pdf", help="Also write the PDF.")]


TAKEN = ("workers", "backend", "backend_option")  # by a program, and a trainer of the user's own


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Options for where workers run.

    Attributes:
        device: Train on this device.
        backend: Where trials run: local, slurm, ray, or a TOML file.
        backend_option: An option of the backend: key=value.
    """

    device: Literal["auto", "cpu", "cuda", "mps"] = "auto"
    backend: str = "local"
    backend_option: list[str] | None = None

    def options(self, study: Study | None = None) -> dict[str, Any]:
        """Return these options as keyword arguments that the study's trainer accepts.

        Raises ParibusError for an unknown backend, and for an option that the user set but the
        trainer does not accept.
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
                f"'{study.name}' is run by trainer '{study.trainer}', which does not accept "
                f"{' or '.join(unused)}; remove it, or make it a key of the trainer's own section",
                code="conflict",
            )
        return {name: value for name, value in values.items() if name in TAKEN}


@Parameter(name="*")
@dataclass(frozen=True)
class Trying(Where):
    """Options for trying one step of every arm.

    Attributes:
        eager: Launch GPU kernels one by one: slower, for modules that read a tensor's value.
    """

    eager: bool = False


@Parameter(name="*")
@dataclass(frozen=True)
class Crew(Where):
    """Options for where workers run, and how many.

    Attributes:
        workers: Number of worker processes; by default one per core or GPU.
    """

    workers: PositiveInt | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Training(Crew):
    """Options for where and how trials are trained.

    Attributes:
        stack: Number of trials trained together in a worker; by default 1, or all that fit a GPU.
        eager: Launch GPU kernels one by one: slower, for modules that read a tensor's value.
        wandb: Log every trial to Weights & Biases.
    """

    stack: int | None = None
    eager: bool = False
    wandb: bool = False


@Parameter(name="*")
@dataclass(frozen=True)
class Planned(Crew):
    """Options for where a plan measures a step, or which devices it assumes instead.

    Attributes:
        stack: Number of trials trained together in a worker; by default 1, or all that fit a GPU.
        tflops: A device's peak (data sheet) in 10^12 dense FLOPs per second; skips measuring.
        utilisation: With --tflops: the share of the peak that training reaches; by default 0.4.
        count: With --tflops: the number of devices; by default those of one trial.
        price: The price of a device per hour.
    """

    stack: int | None = None
    tflops: PositiveFloat | None = None
    utilisation: Annotated[float, Parameter(validator=Number(gt=0, lte=1))] | None = None
    count: PositiveInt | None = None
    price: NonNegativeFloat | None = None


@Parameter(name="*")
@dataclass(frozen=True)
class Answer:
    """Options for printing a verdict.

    Attributes:
        verbose: Also print every test, control and caution.
        json: Print verdict.json instead of the card; everything else goes to stderr.
        markdown: Print the card as Markdown, for a pull request; everything else goes to stderr.
        exit_verdict: Exit with the code of the word; if there are several, of the last of these:
            BETTER 0, SAME 12, DESCRIPTIVE 14, UNRESOLVED 13, WORSE 11, INVALID 3.
    """

    verbose: bool = False
    json: bool = False
    markdown: bool = False
    exit_verdict: bool = False

    def __post_init__(self) -> None:
        """Print messages to stderr if a program reads standard output."""
        if self.json or self.markdown:
            console.stderr = True


TRYING, CREW, TRAINING = Trying(), Crew(), Training()
PLANNED, PLAIN = Planned(), Answer()
# The styles of words.
THEME = Theme({"good": "green", "bad": "red", "plain": "cyan", "open": "yellow"})
console = Console(highlight=False, soft_wrap=False, theme=THEME)


def parse_overrides(texts: Iterable[str] | None) -> dict[str, Any]:
    """Parse `key=value` texts into a dict of overrides."""
    from paribus.study import parse_override

    return dict(parse_override(text) for text in texts or ())


def table(title: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> Table:
    """Return a table for the terminal."""
    from paribus.report.table_model import table_of

    labels = list(head)
    return table_of(title, "", [dict(zip(labels, row, strict=True)) for row in rows], title)


def show(*parts: RenderableType) -> None:
    """Print tables and texts with markup. An indented line is a command, so it is never wrapped."""
    for part in parts:
        for line in part.splitlines() if isinstance(part, str) else [part]:
            console.print(line, soft_wrap=str(line).startswith("  ") or None)


def show_path(line: str) -> None:
    """Print a line without wrapping it, because users copy the path in it."""
    console.print(line, soft_wrap=True, markup=False)


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_stamped(value: Mapping[str, Any]) -> None:
    """Print a verb's answer as JSON with its schema number.

    The number is raised when a key is renamed, removed or given another meaning.
    """
    from paribus.digests import plain
    from paribus.schema import stamped

    print_json(stamped(plain(value), 1))
