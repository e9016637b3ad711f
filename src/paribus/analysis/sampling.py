"""The seeds that count for a contrast, and the design by which they were sampled.

Without looks and stages: all seeds, one sample. With looks: the seeds of the last look that was
taken at the contrast, whatever has been trained since; before the first look nothing is compared.
An endpoint that a look resolved keeps the seeds of that look, and with them its rejection (Maurer
and Bretz 2013), also where the contrast goes on for another endpoint or for events. With a second
stage: the seeds of both.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from paribus.results.look_record import GOES_ON, OPEN, look_of, resolved_at
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    Design,
    Looks,
    OneLook,
    PairedContrast,
    Result,
    Stages,
    UnpairedContrast,
    error_of_either,
    paired_contrast,
    stage_weights,
    unpaired_contrast,
)
from paribus.study import Study

# How a contrast stands after a look, and why it stopped.
STANDS = {
    GOES_ON: "goes on after",
    OPEN: "not resolved at",
    "effect": "stopped at",
    "equivalence": "stopped at",
    "broken": "stopped at",
}
RESOLVED = ("effect", "equivalence")  # what a look says for good of an endpoint
REASONS = {
    "effect": "an effect was found",
    "equivalence": "no effect worth having was found",
    "broken": "a control is broken",
}


@dataclass(frozen=True)
class Sampling(Result):
    """The seeds that count for one contrast.

    Attributes:
        seeds: those that count.
        look: the look (from 1) that its records are of; None without a plan of looks, 0 before the
            first was taken.
        decision: what was decided there; empty without a plan.
        went_on: whether the contrast went on after that look, for another endpoint or for events.
        stage_seeds: of `seeds`, those of the first stage; None where there is one stage.
    """

    study: Study = field(repr=False)
    seeds: tuple[int, ...]
    look: int | None = None
    decision: str = ""
    stage_seeds: tuple[int, ...] | None = None
    went_on: bool = False

    @property
    def is_open(self) -> bool:
        """True if the contrast goes on to another look."""
        return self.decision in ("", GOES_ON)

    @property
    def description(self) -> str:
        """`5 of 20 seeds: stopped at look 1 of 4: an effect was found`; empty where all are one
        sample."""
        plan, texts = self.study.plan, []
        if plan is not None and self.look:
            stands = "resolved at" if self.went_on else STANDS[self.decision]
            texts.append(
                f"{plan.looks[self.look - 1]} of {plan.looks[-1]} seeds: "
                f"{stands} look {self.look} of {len(plan.looks)}"
                + (f": {REASONS[self.decision]}" if self.decision in REASONS else "")
            )
        if self.stage_seeds is not None:
            texts.append(f"two stages of {' and '.join(map(str, self.study.stages))} seeds")
        return "; ".join(texts)

    def design(self, seeds: Collection[int]) -> Design:
        """Return the design of pairs of these seeds, which are some of `self.seeds`."""
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            return Stages(first, stage_weights(self.study.inference.first_stage_weight))
        plan = plan_of(self.study)
        return OneLook(plan, self.look - 1) if plan and self.look else None

    def why_not(self, seeds: Collection[int]) -> str:
        """Return why pairs of these seeds cannot be tested; empty where they can."""
        if self.look == 0:
            assert self.study.plan is not None
            return f"the first look, at {self.study.plan.looks[0]} seeds, has not been taken"
        n, where = len(seeds), ""
        if self.stage_seeds is not None:
            first = self._in_first_stage(seeds)
            n, where = min(first, n - first), " in a stage"
        pairs = "pair" if n == 1 else "pairs"
        return "" if n >= 2 else f"{n} comparable seed {pairs}{where}; inference needs two"

    def _in_first_stage(self, seeds: Collection[int]) -> int:
        return sum(seed in (self.stage_seeds or ()) for seed in seeds)


def sampling_of(
    study: Study, looks: Sequence[dict[str, Any]], arm: str, metric: str | None = None
) -> Sampling:
    """Return that of the contrast of `arm` after these looks, or of one endpoint of it."""
    if study.plan is None:
        first = study.seeds[: study.stages[0]] if study.stages else None
        return Sampling(study, study.seeds, stage_seeds=first)
    if not looks:
        return Sampling(study, (), 0)
    number = min(look_of(study, looks, arm), len(looks) - 1)
    decision = looks[number]["contrasts"][arm]["decision"]
    resolved = None if metric is None else resolved_at(looks, arm, metric)
    if metric is not None and resolved is not None:
        seeds = study.seeds[: study.plan.looks[resolved]]
        shown = looks[resolved]["contrasts"][arm]["endpoints"][metric]["resolved"]
        went_on = resolved < number or decision == GOES_ON
        return Sampling(study, seeds, resolved + 1, shown, went_on=went_on)
    return Sampling(study, study.seeds[: study.plan.looks[number]], number + 1, decision)


def registered(study: Study) -> dict[str, Any]:
    """Return what every contrast of a study is tested by, as `paired_contrast` takes it."""
    inference = study.inference
    return inference.model_dump(include={"seed", "alpha", "power", "resamples"})


def infer(
    study: Study, baseline: Sequence[float], treatment: Sequence[float], **keywords: Any
) -> PairedContrast | UnpairedContrast:
    """Return the inference over pairs, or over runs that are no pairs, as a study registered it."""
    if study.is_paired:
        return paired_contrast(baseline, treatment, **keywords)
    of_pairs = ("seed", "resamples", "design", "choice")
    unpaired = {name: value for name, value in keywords.items() if name not in of_pairs}
    return unpaired_contrast(baseline, treatment, **unpaired)


def plan_of(study: Study) -> Looks | None:
    """Return the plan of looks, with its boundaries; None where the study has none."""
    return None if study.plan is None else Looks(study.plan.looks)


def extension_text(study: Study) -> str:
    """Return that a second stage was added, how it is combined, and its price."""
    first, second = study.stages
    alpha, weights = study.inference.alpha, stage_weights(study.inference.first_stage_weight)
    price = (
        "The first stage could have been claimed by itself, so the chance of a false claim at "
        f"either stage is up to {error_of_either(weights, alpha):.1%} per contrast, not {alpha:g}."
        if first >= DESCRIPTIVE_BELOW
        else f"The first stage had fewer than {DESCRIPTIVE_BELOW} seeds and was not tested."
    )
    return (
        f"A second stage of {second} seeds was registered after the first stage of {first} seeds. "
        "Both are combined by the inverse-normal method with weights registered before the first "
        f"(Lehmacher and Wassmer 1999). {price}"
    )
