"""The Hugging Face Trainer: `trainer_state.json`, of a run or of each of its checkpoints."""

from __future__ import annotations

import math
from collections.abc import Iterator

from paribus.errors import ParibusError
from paribus.readers.port import Run, Source, as_float, is_number, reader, seed_fact

# What is logged beside scores, by the end of its name.
COSTS = ("runtime", "per_second", "learning_rate", "grad_norm", "total_flos", "epoch", "step")


def _detects(source: Source) -> bool:
    return source.name.endswith("trainer_state.json") and b"{" in source.head


@reader("hugging-face", says="trainer_state.json of the Hugging Face Trainer", detects=_detects)
def hugging_face(source: Source) -> Iterator[Run]:
    """Yield the run: its log_history by step."""
    state = source.json()
    history = state.get("log_history") if isinstance(state, dict) else None
    if not isinstance(history, list):
        raise ParibusError(f"{source.path} has no log_history; is it whole?")
    run = Run("")
    curves: dict[str, list[tuple[float, float]]] = {}
    scores: dict[tuple[str, ...], list[str]] = {}  # by the names that an entry has
    for entry in history:
        step = entry.get("step") if isinstance(entry, dict) else None
        if not is_number(step):
            continue
        at, names = as_float(step), tuple(entry)
        if names not in scores:
            scores[names] = [name for name in names if not name.endswith(COSTS)]
        for name in scores[names]:
            if is_number(value := entry[name]):
                curves.setdefault(name, []).append((at, as_float(value)))
        if is_number(seconds := entry.get("train_runtime")):
            run.facts["train_seconds"] = as_float(seconds)
    run.curves = curves
    for name, curve in run.curves.items():
        run.scores[name] = curve[-1][1]
    for fact, key in (("steps", "global_step"), ("planned_steps", "max_steps")):
        if is_number(state.get(key)) and math.isfinite(as_float(state[key])):
            run.facts[fact] = as_float(state[key])
    for key in ("train_batch_size", "num_train_epochs", "best_metric"):
        if is_number(state.get(key)):
            run.facts[key] = as_float(state[key])
    run.facts |= seed_fact(source.path)
    if run.curves:
        yield run
