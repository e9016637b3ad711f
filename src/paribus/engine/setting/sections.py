"""What is measured in every arm alike: probes, held-out text, tasks."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from paribus.engine.setting.bounds import MOST_SHOTS, MOST_TOKENS
from paribus.study.base import Spec
from paribus.study.bounds import MOST_ENTRIES, MOST_STEPS, Seed, Steps


class Probes(Spec):
    """Measurements while training, the same in every arm."""

    own: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)] = ()
    """The user's own probes, by import path: `package.module:name` or `file.py:name`."""
    every: Annotated[
        dict[str, Annotated[int, Field(ge=0, le=MOST_STEPS)]], Field(max_length=MOST_ENTRIES)
    ] = Field(default_factory=dict)
    """Steps from one measurement of a probe to the next, by its name; 0 turns it off. A probe that
    is not named keeps the cadence that it declares."""


class Evaluation(Spec):
    """Measurements on held-out text, the same in every arm: when a trial is trained, and of the
    loss along the way."""

    precision: Literal["float32", "bfloat16"] = "float32"
    """Of the matrix products in a model that reads held-out text at the end of a trial; what is
    made of its logits is float32. bfloat16 takes about half the time where the processor has it,
    and changes losses by rounding."""
    own: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)] = ()
    """The user's own measures, by import path: `package.module:name` or `file.py:name`."""
    overlap: Annotated[float, Field(ge=0, lt=1)] = 0.0
    """The share of a window that `bits_per_byte` is measured with once more, as context alone:
    what windows without overlap cost."""
    every: Steps | None = None
    """Steps from one point of the held-out loss curve to the next; it begins before the first step
    and ends with the last. None measures no curve."""
    curve_tokens: Annotated[int, Field(gt=0, le=MOST_TOKENS)] = 2**13
    """Of the validation text, from its beginning, what each point is measured on at most."""
    target: Annotated[float, Field(gt=0)] | None = None
    """A loss, in nats per token of the curve: tokens, FLOPs and seconds to reach it are measured in
    every trial. None compares arms at the loss that both of a pair reach."""


class Tasks(Spec):
    """Zero- and few-shot tasks, run through lm_eval in every trial: made from the validation text,
    and the harness's own by name. All of them are what macro accuracy is over.

    `paribus evaluate` runs more of them on finished trials."""

    own: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)] = ()
    """The user's own tasks, by import path: `package.module:name` or `file.py:name`."""
    names: Annotated[tuple[str, ...], Field(strict=False)] | None = None
    """Left out: every task that the text and the window allow. An empty list: none."""
    standard: Annotated[tuple[str, ...], Field(strict=False, max_length=MOST_ENTRIES)] = ()
    """The harness's own tasks, such as "lambada_openai" or "hellaswag"; "standard" is all seven,
    "piqa:t0" one in T0's words. They are registered by version and by the digest of their data."""
    standard_items: Annotated[int, Field(ge=1)] | None = None
    """The first so many questions of each of these; None is all. Unknown characters are shown with
    a stand-in."""
    standard_data: str | None = None
    """A folder with copies of the hub's data set repositories, by their names there; None fetches
    them, or takes them from the hub's cache."""
    shots: Annotated[
        tuple[Annotated[int, Field(ge=0, le=MOST_SHOTS)], ...],
        Field(strict=False, min_length=1, max_length=MOST_ENTRIES),
    ] = (
        0,
        3,
    )
    """Solved examples before each question; tasks whose questions then do not fit are left out."""
    items: Annotated[int, Field(ge=1, le=500)] = 48
    """Questions of each task made from the text."""
    seed: Seed = 0
    """Of the questions."""
    unknown: Literal["skip", "replace"] = "skip"
    """Questions with characters outside the vocabulary are left out, or shown with a stand-in."""

    @model_validator(mode="after")
    def _own_tasks_are_asked(self) -> Self:
        if self.own and self.names == ():
            raise ValueError(
                f"names = [] asks no task, and own = {list(self.own)} would not be asked either; "
                "name those of own in names, or leave one of the two keys out"
            )
        return self
