"""Charts exported as CSV: of Weights & Biases, with three columns for each run, and TensorBoard.

    "Step","base-s1 - val/loss","base-s1 - val/loss__MIN","base-s1 - val/loss__MAX",...
    "100","3.6269","3.6269","3.6269",...

A chart of groups has means over runs in the same form: their least and largest value differ.
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterator

from paribus.errors import ParibusError
from paribus.readers.port import Run, Source, as_number, csv_rows, reader

BETWEEN, LEAST, MOST = " - ", "__MIN", "__MAX"  # a run and its metric; ends of a point
SEED = re.compile(r"[-_ ,./]*\b(?:seed|s)[-_= ]?(\d{1,9})$", re.IGNORECASE)


def _columns(source: Source) -> list[str]:
    """Return the columns that have ends beside them."""
    try:
        header = [name.strip() for name in next(csv.reader([source.header]), [])]
    except csv.Error:
        return []
    columns = set(header)
    return [one for one in header if BETWEEN in one and {one + LEAST, one + MOST} <= columns]


def _detects(source: Source) -> bool:
    return LEAST in source.header and bool(_columns(source))


@reader("wandb-chart", says="a chart of Weights & Biases exported as CSV", detects=_detects)
def wandb_chart(source: Source) -> Iterator[Run]:
    """Yield a run for each that the chart shows, with its curve. Its arm is its name less what
    ends it as a seed, `base` of `base-s1` or `base seed 1`.

    Raises ParibusError for a point at the end of a curve that is a mean of several, and for two
    runs of one name.
    """
    columns = _columns(source)
    if twice := [one for one in dict.fromkeys(columns) if columns.count(one) > 1]:
        raise ParibusError(
            f"{source.path}: '{twice[0]}' is there twice, as two runs have one name; export the "
            "table of runs"
        )
    rows = list(csv_rows(source, columns))
    runs: dict[str, Run] = {}
    for column in columns:
        name, _, metric = column.rpartition(BETWEEN)
        curve, spread = [], False
        for row in rows:
            step, value = as_number(next(iter(row.values()))), as_number(row[column])
            if step is not None and value is not None:
                curve.append((step, value))
                spread = row[column + LEAST] != row[column + MOST]
        if spread:
            raise ParibusError(
                f"{source.path}: '{column}' ends with a mean over runs or steps, as its {LEAST} "
                f"and {MOST} differ; export the table of runs, or the chart without groups"
            )
        if curve:
            run = runs.setdefault(name, Run("", facts=_facts(name)))
            run.curves[metric], run.scores[metric] = curve, curve[-1][1]
    yield from runs.values()


def _facts(name: str) -> dict[str, str | float]:
    match = SEED.search(name)
    arm = name[: match.start()] if match else name
    facts: dict[str, str | float] = {"run": name, "arm": arm or name}
    return facts | ({"seed": float(match[1])} if match else {})


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
    points = [
        (as_number(row["Step"]), as_number(row["Value"]))
        for row in csv_rows(source, ("Step", "Value"))
    ]
    curve = [(step, value) for step, value in points if step is not None and value is not None]
    if curve:
        run.curves[tag], run.scores[tag] = curve, curve[-1][1]
        run.facts["steps"] = curve[-1][0]
        yield run
