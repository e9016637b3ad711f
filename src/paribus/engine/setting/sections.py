"""Study sections shared by all arms (probes, evaluation, tasks), and values derived from them."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from paribus.engine.setting.data import Tokens
from paribus.study.base import MOST_ENTRIES, MOST_STEPS, Seed, Spec
from paribus.study.load import parse_study
from paribus.study.study import Study

Paths = Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)]
Every = Annotated[int, Field(ge=0, le=MOST_STEPS)]
CurveEvery = Annotated[Every | Literal["tenth"] | None, AfterValidator(lambda every: every or None)]
Shots = Annotated[int, Field(ge=0, le=1_000)]


class Probes(Spec):
    """Diagnostics measured during training."""

    own: Paths = ()
    """Custom probes, by import path: `file.py:name`."""
    every: Annotated[dict[str, Every], Field(max_length=MOST_ENTRIES)] = Field(default_factory=dict)
    """Number of steps between measurements, keyed by probe; 0 turns a probe off. Other probes keep
    their declared interval."""


class Evaluation(Spec):
    """Evaluation on held-out text: measures after training, and a loss curve during training."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products in evaluation; everything computed from logits is float32.
    bfloat16 takes about half the time on hardware that supports it, and changes losses by rounding.
    """
    own: Paths = ()
    """Custom measures, by import path: `file.py:name`."""
    overlap: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Always 0: held-out windows do not overlap."""
    every: CurveEvery = "tenth"
    """Number of steps between points of the held-out loss curve, which also has points before the
    first step and after the last. "tenth" is a tenth of the shortest arm's steps; 0 turns the curve
    off."""
    curve_tokens: Tokens = 2**13
    """Number of validation tokens, from the start, that each point of the curve is measured on."""
    target: Annotated[float, Field(gt=0)] | None = None
    """Target loss in nats per token; every trial measures the tokens, FLOPs and seconds to reach
    it. If None, the two arms of a pair are compared at a loss that both reach."""


class Tasks(Spec):
    """Zero- and few-shot tasks, run with lm_eval in every trial.

    Macro accuracy is the mean accuracy over tasks. `paribus evaluate` runs more tasks on finished
    trials."""

    own: Paths = ()
    """Custom tasks, by import path: `file.py:name`."""
    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Tasks generated from the validation text; None means all that the text and window allow."""
    standard: Paths = ()
    """Tasks of lm_eval, such as "lambada_openai" or "hellaswag"; "standard" means all seven, and
    "piqa:t0" means PIQA in all T0 templates. They are registered with their version and a digest of
    their data."""
    standard_items: Annotated[int, Field(ge=1)] | None = None
    """Number of questions per task of lm_eval; None means all. Unknown characters in these
    questions are replaced."""
    standard_data: str | None = None
    """Folder with copies of the hub's data set repositories, under their names; None downloads the
    data sets, or uses the hub's cache."""
    shots: Annotated[
        tuple[Shots, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)
    ] = (0, 3)
    """Numbers of solved examples before each question. A task is skipped with a number of examples
    that does not fit into the window."""
    items: Annotated[int, Field(ge=1, le=500)] = 48
    """Number of questions per generated task."""
    seed: Seed = 0
    """Seed for drawing the questions of generated tasks."""
    unknown: Literal["skip", "replace"] = "skip"
    """Skip questions with characters outside the vocabulary, or replace these characters."""


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return the numbers of steps after which the held-out loss of `arm` is measured.

    These are 0, multiples of `evaluation.every`, and the last step, or () if the study measures no
    curve. With a growing batch, `evaluation.every` counts steps of the final size, so that arms are
    measured at equal tokens.
    """
    every, setting = study.evaluation.every, study.setting(arm)
    if every is None:
        return ()
    if every == "tenth":
        every = max(1, min(study.setting(name).budget_iterations for name in study.arms) // 10)
    size, last = setting.training.largest_batch, setting.iterations
    regular = range(0, setting.budget_iterations, every)
    return tuple(dict.fromkeys([*(setting.step_with(k * size) for k in regular), last]))


def is_open(study: Study) -> bool:
    """Return whether the precision is "auto", which must be resolved before training."""
    return study.training.precision == "auto"


def with_precision(study: Study, precision: str) -> Study:
    """Return `study` with the precision "auto" resolved to `precision`.

    Raises ParibusError if no difference between arms remains.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
