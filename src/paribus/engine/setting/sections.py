"""Sections that are the same for all arms (probes, evaluation, tasks), and values derived from a
study and its settings."""

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
    """Measurements while training."""

    own: Paths = ()
    """Custom probes, by import path: `file.py:name`."""
    every: Annotated[dict[str, Every], Field(max_length=MOST_ENTRIES)] = Field(default_factory=dict)
    """Steps between two measurements, by name of the probe; 0 turns it off. Other probes keep their
    declared interval."""


class Evaluation(Spec):
    """Measurements on held-out text after training, and of the loss during training."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products in evaluation; everything computed from logits is float32.
    bfloat16 takes about half the time on processors that have it, and changes losses by rounding.
    """
    own: Paths = ()
    """Custom measures, by import path: `file.py:name`."""
    overlap: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Always 0: held-out windows do not overlap."""
    every: CurveEvery = "tenth"
    """Steps between two points of the held-out loss curve, which has a point before the first step
    and after the last; "tenth" is a tenth of the shortest arm's steps. 0 measures no curve."""
    curve_tokens: Tokens = 2**13
    """Tokens of the validation text, from its start, that each point is measured on."""
    target: Annotated[float, Field(gt=0)] | None = None
    """A loss in nats per token. Tokens, FLOPs and seconds to reach it are measured in every trial.
    None compares arms at the loss that both of a pair reach."""


class Tasks(Spec):
    """Zero- and few-shot tasks, run through lm_eval in every trial; macro accuracy is the mean.

    `paribus evaluate` runs more tasks on finished trials."""

    own: Paths = ()
    """Custom tasks, by import path: `file.py:name`."""
    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Tasks made from the validation text. None: all that the text and the window allow."""
    standard: Paths = ()
    """Tasks of lm_eval, such as "lambada_openai" or "hellaswag"; "standard" is all seven, "piqa:t0"
    uses a template of T0. They are registered with version and digest of their data."""
    standard_items: Annotated[int, Field(ge=1)] | None = None
    """Number of questions of each of these; None is all. Unknown characters are replaced."""
    standard_data: str | None = None
    """A folder with copies of the hub's data set repositories, by their names; None downloads them,
    or uses the hub's cache."""
    shots: Annotated[
        tuple[Shots, ...], Field(strict=False, min_length=1, max_length=MOST_ENTRIES)
    ] = (0, 3)
    """Solved examples before each question; tasks whose questions then do not fit are skipped."""
    items: Annotated[int, Field(ge=1, le=500)] = 48
    """Questions of each task made from the text."""
    seed: Seed = 0
    """Seed of the questions."""
    unknown: Literal["skip", "replace"] = "skip"
    """Skip questions with characters outside the vocabulary, or replace these characters."""


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return the numbers of steps after which the held-out loss of `arm` is measured.

    These are 0, every `evaluation.every` steps, and the last. With a growing batch,
    `evaluation.every` counts steps of the last size, so that arms are measured at equal tokens.
    Empty if the study measures no curve.
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
    """Return True if the precision is not settled yet; such a study is not trained."""
    return study.training.precision == "auto"


def with_precision(study: Study, precision: str) -> Study:
    """Return `study` with `precision` instead of "auto".

    Raises ParibusError if no difference between arms remains.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
