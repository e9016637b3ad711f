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

from numpy.typing import ArrayLike

from paribus.results.look_record import GOES_ON, look_of, resolved_at
from paribus.statistics import (
    DESCRIPTIVE_BELOW,
    Design,
    Looks,
    OneLook,
    Result,
    RunContrast,
    Stages,
    error_of_either,
    paired_contrast,
    stage_weights,
    unpaired_contrast,
)
from paribus.study import Study

RESOLVED = ("effect", "equivalence")  # what a look says for good of an endpoint


@dataclass(frozen=True)
class Sampling(Result):
    """The seeds that count for one contrast.

    Attributes:
        seeds: those that count.
        look: the look (from 1) that its records are of; None without a plan of looks, 0 before the
            first was taken.
        decision: what was decided there; empty without a plan.
        stage_seeds: of `seeds`, those of the first stage; None where there is one stage.
    """

    study: Study = field(repr=False)
    seeds: tuple[int, ...]
    look: int | None = None
    decision: str = ""
    stage_seeds: tuple[int, ...] | None = None

    @property
    def is_open(self) -> bool:
        """True if the contrast goes on to another look."""
        return self.decision in ("", GOES_ON)

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
    if metric is not None and (resolved := resolved_at(looks, arm, metric)) is not None:
        number = resolved
        decision = looks[number]["contrasts"][arm]["endpoints"][metric]["resolved"]
    return Sampling(study, study.seeds[: study.plan.looks[number]], number + 1, decision)


def registered(study: Study) -> dict[str, Any]:
    """Return what every contrast of a study is tested by, as `paired_contrast` takes it."""
    inference = study.inference
    return inference.model_dump(include={"seed", "alpha", "power", "resamples"})


def infer(study: Study, baseline: ArrayLike, treatment: ArrayLike, **keywords: Any) -> RunContrast:
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
