"""nanochat: the standard output of training, and the table that runs/miniseries.sh writes.

Step 00250 | Validation bpb: 0.745036
Step 07226 | CORE metric: 0.2602
step 00010/07226 (0.14%) | loss: 8.123456 | lrm: 1.00 | dt: ... | total time: 0.50m
Minimum validation bpb: 0.745036
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, csv_rows, reader, seed_in

NUMBER = rb"([-+.\w]+)"
MEASURED = re.compile(rb"^Step (\d{1,9}) \| ([A-Za-z][\w@ -]{0,40}): " + NUMBER + rb"\s", re.M)
TRAINED = re.compile(
    rb"^step (\d{1,9})/(\d{1,9}) \([^)\n]*\) \| loss: "
    + NUMBER
    + rb" (?:[^\n]*total time: ([.\d]+)m)?",
    re.M,
)
TOTAL_MINUTES = re.compile(rb"^Total training time: ([.\d]+)m\s", re.M)
LEAST_BITS = re.compile(rb"^Minimum validation bpb: " + NUMBER + rb"\s", re.M)
WORDS = (b" | loss: ", b" | Validation ", b" | CORE metric: ")
NAMES = {"validation_bpb": "val_bpb", "validation_loss": "val_loss"}


def _detects(source: Source) -> bool:
    return any(map(source.has, WORDS)) and (source.matches(MEASURED) or source.matches(TRAINED))


@reader("nanochat", says="standard output of base_train and mid_train", detects=_detects)
def nanochat(source: Source) -> Iterator[Run]:
    """Yield the run of a log: what it measured, and the training loss by step."""
    run = Run("")
    whole = True
    for piece in source.pieces():
        whole = piece.endswith(b"\n")
        for step, name, value in MEASURED.findall(piece):
            label = re.sub(r"\W+", "_", name.decode().lower())
            _add(run, NAMES.get(label, label), step, value)
        for step, planned, value, minutes in TRAINED.findall(piece):
            _add(run, "train_loss", step, value)
            run.facts["planned_steps"] = float(planned)
            if minutes and (number := as_number(minutes)) is not None:
                run.facts["train_seconds"] = number * 60
        if minutes := TOTAL_MINUTES.search(piece):
            run.facts["train_seconds"] = (as_number(minutes[1]) or 0.0) * 60
        if least := LEAST_BITS.search(piece):
            run.scores["min_val_bpb"] = as_number(least[1]) or 0.0
    if not run.curves:
        return
    if not whole:
        run.facts["cut"] = "the last line has no end"
    if (seed := seed_in(source.path)) is not None:
        run.facts["seed"] = seed
    yield run


def _add(run: Run, name: str, step: bytes, value: bytes) -> None:
    number = as_number(value)
    if number is None:
        return
    run.curves.setdefault(name, []).append((float(step), number))
    run.scores[name] = number
    run.facts["steps"] = max(float(step), float(run.facts.get("steps", 0.0)))


COLUMNS = ("depth", "num_iterations", "val_bpb", "core_score")


def _is_miniseries(source: Source) -> bool:
    return set(COLUMNS) <= set(source.header.split(","))


@reader("nanochat-miniseries", says="the CSV of runs/miniseries.sh", detects=_is_miniseries)
def nanochat_miniseries(source: Source) -> Iterator[Run]:
    """Yield a run for each depth, which is its arm."""
    for row in csv_rows(source):
        numbers = {key: as_number(text) for key, text in row.items()}
        facts: dict[str, str | float] = {"arm": f"d{row['depth']}"}
        names = {"num_iterations": "steps", "train_time_sec": "train_seconds"}
        for key, value in numbers.items():
            if value is not None and key not in ("val_bpb", "core_score"):
                facts[names.get(key, key)] = value
        scores = {}
        if (bits := numbers["val_bpb"]) is not None:
            scores["val_bpb"] = bits
        if core := numbers["core_score"]:  # 0.0 is written where it was not evaluated
            scores["core_metric"] = core
        if scores:
            yield Run("", scores=scores, facts=facts)
