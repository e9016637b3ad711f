"""Metrics that the trainer records at every step, with their columns and figures."""

from __future__ import annotations

from collections.abc import Iterable

from paribus.drawing import Drawing
from paribus.engine.setting import Ramp, Training
from paribus.metric import Metric

METRICS = (
    Metric("train_loss", "final training loss", "nats/token", "lower", "steps", of_tokens=True),
    Metric("grad_norm", "final gradient norm", "L2", "neither", "steps"),
    Metric("learning_rate", "final learning rate", "", "neither", "steps", digits=6),
)
# Measured only if the objective differs from the plain cross-entropy.
OBJECTIVE = Metric(
    "train_objective", "final objective", "nats/token", "neither", "steps", of_tokens=True
)


def _trend(column: str, title: str, axis: str, *, in_text: bool = False) -> Drawing:
    return Drawing(column, "trend", title, axis, "stability", in_text=in_text)


DRAWINGS = (
    _trend("train_loss", "Training loss", "training loss (nats/token)", in_text=True),
    _trend("train_objective", "Training objective", "objective (nats/token)"),
    _trend("grad_norm", "Gradient norm before clipping", "total gradient norm (L2)", in_text=True),
)
COLUMNS = {metric.name: metric.unit or "1" for metric in METRICS}  # {column: unit}
BATCH_SIZE = "batch_size"  # column with each step's batch size, if it grows
AUXILIARY = "auxiliary_"  # prefix of the column of an auxiliary loss


def auxiliary_drawing(name: str) -> Drawing:
    """Return a line plot specification for an auxiliary loss over training."""
    title = f"Auxiliary loss: {name.replace('_', ' ')}"
    return _trend(f"{AUXILIARY}{name}", title, f"{name} (nats)")


def step_columns(
    training: Training, auxiliaries: Iterable[str], *, is_plain: bool
) -> dict[str, str]:
    """Return the columns that the trainer records at every step, as {column: unit}.

    Args:
        auxiliaries: names of auxiliary losses.
        is_plain: whether the training loss is the plain cross-entropy.
    """
    columns, names = dict(COLUMNS), tuple(auxiliaries)
    if names or not is_plain:
        columns[OBJECTIVE.name] = OBJECTIVE.unit
    if isinstance(training.batch_size, Ramp):
        columns[BATCH_SIZE] = "windows"
    return columns | {f"{AUXILIARY}{name}": "nats" for name in names}
