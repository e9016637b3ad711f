"""Metrics of every step by the trainer itself: columns, endpoints and how they are drawn."""

from __future__ import annotations

from collections.abc import Iterable

from paribus.drawing import Drawing
from paribus.engine.setting import OF_FLOAT16
from paribus.metric import Metric

METRICS = (
    Metric("train_loss", "final training loss", "nats/token", "lower", "steps", of_tokens=True),
    Metric("grad_norm", "final gradient norm", "L2", "neither", "steps"),
    Metric("learning_rate", "final learning rate", "", "neither", "steps", digits=6),
)
# And where something else than the cross-entropy is learned from.
OBJECTIVE = Metric(
    "train_objective", "final objective", "nats/token", "neither", "steps", of_tokens=True
)
# And in float16: the scale of the step, and how many steps were skipped so far.
LOSS_SCALING = (
    Metric(OF_FLOAT16[0], "final loss scale", "", "neither", "steps", digits=0),
    Metric(OF_FLOAT16[1], "skipped steps", "steps", "lower", "steps", digits=1),
)
DRAWINGS = (
    Drawing(
        "train_loss",
        "trend",
        "Training loss",
        "training loss (nats/token)",
        "stability",
        in_text=True,
    ),
    Drawing(
        "train_objective", "trend", "What is learned from", "objective (nats/token)", "stability"
    ),
    Drawing(
        "grad_norm",
        "trend",
        "Gradient norm before clipping",
        "total gradient norm (L2)",
        "stability",
        in_text=True,
    ),
    Drawing("skipped_steps", "trend", "Steps that overflowed", "skipped steps so far", "stability"),
    Drawing("loss_scale", "trend", "Loss scale", "scale of the loss", "stability"),
)
# Their columns, with units.
COLUMNS = {metric.name: metric.unit or "1" for metric in METRICS}


BATCH_SIZE = "batch_size"  # of each step, where it grows
AUXILIARY = "auxiliary_"  # before the name of an auxiliary loss


def auxiliary_drawing(name: str) -> Drawing:
    """Return how an auxiliary loss is drawn."""
    title = f"Auxiliary loss: {name.replace('_', ' ')}"
    return Drawing(f"{AUXILIARY}{name}", "trend", title, f"{name} (nats)", "stability")


def step_columns(
    learns_cross_entropy: bool,
    *,
    scales_loss: bool,
    scheduled: Iterable[str],
    auxiliaries: Iterable[str] = (),
    grows: bool = False,
) -> dict[str, str]:
    """Return {column: unit} of what every step measures, in order; probes add their own."""
    more = () if learns_cross_entropy else (OBJECTIVE,)
    more += LOSS_SCALING if scales_loss else ()
    columns = COLUMNS | {metric.name: metric.unit or "1" for metric in more}
    columns |= dict.fromkeys(scheduled, "1")
    columns |= {BATCH_SIZE: "windows"} if grows else {}
    return columns | {f"{AUXILIARY}{name}": "nats" for name in auxiliaries}
