"""nanochat: the standard output of training, and the table that runs/miniseries.sh writes.

    Step 00250 | Validation bpb: 0.745036
    Step 07226 | CORE metric: 0.2602
    step 00010/07226 (0.14%) | loss: 8.123456 | lrm: 1.00 | dt: ... | total time: 0.50m
    Minimum validation bpb: 0.745036

A log of several stages (base, mid, SFT), each from step 0 on, has a run for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, csv_rows, reader, seed_in

NUMBER = rb"([-+.\w]+)"
LINE = re.compile(
    rb"^(?:(?P<kind>[Ss])tep (?P<step>\d{1,9})(?:/(?P<planned>\d{1,9}))? "
    rb"(?:\([^)\n]*\) )?(?P<values>\| [^\n]*)"
    rb"|Total training time: (?P<minutes>[.\d]+)m\r?"
    rb"|Minimum validation bpb: (?P<least>[-+.\w]+)\r?)\n",
    re.MULTILINE,
)
VALUE = re.compile(rb"[|,] ([A-Za-z][\w@ -]{0,40}): " + NUMBER + rb"(?=[\s,|]|$)")
LOSS = re.compile(rb"\| loss: " + NUMBER)
MINUTES = re.compile(rb"total time: ([.\d]+)m")
LOGGED = re.compile(rb"^[Ss]tep \d+[^|\n]{0,40}\| (?:loss|Validation|CORE)", re.MULTILINE)
WORDS = (b"| loss: ", b"| Validation ", b"| CORE metric: ")
NAMES = {
    "validation_bpb": "val_bpb",
    "validation_loss": "val_loss",
    "training_loss": "train_loss",
}
NO_SCORES = ("lrm", "num_tokens")


def _detects(source: Source) -> bool:
    # With this summary it is one of autoresearch, whose trainer is made from it.
    named = any(map(source.has, WORDS)) and not source.has(b"---\nval_bpb: ")
    return named and source.matches(LOGGED)


@reader("nanochat", says="standard output of its training scripts", detects=_detects)
def nanochat(source: Source) -> Iterator[Run]:
    """Yield the stages of a log: what each measured, and its training loss by step."""
    stage = 1
    run = _new(source, stage)
    whole = True
    for piece in source.pieces():
        whole = piece.endswith(b"\n")
        for line in LINE.finditer(piece):
            if line["minutes"]:
                run.facts["train_seconds"] = (as_number(line["minutes"]) or 0.0) * 60
            elif line["least"]:
                if (least := as_number(line["least"])) is not None:
                    run.scores["min_val_bpb"] = least
            else:
                step = float(line["step"])
                if step == 0 and run.facts.get("steps", 0):
                    yield run
                    stage += 1
                    run = _new(source, stage)
                _add(run, step, line)
    if run.curves:
        if not whole:
            run.facts["cut"] = "the last line has no end"
        yield run


def _new(source: Source, stage: int) -> Run:
    seed = seed_in(source.path)
    return Run("", facts={"stage": float(stage)} | ({} if seed is None else {"seed": seed}))


def _add(run: Run, step: float, line: re.Match[bytes]) -> None:
    if line["planned"]:
        run.facts["planned_steps"] = float(line["planned"])
    if line["kind"] == b"s":
        pairs = [("train_loss", match[1]) for match in LOSS.finditer(line["values"])]
        if minutes := MINUTES.search(line["values"]):
            run.facts["train_seconds"] = (as_number(minutes[1]) or 0.0) * 60
    else:
        labels = VALUE.findall(line["values"])
        pairs = [(re.sub(r"\W+", "_", name.decode().lower()), text) for name, text in labels]
    for label, text in pairs:
        number = as_number(text)
        if number is not None and label not in NO_SCORES:
            name = NAMES.get(label, label)
            run.curves.setdefault(name, []).append((step, number))
            run.scores[name] = number
            run.facts["steps"] = max(step, float(run.facts.get("steps", 0.0)))


COLUMNS = ("depth", "num_iterations", "val_bpb", "core_score")


def _is_miniseries(source: Source) -> bool:
    return set(COLUMNS) <= set(source.header.split(","))


@reader("nanochat-miniseries", says="the CSV of runs/miniseries.sh", detects=_is_miniseries)
def nanochat_miniseries(source: Source) -> Iterator[Run]:
    """Yield a run for each depth, which is its arm."""
    for row in csv_rows(source, COLUMNS):
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
