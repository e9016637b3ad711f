"""Stacks: trials that are trained side by side.

The trials of a stack share one model, so their arms may differ only in learning rate, weight decay
and initial weights (`Setting.common`). Both trials of a pair are trained in stacks of one size,
because batched products may sum in another order than single ones. Stacks that were begun are
therefore kept, whatever size is asked for later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paribus.engine.cost import trial_bytes
from paribus.engine.execution.trial.checkpoints import begun_stacks
from paribus.engine.setting import Setting
from paribus.results import ResultsFolder
from paribus.study import Study
from paribus.study.trainer import Trial

Stack = Sequence[Trial]
SHARE = 0.7  # of the free memory: recorded graphs, probes and gaps of the allocator come on top


@dataclass(frozen=True)
class Recorded:
    """The stacks of a results folder, from its records.

    Attributes:
        done: the trials that are finished.
        finished: the stacks that these were trained in.
        begun: the stacks that have a checkpoint.
    """

    done: frozenset[Trial] = frozenset()
    finished: tuple[tuple[Trial, ...], ...] = ()
    begun: tuple[tuple[Trial, ...], ...] = ()

    @property
    def stacks(self) -> list[tuple[Trial, ...]]:
        """All stacks, finished ones first."""
        return [*self.finished, *self.begun]


def read_recorded(study: Study, folder: ResultsFolder) -> Recorded:
    """Read the stacks of a results folder from its trials and checkpoints."""
    trials = [folder.trial(arm, seed) for arm, seed in study.trials]
    done = [trial for trial in trials if trial.is_finished]
    stacks = [trial.read_json("trial.json").get("stack", []) for trial in done]
    finished = dict.fromkeys(tuple((arm, seed) for arm, seed in stack) for stack in stacks if stack)
    return Recorded(
        frozenset((trial.arm, trial.seed) for trial in done),
        tuple(finished),
        tuple(begun_stacks(folder.path)),
    )


def default_size(
    study: Study, machine: Mapping[str, Any], vocabularies: Mapping[str, int], workers: int
) -> int:
    """Return the default number of replicas in a stack.

    A core trains one trial at a time. Each GPU takes its share of all trials, as far as `workers`
    that share its memory hold them.
    """
    if study.resources.devices_per_trial is not None or machine["device"] == "cpu":
        return 1
    size = math.ceil(len(study.trials) / machine["devices"])
    if machine["memory"] is None:
        return size
    largest = max(trial_bytes(study.setting(a), v, study.folder) for a, v in vocabularies.items())
    sharing = math.ceil(workers / machine["devices"])
    return max(min(size, int(SHARE * machine["memory"] / sharing / largest)), 1)


def plan_stacks(study: Study, size: int, recorded: Iterable[Stack] = ()) -> list[list[Trial]]:
    """Return all trials of the study as stacks of at most `size`, keeping `recorded` stacks.

    Arms share stacks only if all arms of the study can, so that sizes agree.
    """
    fresh = [chunk for part in _parts(study) for chunk in _chunks(study, size, part)]
    known = _begun_chunks(study, recorded)
    if not set(known) <= set(fresh):  # begun with another size, or before seeds were added
        taken = {seed for seeds, _ in known for seed in seeds}
        left = [[seed for seed in part if seed not in taken] for part in _parts(study)]
        fresh = known + [chunk for part in left for chunk in _chunks(study, size, part)]
    rank = {seed: i for i, seed in enumerate(study.seeds)}
    fresh.sort(key=lambda chunk: min(rank[seed] for seed in chunk[0]))
    return [
        [(arm, seed) for seed in seeds for arm in arms]
        for seeds, shared in fresh
        for arms in (sharing_arms(study) if shared else [[arm] for arm in study.arms])
    ]


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
    """Return groups of seeds that may be trained together: up to each look, or of each stage."""
    ends = [*(study.plan.looks if study.plan else study.stages[:1]), len(study.seeds)]
    starts = [0, *ends]
    return [study.seeds[a:b] for a, b in zip(starts, ends, strict=False) if a < b]


# Seeds that are trained together in every arm, and whether arms share stacks.
Chunk = tuple[tuple[int, ...], bool]


def _chunks(study: Study, size: int, seeds: Sequence[int]) -> list[Chunk]:
    groups = sharing_arms(study)
    shared = len({len(arms) for arms in groups}) == 1 and 1 < len(groups[0]) <= size
    shared = shared and study.plan is None  # a look may stop one arm and not another
    n_chunks = math.ceil(len(seeds) / (size // (len(groups[0]) if shared else 1)))
    # Equal sizes rather than a small remainder.
    n_seeds = math.ceil(len(seeds) / max(n_chunks, 1))
    return [(tuple(seeds[i : i + n_seeds]), shared) for i in range(0, len(seeds), max(n_seeds, 1))]


def _begun_chunks(study: Study, recorded: Iterable[Stack]) -> list[Chunk]:
    """Return the chunks of begun stacks; of two that contradict each other, the first."""
    known: dict[int, Chunk] = {}
    ours = set(study.seeds)
    for stack in recorded:
        seeds = tuple(dict.fromkeys(seed for _, seed in stack))
        arms = {arm for arm, _ in stack}
        if not stack or not ours.issuperset(seeds) or not arms <= study.arms.keys():
            continue
        if not any(seed in known for seed in seeds):
            known |= dict.fromkeys(seeds, (seeds, len(arms) > 1))
    return list(dict.fromkeys(known.values()))
