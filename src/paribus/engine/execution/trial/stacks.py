"""Stacks: trials that are trained side by side.

The trials of a stack share one model, so their arms may differ only in learning rate, weight decay
and initial weights (`Setting.common`). Both trials of a pair are trained in stacks of the same
size, because batched products may sum in another order than single ones. Once training has begun,
the size of stacks therefore stays the same.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from paribus.engine.cost import trial_bytes
from paribus.engine.execution.trial.checkpoints import begun_stacks
from paribus.engine.setting import Setting
from paribus.results import ResultsFolder
from paribus.study import Study
from paribus.study.trainer import Trial

SHARE = 0.7  # of the free memory: recorded graphs, probes and gaps of the allocator come on top


def recorded_size(study: Study, folder: ResultsFolder) -> int:
    """Return the size of the largest stack that was trained or begun in a folder; 0 for none."""
    trials = [folder.trial(*trial) for trial in study.trials]
    stacks = [t.read_json("trial.json").get("stack", []) for t in trials if t.is_finished]
    return max(map(len, [*stacks, *begun_stacks(folder.path)]), default=0)


def default_size(
    study: Study, machine: Mapping[str, Any], vocabularies: Mapping[str, int], workers: int
) -> int:
    """Return the default number of replicas in a stack.

    A core trains one trial at a time. A GPU trains its share of all trials at once, if the memory
    suffices for the `workers` that share it.
    """
    if study.resources.devices_per_trial is not None or machine["device"] == "cpu":
        return 1
    size = math.ceil(len(study.trials) / machine["devices"])
    if machine["memory"] is None:
        return size
    largest = max(trial_bytes(study.setting(a), v) for a, v in vocabularies.items())
    sharing = math.ceil(workers / machine["devices"])
    return max(min(size, int(SHARE * machine["memory"] / sharing / largest)), 1)


def plan_stacks(study: Study, size: int) -> list[list[Trial]]:
    """Return all trials of the study, grouped into stacks of at most `size`.

    Arms share stacks only if all arms of the study can, so that sizes agree. Calling this with the
    size of the largest stack gives the same stacks again.
    """
    groups = sharing_arms(study)
    is_shared = len({len(arms) for arms in groups}) == 1 and 1 < len(groups[0]) <= size
    is_shared = is_shared and study.plan is None  # a look may stop one arm and not another
    n_seeds = size // (len(groups[0]) if is_shared else 1)
    stacks: list[list[Trial]] = []
    for part in _parts(study):
        for first in range(0, len(part), n_seeds):
            seeds = part[first : first + n_seeds]
            for arms in groups if is_shared else [[arm] for arm in study.arms]:
                stacks.append([(arm, seed) for seed in seeds for arm in arms])
    return stacks


def sharing_arms(study: Study) -> list[list[str]]:
    """Return groups of arms that can share a stack.

    A stack shows user-defined probes a single setting, so with such probes arms have to be equal.
    """
    groups: dict[Setting, list[str]] = {}
    for arm in study.arms:
        setting = study.setting(arm)
        groups.setdefault(setting if study.probes.own else setting.common, []).append(arm)
    # Sorted, because the order in a study file may be edited.
    return [sorted(arms) for arms in groups.values()]


def _parts(study: Study) -> list[tuple[int, ...]]:
    """Return groups of seeds that may be trained together: those of one interim look or stage."""
    ends = [*(study.plan.looks if study.plan else study.stages[:1]), len(study.seeds)]
    starts = [0, *ends]
    return [study.seeds[a:b] for a, b in zip(starts, ends, strict=False) if a < b]
