"""Options that several verbs take, and the console that they print to.

Nothing heavy is imported up here: asking for help reads this file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from cyclopts import Parameter
from rich.console import Console, RenderableType
from rich.text import Text
from rich.theme import Theme

from paribus.errors import ParibusError

# As `machine.programs` has it, which help need not wait for.
Device = Literal["auto", "cpu", "cuda", "mps"]
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
Workers = Annotated[int | None, Parameter(help="Worker processes; by default one per core or GPU.")]
StackSize = Annotated[
    int | None,
    Parameter(help="Trials trained together in a worker; by default 1, on a GPU all that fit."),
]
StudyFolder = Annotated[
    Path | None,
    Parameter(help="The folder of the study file, if the study names its text by a relative path."),
]
Step = Annotated[
    int | None, Parameter(help="Weights kept after this step (training.keep) in place of the last.")
]
AverageLast = Annotated[
    int, Parameter(help="Average this many kept sets of weights, up to that step.")
]
Eager = Annotated[
    bool,
    Parameter(
        help="Launch GPU kernels one by one: slower, for modules that read a tensor's value."
    ),
]
Trust = Annotated[
    bool, Parameter(help="Run the custom code that a results folder names; read that code first.")
]


@Parameter(name="*")
@dataclass(frozen=True)
class Where:
    """Where workers run, and on what: the same of every verb that starts some."""

    device: Annotated[Device, Parameter(help="Train on this device.")] = "auto"
    backend: Annotated[
        str,
        Parameter(
            help="Where trials run: local, slurm, ray, a TOML file with a kind and options, or "
            "your own class, such as cluster.py:Queue."
        ),
    ] = "local"
    backend_option: Annotated[
        list[str] | None, Parameter(help="An option of the backend: key=value.")
    ] = None
    cpu_kernels: Annotated[
        Literal["auto", "on", "off"] | None,
        Parameter(
            name="--cpu-kernels",
            help="Compiled kernels for training on a CPU; auto: where there is a C++ compiler. By "
            "default what PARIBUS_CPU_KERNELS says.",
        ),
    ] = None

    def __post_init__(self) -> None:
        """Tell this process, and the workers that it starts."""
        if self.cpu_kernels is not None:
            from paribus.engine.ops import choose

            choose(self.cpu_kernels)

    def warm_up(self) -> None:
        """Let workers import what they need, while this process has other things to do."""
        if self.backend == "local" and self.device in ("auto", "cpu"):
            from paribus.runs.executors.local import warm_up

            warm_up()

    def chosen(self) -> dict[str, Any]:
        """Return the same as functions take it. Raises ParibusError for a backend that is none."""
        from paribus.runs.executors import find_backend
        from paribus.study import parse_override

        options = dict(parse_override(text) for text in self.backend_option or ())
        return {"device": self.device, "backend": find_backend(self.backend, options)}


HERE = Where()


@Parameter(name="*")
@dataclass(frozen=True)
class Planned(Where):
    """Where a plan measures a step, or the devices that it plans for instead."""

    tflops: Annotated[
        float | None,
        Parameter(
            help="Do not measure: the peak of a device in 10^12 FLOPs per second, from its data "
            "sheet, in the precision of training (dense)."
        ),
    ] = None
    utilisation: Annotated[
        float | None,
        Parameter(help="With --tflops: the share of the peak that training reaches; by default "
                  "0.4."),
    ] = None  # fmt: skip
    count: Annotated[int | None, Parameter(help="With --tflops: the number of devices.")] = None
    price: Annotated[float | None, Parameter(help="The price of a device for an hour.")] = None

    def require_used(self, *, workers: int | None, stack: int | None) -> None:
        """Raise ParibusError for an option without effect."""
        unused = {"--utilisation": self.utilisation, "--count": self.count}
        rule = "needs --tflops, the peak of a device; add it"
        if self.tflops is not None:
            unused = {"--workers": workers, "--stack": stack}
            unused |= {
                f"--{option.name.replace('_', '-')}": value
                for option in fields(Where)
                if (value := getattr(self, option.name)) != option.default
            }
            rule = "is of a measured step, and --tflops measures none; remove one of them"
        for name, value in unused.items():
            if value is not None:
                raise ParibusError(f"{name} {rule}")


PLANNED = Planned()
# The styles of words.
THEME = Theme({"good": "green", "bad": "red", "plain": "cyan", "open": "yellow"})
console = Console(highlight=False, soft_wrap=False, theme=THEME)


Json = Annotated[bool, Parameter(help="Print the same as JSON, on standard output alone.")]


@Parameter(name="*")
@dataclass(frozen=True)
class Answer:
    """How a verdict is given: the same of every verb that gives one."""

    verbose: Annotated[bool, Parameter(help="Print every test, control and caution too.")] = False
    json: Annotated[
        bool, Parameter(help="Print verdict.json in place of the card; all else goes to stderr.")
    ] = False
    markdown: Annotated[
        bool, Parameter(help="Print the card as Markdown, for a pull request; the rest to stderr.")
    ] = False
    exit_verdict: Annotated[
        bool,
        Parameter(
            help="Exit with a code for the word: 0 BETTER, 12 SAME, 14 DESCRIPTIVE, "
            "13 UNRESOLVED, 11 WORSE, 3 INVALID; of several words that of the last in this order."
        ),
    ] = False

    def __post_init__(self) -> None:
        """Leave standard output to what a program reads."""
        if self.json and self.markdown:
            raise ParibusError("--markdown and --json both say what is printed; keep one")
        if self.json or self.markdown:
            console.stderr = True


PLAIN = Answer()


def print_json(value: Any) -> None:
    """Print a value as JSON on standard output, by itself."""
    import json

    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_stamped(value: Mapping[str, Any]) -> None:
    """Print a verb's answer as JSON, with the number of its form, which is raised when a key is
    renamed, dropped or given another meaning.

    The verbs that give verdicts print verdict.json, whose number is that of all records.
    """
    from paribus.digests import plain
    from paribus.schema import stamped

    print_json(stamped(plain(value), 1))


# Spaces at the end of a line, before or after the codes that end a style.
TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)(?=\n|$)")


def show(*parts: RenderableType) -> None:
    """Print each part on lines of its own, none of which ends in a space. A `Text` is a command: it
    keeps its line, however long.
    """
    for part in parts:
        if not isinstance(part, str):
            with console.capture() as printed:
                console.print(part, soft_wrap=isinstance(part, Text) or None)
            console.file.write(TRAILING.sub(r"\1", printed.get()))
            continue
        for line in console.render_str(part).wrap(console, console.width):
            line.rstrip()
            console.print(line)


def show_path(line: str) -> None:
    """Print a line as it is, however long: paths are copied by whoever reads them."""
    console.print(line, soft_wrap=True, markup=False)
