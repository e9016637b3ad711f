"""nanochat: the standard output of training.

    Step 00250 | Validation bpb: 0.745036
    Step 07226 | CORE metric: 0.2602
    step 00010/07226 (0.14%) | loss: 8.123456 | lrm: 1.00 | dt: ... | total time: 0.50m
    Minimum validation bpb: 0.745036

A log of several stages (base, mid, SFT), each from step 0 on, has a run for each.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from paribus.readers.port import Run, Source, as_number, reader, seed_fact

NUMBER = rb"([-+.\w]+)"
LINE = re.compile(
    rb"^(?:([Ss])tep (\d{1,9})(?:/(\d{1,9}))? (?:\([^)\n]*\) )?(\| [^\n]*)"
    rb"|Total training time: ([.\d]+)m\r?"
    rb"|Minimum validation bpb: ([-+.\w]+)\r?)\n",
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
    # With this summary it is a log of autoresearch, whose score is in the summary.
    named = any(map(source.has, WORDS)) and not source.has(b"---\nval_bpb: ")
    return named and source.matches(LOGGED)


@reader("nanochat", says="standard output of its training scripts", detects=_detects)
def nanochat(source: Source) -> Iterator[Run]:
    """Yield the stages of a log: what each measured, and its training loss by step."""
    stage = 1
    run = _new(source, stage)
    for piece in source.pieces():
        for kind, number, planned, values, minutes, least in LINE.findall(piece):
            if minutes:
                run.facts["train_seconds"] = (as_number(minutes) or 0.0) * 60
            elif least:
                if (value := as_number(least)) is not None:
                    run.scores["min_val_bpb"] = value
            else:
                step = float(number)
                if step == 0 and _last(run):
                    yield _finished(run)
                    stage += 1
                    run = _new(source, stage)
                _add(run, step, kind, values)
                if planned:
                    run.facts["planned_steps"] = float(planned)
    if run.curves:
        if source.is_cut:
            run.facts["cut"] = "the last line has no end"
        yield _finished(run)


def _new(source: Source, stage: int) -> Run:
    return Run("", facts={"stage": float(stage)} | seed_fact(source.path))


def _last(run: Run) -> float:
    return max((curve[-1][0] for curve in run.curves.values()), default=0.0)


def _finished(run: Run) -> Run:
    run.facts["steps"] = _last(run)
    for name, curve in run.curves.items():
        if name != "train_seconds":
            run.scores[name] = curve[-1][1]
    if seconds := run.curves.get("train_seconds"):
        run.facts.setdefault("train_seconds", seconds[-1][1])
    return run


def _add(run: Run, step: float, kind: bytes, values: bytes) -> None:
    if kind == b"s":
        pairs = [("train_loss", match[1])] if (match := LOSS.match(values)) else []
        if (minutes := MINUTES.search(values)) and (time := as_number(minutes[1])) is not None:
            run.curves.setdefault("train_seconds", []).append((step, time * 60))
    else:
        labels = VALUE.findall(values)
        pairs = [(re.sub(r"\W+", "_", name.decode().lower()), text) for name, text in labels]
    for label, text in pairs:
        number = as_number(text)
        if number is not None and label not in NO_SCORES:
            run.curves.setdefault(NAMES.get(label, label), []).append((step, number))
