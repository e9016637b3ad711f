"""What several verbs take, and where they print to."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter
from rich.console import Console

from paribus.execution import Device

StudyName = Annotated[
    str, Parameter(help="A shipped name (see `paribus studies`), or the path of a TOML file.")
]
Folder = Annotated[Path, Parameter(help="The results folder of a study.")]
Overrides = Annotated[
    list[str] | None,
    Parameter(name="--set", negative=(), help="Override a key of the study: key=value."),
]
ResultsPath = Annotated[
    Path | None, Parameter(name="--results", help="The results folder; by default results/<study>.")
]
Workers = Annotated[
    int | None, Parameter(help="Worker processes; by default one per core, or one per GPU.")
]
StackSize = Annotated[
    int | None,
    Parameter(help="Trials side by side in a worker; by default 1, on a GPU all that fit."),
]
Where = Annotated[Device, Parameter(help="Where to train.")]
Step = Annotated[
    int | None,
    Parameter(help="Weights kept after this step (training.keep), instead of the last."),
]
AverageLast = Annotated[
    int, Parameter(help="Take the mean of so many kept sets of weights, up to that one.")
]
Eager = Annotated[
    bool,
    Parameter(
        negative=(),
        help="Launch a GPU's kernels one by one: slower, for modules that read a tensor's value.",
    ),
]

Trust = Annotated[
    bool,
    Parameter(negative=(), help="Run the custom code that a results folder names, once read."),
]

console = Console(highlight=False, soft_wrap=False)
