"""Which trials are trained side by side.

A stack shares one model, so its arms may differ in learning rate, weight decay and initial weights
alone (`Setting.common`). Both trials of a pair start in stacks of one size: the size is a control,
as batched products may sum in another order than single ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from paribus.study import Setting, Study

Trial = tuple[str, int]


def default_size(study: Study, kind: str, devices: int = 1) -> int:
    """Replicas of a stack where the user names no number.

    On a CPU every core trains one; of GPUs each takes its part of all trials.
    """
    return 1 if kind == "cpu" else math.ceil(len(study.trials) / devices)


def plan_stacks(study: Study, size: int, steps_done: Mapping[Trial, int]) -> list[list[Trial]]:
    """The trials in `steps_done` as stacks of at most `size`, each at one step.

    Arms share stacks where all arms of the study can alike, so that sizes agree. Which seeds go
    together does not depend on what is done already: a stack goes on as it was.
    """
    groups = sharing_arms(study)
    if len({len(arms) for arms in groups}) > 1 or len(groups[0]) > size:
        groups = [[arm] for arm in study.arms]
    n_chunks = math.ceil(len(study.seeds) / (size // len(groups[0])))
    n_seeds = math.ceil(len(study.seeds) / n_chunks)  # chunks alike, rather than one small rest
    stacks = []
    for start in range(0, len(study.seeds), n_seeds):
        for arms in groups:
            by_step: dict[int, list[Trial]] = {}
            for seed in study.seeds[start : start + n_seeds]:
                for arm in arms:
                    if (arm, seed) in steps_done:
                        by_step.setdefault(steps_done[arm, seed], []).append((arm, seed))
            stacks += by_step.values()
    return stacks


def sharing_arms(study: Study) -> list[list[str]]:
    """The arms of one model each."""
    groups: dict[Setting, list[str]] = {}
    for arm in study.arms:
        groups.setdefault(study.setting(arm).common, []).append(arm)
    return list(groups.values())
