"""parameter-golf: training logs, `train_seed42.log`, and `submission.json`.

A log has validations by step, and in the end labelled results: of the model as it is, quantized,
evaluated with a sliding window. The last one is what is submitted.

    step:1000/20000 val_loss:2.3190 val_bpb:1.3734 train_time:43607ms step_avg:43.61ms
    4000/20000 val_loss: 2.5941 val_bpb: 1.1274
    final_int8_zlib_roundtrip_exact val_loss:2.07269931 val_bpb:1.22436570
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from paribus.errors import ParibusError
from paribus.readers.port import (
    Run,
    Source,
    as_float,
    as_number,
    is_number,
    lines_with,
    reader,
    seed_fact,
)

NUMBER = rb"([-+.\w]+)"
PAIRS = rb"val_loss[:=] ?" + NUMBER + rb" val_bpb[:=] ?" + NUMBER + rb"(?=\s)"
BY_STEP = re.compile(
    rb"^(?:step:)?(\d{1,12})/(\d{1,12}) " + PAIRS + rb"(?: train_time:([.\d]+)ms)?", re.MULTILINE
)
LABELLED = re.compile(rb"^([A-Za-z][\w +-]{0,80}?)(?::done)? " + PAIRS, re.MULTILINE)
SEED = re.compile(rb"^seed: ?(\d{1,9})\s", re.MULTILINE)


def _detects(source: Source) -> bool:
    return source.has(b" val_bpb") and (source.matches(BY_STEP) or source.matches(LABELLED))


@reader("parameter-golf", says="training logs with val_bpb and labelled results", detects=_detects)
def parameter_golf(source: Source) -> Iterator[Run]:
    """Yield the run of a training log; its scores are the last result and each labelled one."""
    run = Run("")
    for piece in source.pieces():
        if seed := SEED.search(piece):
            run.facts["seed"] = float(seed[1])
        for line in lines_with(piece, b"val_bpb"):
            if match := BY_STEP.match(line):
                _add(run, *match.groups())
            elif match := LABELLED.match(line):
                label = match[1].decode()
                for name, text in (("val_loss", match[2]), ("val_bpb", match[3])):
                    if (value := as_number(text)) is not None:
                        run.scores[name] = run.scores[f"{label}/{name}"] = value
                        run.facts["result"] = label
    if not run.scores:
        return
    if source.is_cut:
        run.facts["cut"] = "the last line has no end"
    if "result" not in run.facts:
        run.facts["unfinished"] = "no result after training"
    if "seed" not in run.facts:
        run.facts |= seed_fact(source.path)
    yield run


def _add(
    run: Run, step: bytes, planned: bytes, loss: bytes, bpb: bytes, time: bytes | None
) -> None:
    run.facts |= {"planned_steps": float(planned), "steps": float(step)}
    if time is not None and (seconds := as_number(time)) is not None:
        run.facts["train_seconds"] = seconds / 1000
        run.curves.setdefault("train_seconds", []).append((float(step), seconds / 1000))
    for name, text in (("val_loss", loss), ("val_bpb", bpb)):
        if (value := as_number(text)) is not None:
            run.curves.setdefault(name, []).append((float(step), value))
            run.scores[name] = value


def _is_submission(source: Source) -> bool:
    return source.name == "submission.json" and b"bpb" in source.head


@reader(
    "parameter-golf-submission",
    says="submission.json, its results by seed where it has them",
    detects=_is_submission,
)
def parameter_golf_submission(source: Source) -> Iterator[Run]:
    """Yield a run for each seed of a submission, or the one run that it reports."""
    about = source.json()
    if not isinstance(about, dict):
        raise ParibusError(f"{source.path} is no submission: a JSON object is expected")
    facts: dict[str, str | float] = {
        key: about[key] for key in ("name", "author", "date") if isinstance(about.get(key), str)
    }
    seeds = about.get("seed_results", about.get("seeds"))
    if isinstance(seeds, dict):
        for seed, result in seeds.items():
            scores = _scores(result)
            if scores and (number := as_number(str(seed))) is not None:
                yield Run("", scores=scores, facts={**facts, "seed": number})
        return
    if isinstance(seeds, list) and len(seeds) > 1:
        values = about.get("seed_scores")
        if not isinstance(values, list) or len(values) != len(seeds):
            raise ParibusError(
                f"{source.path} has a mean over {len(seeds)} seeds and no result of each"
            )
        for seed, value in zip(seeds, values, strict=True):
            if is_number(seed) and is_number(value):
                yield Run(
                    "", scores={"val_bpb": as_float(value)}, facts={**facts, "seed": as_float(seed)}
                )
        return
    if scores := _scores(about):
        seed = about.get("seed")
        yield Run(
            "", scores=scores, facts=facts | ({"seed": as_float(seed)} if is_number(seed) else {})
        )


def _scores(result: Any) -> dict[str, float]:
    if not isinstance(result, dict):
        return {}
    return {
        name: as_float(value)
        for name, value in result.items()
        if ("val_" in name or "bpb" in name) and is_number(value) and not name.endswith("_std")
    }
