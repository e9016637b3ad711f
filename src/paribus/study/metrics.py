"""What can be compared: every endpoint's name, unit and direction, in one place."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Metric:
    """One number per trial.

    `record` is where it is read: "evaluation" (held-out, at the end), or the last value of a column
    of "steps" or "probes"; `column` is that column where it has another name.
    """

    name: str
    label: str
    unit: str
    better: Literal["lower", "higher", "neither"]
    record: Literal["evaluation", "steps", "probes"]
    digits: int = 4
    column: str = ""


METRICS: dict[str, Metric] = {
    metric.name: metric
    for metric in (
        Metric("validation_loss", "validation loss", "nats/token", "lower", "evaluation"),
        Metric("validation_perplexity", "validation perplexity", "", "lower", "evaluation", 2),
        Metric("validation_accuracy", "next-token accuracy", "share", "higher", "evaluation"),
        Metric("bits_per_character", "bits per character", "bits/character", "lower", "evaluation"),
        Metric("calibration_error", "calibration error", "share", "lower", "evaluation"),
        Metric(
            "calibration_error_equal_mass",
            "calibration error, bins of equal mass",
            "share",
            "lower",
            "evaluation",
        ),
        Metric("brier_score", "Brier score", "", "lower", "evaluation"),
        Metric("best_temperature", "best softmax temperature", "", "neither", "evaluation", 3),
        Metric("macro_accuracy", "macro accuracy over tasks", "share", "higher", "evaluation"),
        Metric(
            "macro_accuracy_normalised",
            "macro accuracy above chance",
            "share",
            "higher",
            "evaluation",
        ),
        Metric(
            "choice_calibration_error",
            "calibration error of choices",
            "share",
            "lower",
            "evaluation",
        ),
        Metric("choice_brier_score", "Brier score of choices", "", "lower", "evaluation"),
        Metric("train_loss", "final training loss", "nats/token", "lower", "steps"),
        Metric("grad_norm", "final gradient norm", "", "neither", "steps"),
        Metric(
            "embedding_norm",
            "norm entering block 1",
            "L2",
            "neither",
            "probes",
            2,
            "embedding_norm/all/mean",
        ),
    )
}
