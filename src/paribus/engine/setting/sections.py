"""Study sections shared by all arms: probes, evaluation and tasks."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from paribus.engine.setting.data import Tokens
from paribus.study.base import MOST_STEPS, Seed, Spec
from paribus.study.load import parse_study
from paribus.study.study import Study

Paths = Annotated[tuple[str, ...], Field(strict=False)]
Every = Annotated[int, Field(ge=0, le=MOST_STEPS)]
CurveEvery = Annotated[Every | Literal["tenth"] | None, AfterValidator(lambda every: every or None)]
Shots = Annotated[int, Field(ge=0, le=1_000)]


class Probes(Spec):
    """Diagnostics recorded during training."""

    own: Paths = ()
    """Import paths of custom probes, `file.py:name`."""
    every: dict[str, Every] = Field(default_factory=dict)
    """Number of steps between measurements, keyed by probe; 0 disables a probe. Probes that are not
    listed keep their default interval."""


class Evaluation(Spec):
    """Evaluation on held-out text, with metrics after training and a loss curve during training."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Precision of matrix products in evaluation; metrics are computed in float32. bfloat16 takes
    about half the time on hardware that supports it, but adds rounding errors."""
    own: Paths = ()
    """Import paths of custom metrics, `file.py:name`."""
    overlap: Annotated[float, Field(ge=0, le=0)] = 0.0
    """Overlap of held-out windows, which is always 0."""
    every: CurveEvery = "tenth"
    """Number of steps between points of the held-out loss curve, which also has points before the
    first step and after the last. "tenth" means a tenth of the shortest arm's steps; 0 disables the
    curve."""
    curve_tokens: Tokens = 2**13
    """Number of leading validation tokens on which each point of the curve is measured."""
    target: Annotated[float, Field(gt=0)] | None = None
    """Target loss in nats per token; every trial records the tokens, FLOPs and seconds to reach it.
    If None, two arms are compared at a loss that both reach."""


class Tasks(Spec):
    """Zero- and few-shot tasks that are run with lm_eval in every trial.

    Macro accuracy is the mean accuracy over tasks. `paribus evaluate` runs additional tasks on
    finished trials."""

    own: Paths = ()
    """Import paths of custom tasks, `file.py:name`."""
    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Names of tasks generated from the validation text; None means all tasks that the text and
    window length allow."""
    standard: Paths = ()
    """Tasks of lm_eval, such as "lambada_openai" or "hellaswag"; "standard" means the seven default
    tasks, and "piqa:t0" means PIQA with all T0 templates. Their version and a digest of their data
    are registered."""
    standard_items: Annotated[int, Field(ge=1)] | None = None
    """Number of questions per lm_eval task; None means all. Characters outside the vocabulary are
    replaced."""
    standard_data: str | None = None
    """Folder with local copies of Hugging Face data set repositories, in subfolders with their
    names; None downloads the data sets, or uses the Hugging Face cache."""
    shots: Annotated[tuple[Shots, ...], Field(strict=False, min_length=1)] = (0, 3)
    """Numbers of few-shot examples before each question; a number is skipped for tasks whose
    examples do not fit into the window."""
    items: Annotated[int, Field(ge=1, le=500)] = 48
    """Number of questions per generated task."""
    seed: Seed = 0
    """Random seed for sampling the questions of generated tasks."""
    unknown: Literal["skip", "replace"] = "skip"
    """`skip` skips questions with characters outside the vocabulary; `replace` replaces the
    characters."""


def curve_steps(study: Study, arm: str) -> tuple[int, ...]:
    """Return the step counts after which the held-out loss of `arm` is measured.

    These are 0, multiples of `evaluation.every`, and the last step, or () if the curve is disabled.
    With a growing batch, `evaluation.every` counts steps of the final size, so that arms are
    measured after equal numbers of tokens.
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
    """Return a copy of `study` with the precision "auto" resolved to `precision`.

    Raises ParibusError if two arms become identical.
    """
    if not is_open(study):
        return study
    table = study.model_dump()
    table["training"]["precision"] = precision
    label = f"{study.name}, whose precision 'auto' means {precision}"
    return parse_study(table, folder=study.folder, label=label, foreign=study.is_foreign)
