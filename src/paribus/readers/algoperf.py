"""AlgoPerf: `study_0/<workload>/trial_1/eval_measurements.csv`, a row for each evaluation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath

from paribus.readers.port import Run, Source, as_number, csv_rows, reader

STEP, SECONDS = "global_step", "accumulated_submission_time"


def _detects(source: Source) -> bool:
    return {STEP, SECONDS} <= set(source.header.split(","))


@reader("algoperf", says="eval_measurements.csv of a trial", detects=_detects)
def algoperf(source: Source) -> Iterator[Run]:
    """Yield the trial: its scores by step, and the submission's own time as training time.

    Where it lies says what it is of: the arm is the submission's folder, above `study_<i>`.
    """
    run = Run("", facts=_place(source.path))
    for row in csv_rows(source, (STEP, SECONDS)):
        step, seconds = as_number(row[STEP]), as_number(row[SECONDS])
        if step is None or seconds is None:
            continue
        run.facts |= {"steps": step, "train_seconds": seconds}
        run.curves.setdefault("train_seconds", []).append((step, seconds))
        for name, text in row.items():
            value = as_number(text)
            if "/" in name and not name.endswith("/num_examples") and value is not None:
                run.curves.setdefault(name, []).append((step, value))
                run.scores[name] = value
    if source.is_cut:
        run.facts["cut"] = "the last line has no end"
    if run.scores:
        yield run


def _place(path: str) -> dict[str, str | float]:
    facts: dict[str, str | float] = {}
    parts = PurePath(path).parts
    for at, part in enumerate(parts):
        name, _, number = part.rpartition("_")
        if name in ("study", "trial") and number.isdecimal():
            facts[name] = float(number)
            if name == "study" and at > 0:
                facts["arm"] = parts[at - 1]
            if name == "trial" and at > 0:
                facts["workload"] = parts[at - 1]
    return facts
