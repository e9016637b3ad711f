"""Charts exported as CSV: of Weights & Biases, with three columns for each run, and TensorBoard.

    "Step","base-s1 - val/loss","base-s1 - val/loss__MIN","base-s1 - val/loss__MAX",...
    "100","3.6269","3.6269","3.6269",...

A chart of groups has means over runs in the same form: their least and largest value differ.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.errors import ParibusError
from paribus.readers.port import CHART_SEED_END, Run, Source, as_number, reader, split_seed
from paribus.readers.tables import read_table

BETWEEN, LEAST, MOST = " - ", "__MIN", "__MAX"  # a run and its metric; ends of a point


def _curves(names: list[str]) -> list[str]:
    """Return the columns of curves, which have their ends beside them."""
    return [name for name in names if BETWEEN in name and {name + LEAST, name + MOST} <= {*names}]


def _detects(source: Source) -> bool:
    return LEAST in source.header and BETWEEN in source.header


@reader("wandb-chart", says="a chart of Weights & Biases exported as CSV", detects=_detects)
def wandb_chart(source: Source) -> Iterator[Run]:
    """Yield a run for each that the chart shows, with its curve. Its arm is its name less what
    ends it as a seed, `base` of `base-s1` or `base seed 1`.

    Raises ParibusError for a point at the end of a curve that is a mean of several, and for two
    runs of one name.
    """
    data = read_table(source)
    names = _curves(data.column_names)
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        raise ParibusError(
            f"{source.path}: '{twice[0]}' is there twice, as two runs have one name; export the "
            "table of runs"
        )
    steps = data.column(0).to_pylist() if names else []
    runs: dict[str, Run] = {}
    for column in names:
        name, _, metric = column.rpartition(BETWEEN)
        cells = data.column(column).to_pylist()
        curve = _curve(steps, cells)
        if not curve:
            continue
        last = max(row for row, cell in enumerate(cells) if cell)
        if data.column(column + LEAST)[last] != data.column(column + MOST)[last]:
            raise ParibusError(
                f"{source.path}: '{column}' ends with a mean over runs or steps, as its {LEAST} "
                f"and {MOST} differ; export the table of runs, or the chart without groups"
            )
        run = runs.setdefault(name, Run("", facts=_facts(name)))
        run.curves[metric] = curve
    yield from (run.finish() for run in runs.values())


def _curve(steps: list[str], values: list[str]) -> list[tuple[float, float]]:
    points = [(as_number(at), as_number(value)) for at, value in zip(steps, values, strict=True)]
    return [(at, value) for at, value in points if at is not None and value is not None]


def _facts(name: str) -> dict[str, str | float]:
    arm, seed = split_seed(name, CHART_SEED_END)
    return {"run": name, "arm": arm} | ({} if seed is None else {"seed": seed})


TAGGED = re.compile(r"(?:run-)?(?P<run>.+?)-tag-(?P<tag>.+?)\.csv")


def _is_tensorboard_csv(source: Source) -> bool:
    return source.header.strip() == "Wall time,Step,Value"


@reader(
    "tensorboard-csv", says="a chart of TensorBoard exported as CSV", detects=_is_tensorboard_csv
)
def tensorboard_csv(source: Source) -> Iterator[Run]:
    """Yield the run of a file `run-RUN-tag-TAG.csv`, with the curve TAG."""
    match = TAGGED.fullmatch(source.name)
    tag = "Value" if match is None or "Value" in source.columns.scores else match["tag"]
    run = Run("", facts=_facts(match["run"]) if match else {})
    data = read_table(source)
    if not {"Step", "Value"} <= {*data.column_names}:
        raise ParibusError(f"{source.path} has no columns Step and Value")
    rows = data.num_rows - (not source.tail.endswith(b"\n"))  # the last line may be cut
    curve = _curve(*(data.column(name).to_pylist()[:rows] for name in ("Step", "Value")))
    if curve:
        run.curves[tag] = curve
        yield run.finish()
